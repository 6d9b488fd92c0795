# SPDX-License-Identifier: Apache-2.0
"""Changing recorded datasets: every change is written beside the original and takes its place in one instant."""

from __future__ import annotations
