# SPDX-License-Identifier: Apache-2.0
"""What commands say: data on stdout, the rest on stderr, errors as clean messages with an exit code."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ulna.core.errors import (
    ConfigError,
    PluginConflictError,
    PluginNotFoundError,
    PluginUnusableError,
    UlnaError,
)

__all__ = ["message", "output", "output_json", "output_table", "reporting", "table"]

_USAGE_ERRORS = (ConfigError, PluginNotFoundError, PluginConflictError, PluginUnusableError)


def output(text: str = "") -> None:
    """Write data to stdout, with a newline.

    Args:
        text: The data.
    """
    print(text)


def output_json(value: Any) -> None:
    """Write a JSON document to stdout.

    Args:
        value: A JSON value.
    """
    print(json.dumps(value, indent=2, ensure_ascii=False))


def output_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write an aligned table to stdout.

    Args:
        headers: Names of the columns.
        rows: Cells of each row.
    """
    print(table(headers, rows))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align cells in columns.

    Args:
        headers: Names of the columns.
        rows: Cells of each row.

    Returns:
        Lines without trailing blanks.
    """
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in (headers, *rows)]
    return "\n".join(line.rstrip() for line in lines)


def message(text: str = "") -> None:
    """Write a message for people to stderr, with a newline.

    Args:
        text: The message.
    """
    print(text, file=sys.stderr)


@contextmanager
def reporting() -> Iterator[None]:
    """Turn Ulna's errors into a message on stderr and an exit code.

    2 when what was asked for is wrong (settings, plugin names), 1 when it failed, 130 after Ctrl-C. With `ULNA_TRACE=1`
    the traceback is shown too. Other exceptions are bugs and pass.

    Raises:
        SystemExit: With the exit code.
    """
    try:
        yield
    except KeyboardInterrupt:
        message("Interrupted.")
        raise SystemExit(130) from None
    except UlnaError as error:
        if os.environ.get("ULNA_TRACE", "") not in ("", "0"):
            traceback.print_exception(error)
        message(f"Error: {error}")
        raise SystemExit(2 if isinstance(error, _USAGE_ERRORS) else 1) from None
