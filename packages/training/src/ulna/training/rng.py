# SPDX-License-Identifier: Apache-2.0
"""The global random generators (Python, NumPy, torch): seeding, capturing, restoring, and their file."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ulna.core.errors import CheckpointError
from ulna.core.tensors import read_tensors, write_tensors

__all__ = ["capture_rng", "load_rng", "preserved_rng", "restore_rng", "save_rng", "seed_everything"]

_NEEDED = ("py_rng_version", "py_rng_state", "np_rng_state_values", "np_rng_state_index", "torch_rng_state")


def seed_everything(seed: int) -> None:
    """Seed the generators of Python, NumPy and torch (every device).

    Args:
        seed: The seed.
    """
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - what libraries draw from is the global generator
    torch.manual_seed(seed)


def capture_rng() -> dict[str, torch.Tensor]:
    """Return the state of all generators as tensors, under LeRobot's names.

    Two values that LeRobot leaves out or rounds are kept whole, so that a normal deviate in stock survives too.
    """
    version, words, spare = random.getstate()
    _, values, index, has_gauss, gauss = np.random.get_state(legacy=True)  # noqa: NPY002
    state = {
        "py_rng_version": torch.tensor([version]),
        "py_rng_state": torch.tensor(words),
        "np_rng_state_values": torch.tensor(np.asarray(values, dtype=np.int64)),
        "np_rng_state_index": torch.tensor([int(index)]),
        "np_rng_has_gauss": torch.tensor([int(has_gauss)]),
        "np_rng_cached_gaussian": torch.tensor([float(gauss)], dtype=torch.float64),
        "torch_rng_state": torch.get_rng_state(),
    }
    if spare is not None:
        state["py_rng_gauss_next"] = torch.tensor([spare], dtype=torch.float64)
    if torch.cuda.is_available():
        state["torch_cuda_rng_state"] = torch.cuda.get_rng_state()
    return state


def restore_rng(state: dict[str, Any]) -> None:
    """Give all generators the state they had.

    Args:
        state: What `capture_rng` returned, or a file of LeRobot.

    Raises:
        CheckpointError: A part is missing.
    """
    missing = [name for name in _NEEDED if name not in state]
    if missing:
        raise CheckpointError(f"The state of the random generators lacks {', '.join(missing)}.", missing=missing)
    spare = float(state["py_rng_gauss_next"][0]) if "py_rng_gauss_next" in state else None
    random.setstate((int(state["py_rng_version"][0]), tuple(state["py_rng_state"].tolist()), spare))
    has_gauss = int(state["np_rng_has_gauss"][0]) if "np_rng_has_gauss" in state else 0
    gauss = float(state["np_rng_cached_gaussian"][0]) if "np_rng_cached_gaussian" in state else 0.0
    values = state["np_rng_state_values"].numpy().astype(np.uint32)
    index = int(state["np_rng_state_index"][0])
    np.random.set_state(("MT19937", values, index, has_gauss, gauss))  # noqa: NPY002
    torch.set_rng_state(state["torch_rng_state"].to(torch.uint8))
    if "torch_cuda_rng_state" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["torch_cuda_rng_state"].to(torch.uint8))


def save_rng(path: Path) -> None:
    """Write the state of all generators.

    Args:
        path: A safetensors file.
    """
    write_tensors(path, capture_rng())


def load_rng(path: Path) -> None:
    """Restore all generators from a file.

    Args:
        path: What `save_rng` or LeRobot wrote.

    Raises:
        CheckpointError: It is missing, damaged or incomplete.
    """
    restore_rng(read_tensors(path))


@contextmanager
def preserved_rng() -> Iterator[None]:
    """Leave the generators as they were, whatever the block draws."""
    state = capture_rng()
    try:
        yield
    finally:
        restore_rng(state)
