# SPDX-License-Identifier: Apache-2.0
"""What commands say: data on stdout, the rest on stderr, errors as clean messages with an exit code."""

from __future__ import annotations

import errno
import json
import logging
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

logger = logging.getLogger(__name__)

_USAGE_ERRORS = (ConfigError, PluginNotFoundError, PluginConflictError, PluginUnusableError)

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_WRONG_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP)


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
    """Write a message for people to stderr, with a newline; nowhere when stderr is closed or its terminal is gone.

    Args:
        text: The message.
    """
    if sys.stderr is None:
        return
    try:
        print(text, file=sys.stderr)
    except OSError as error:  # nobody can read it, which is no reason to stop what was going on
        logger.debug("A message could not be shown: %s", error)


@contextmanager
def reporting() -> Iterator[None]:
    """Turn Ulna's errors, and what the system refuses, into a message on stderr and an exit code.

    2 when what was asked for is wrong (settings, plugin names), 1 when it failed (a full disk, a folder that may not be
    written, a library that is not installed), 130 after Ctrl-C. With `ULNA_TRACE=1` the traceback is shown too. Other
    exceptions are bugs and pass, and so does a broken pipe, which ends a command whose output nobody reads any more.

    Raises:
        SystemExit: With the exit code.
    """
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        message("Interrupted.")
        raise SystemExit(130) from None
    except BrokenPipeError:
        raise
    except (UlnaError, OSError) as error:
        if os.environ.get("ULNA_TRACE", "") not in ("", "0"):
            traceback.print_exception(error)
        message(f"Error: {error if isinstance(error, UlnaError) else _refusal(error)}")
        raise SystemExit(2 if isinstance(error, _USAGE_ERRORS) else 1) from None
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library in ("", "ulna"):
            raise
        if os.environ.get("ULNA_TRACE", "") not in ("", "0"):
            traceback.print_exception(error)
        message(
            f"Error: This needs the library {library!r}, which is not installed in {sys.prefix}.\n"
            "See which distribution misses it, and how to install it, with: ulna plugins doctor"
        )
        raise SystemExit(1) from None


def _refusal(error: OSError) -> str:
    """Say what the system refused, on which path, and what to do about it."""
    paths = " -> ".join(str(path) for path in (error.filename, error.filename2) if path is not None)
    said = f"{error.strerror or error}{f': {paths}' if paths else ''}"
    if error.errno in _NO_SPACE:
        return f"{said}\nFree some space, or choose a folder on another disk."
    if error.errno in _FORBIDDEN:
        return f"{said}\nChoose another folder, or get the right to use this one."
    if error.errno in _WRONG_PATH:
        return f"{said}\nCheck the path."
    return f"{said}\nWhere it happened is shown with ULNA_TRACE=1"
