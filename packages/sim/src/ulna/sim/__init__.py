# SPDX-License-Identifier: Apache-2.0
"""Robots without hardware: simulated servo buses, a simulated SO-101 arm, a table scene with cameras."""
