# SPDX-License-Identifier: Apache-2.0
"""Golden cases: folders made with LeRobot 0.6.1 that hold its files, inputs and outputs, for parity tests."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["GoldenCase", "procedural_tensor"]


def procedural_tensor(name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return the tensor a golden checkpoint leaves out, from its name and shape alone.

    Args:
        name: Key in the state dict.
        shape: Its shape.

    Returns:
        float32 of `shape`; int64 zeros for counters.
    """
    if name.endswith("num_batches_tracked"):
        return np.zeros(shape, np.int64)
    size = int(np.prod(shape)) if shape else 1
    mixed = (np.arange(size, dtype=np.uint64) * 2654435761 + zlib.crc32(name.encode())) & 0xFFFFFFFF
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = ((mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
    unit = 2 * (mixed.astype(np.float64) / 2**32 - 0.5)
    if name.endswith("running_var"):
        values = 1 + 0.5 * unit
    elif len(shape) == 1:
        values = 0.1 * unit + (1.0 if name.endswith("weight") else 0.0)
    else:
        values = unit * np.sqrt(3.0 / np.prod(shape[1:]))
    return values.astype(np.float32).reshape(shape)


class GoldenCase:
    """One case on disk.

    Args:
        folder: The folder with `golden.json`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.info: dict[str, Any] = json.loads((folder / "golden.json").read_text(encoding="utf-8"))

    def tensors(self, prefix: str = "") -> dict[str, Any]:
        """Return the recorded torch tensors below a prefix.

        Args:
            prefix: A path such as `train/pre`.

        Returns:
            The rest of the path to tensor.
        """
        from safetensors.torch import load_file

        start = f"{prefix.rstrip('/')}/" if prefix else ""
        recorded = load_file(self.folder / "golden.safetensors")
        return {k.removeprefix(start): t for k, t in recorded.items() if k.startswith(start)}

    def checkpoint(self, target: Path) -> Path:
        """Write the complete checkpoint, procedural tensors filled in.

        Args:
            target: An empty or missing folder.

        Returns:
            `target`.
        """
        from safetensors.numpy import load_file, save_file

        shutil.copytree(self.folder, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("golden.*"))
        weights = load_file(target / "model.safetensors")
        for name, shape in self.info.get("procedural", {}).items():
            weights.setdefault(name, procedural_tensor(name, tuple(shape)))
        (target / "model.safetensors").unlink()
        save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
        return target
