# SPDX-License-Identifier: Apache-2.0
"""The commands of this distribution, one module each. The only modules here that print or read answers."""
