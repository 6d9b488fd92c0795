# SPDX-License-Identifier: Apache-2.0
"""The `ulna` command and the commands that look after plugins. Other commands live in their own distributions."""

from __future__ import annotations

from ulna.cli.__about__ import __version__

__all__ = ["__version__"]
