# SPDX-License-Identifier: Apache-2.0
"""One reader of settings for flags, files, checkpoints and Python, and the settings of a class in words."""

from __future__ import annotations

from ulna.core.options.describing import FieldHelp, describe
from ulna.core.options.reading import Resolved, collect, read_options, render
from ulna.core.options.sources import Given, Tree

__all__ = ["FieldHelp", "Given", "Resolved", "Tree", "collect", "describe", "read_options", "render"]
