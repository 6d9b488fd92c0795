# SPDX-License-Identifier: Apache-2.0
"""The version of this distribution, read by the build."""

__version__ = "0.1.0"
