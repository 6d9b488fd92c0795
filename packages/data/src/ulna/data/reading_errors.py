# SPDX-License-Identifier: Apache-2.0
"""Turns what libraries say of a damaged file into an error that names the file. Reads nothing itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from ulna.core.errors import DatasetFormatError

__all__ = ["readable"]


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Tell which file it was when reading it fails.

    Args:
        path: The file that is read inside the block.

    Raises:
        DatasetFormatError: It is missing, damaged, may not be read, or is no file.
    """
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise DatasetFormatError(
            f"{path} cannot be read: {error}",
            hint="Restore the file from a backup or the Hub, or see what is wrong: ulna dataset validate",
        ) from error
