# SPDX-License-Identifier: Apache-2.0
"""The page of `ulna dataset view`: a small local server, and one static page that plays episodes and marks them."""
