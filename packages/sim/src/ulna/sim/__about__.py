# SPDX-License-Identifier: Apache-2.0
"""Version of ulna-sim."""

__version__ = "0.1.0"
