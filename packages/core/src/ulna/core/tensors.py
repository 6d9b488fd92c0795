# SPDX-License-Identifier: Apache-2.0
"""Tensors in safetensors files, with or without torch installed. No other tensor file format is read or written."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ulna.core.errors import CheckpointError, MissingDependencyError
from ulna.core.files import write_bytes

__all__ = ["read_tensors", "write_tensors"]


def _safetensors() -> None:
    if importlib.util.find_spec("safetensors") is None:
        raise MissingDependencyError("safetensors", "Reading and writing tensors", "pip install 'ulna-core[torch]'")


def _has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def write_tensors(path: Path, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors atomically.

    Args:
        path: The file.
        tensors: Name to torch tensor or numpy array; all of one kind.
        metadata: Text stored in the header.

    Raises:
        MissingDependencyError: safetensors is not installed.
    """
    _safetensors()
    if any(type(t).__module__.startswith("torch") for t in tensors.values()):
        from safetensors.torch import save

        data = save({k: t.detach().cpu().contiguous() for k, t in tensors.items()}, dict(metadata or {}) or None)
    else:
        from safetensors.numpy import save as save_arrays

        data = save_arrays(dict(tensors), dict(metadata or {}) or None)
    write_bytes(path, data)


def read_tensors(path: Path) -> dict[str, Any]:
    """Read all tensors of a file, to the CPU.

    Args:
        path: The file.

    Returns:
        Name to torch tensor, or to numpy array where torch is not installed.

    Raises:
        CheckpointError: The file is missing or damaged.
        MissingDependencyError: safetensors is not installed.
    """
    _safetensors()
    from safetensors import SafetensorError

    library = import_module("safetensors.torch" if _has_torch() else "safetensors.numpy")
    try:
        return dict(library.load_file(path))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"Cannot read the tensors in {path}: {error}", hint="The file is missing or damaged."
        ) from error
