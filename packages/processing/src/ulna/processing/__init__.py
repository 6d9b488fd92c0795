# SPDX-License-Identifier: Apache-2.0
"""The standard processor steps. Steps are found by name through the registry; import them from their modules."""

from __future__ import annotations

from ulna.processing.__about__ import __version__

__all__ = ["__version__"]
