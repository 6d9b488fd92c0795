# SPDX-License-Identifier: Apache-2.0
"""The conformance suites, one module each. Import them from `ulna.testing`."""
