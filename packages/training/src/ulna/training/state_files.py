# SPDX-License-Identifier: Apache-2.0
"""State of optimizers and schedules in a checkpoint, in LeRobot's files: tensors as safetensors, settings as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ulna.core.errors import CheckpointError
from ulna.core.files import write_json
from ulna.core.tensors import read_tensors, write_tensors

__all__ = ["Optimizers", "load_optimizer", "load_scheduler", "read_json", "save_optimizer", "save_scheduler"]

Optimizers = Optimizer | dict[str, Optimizer]

OPTIMIZER_STATE = "optimizer_state.safetensors"
OPTIMIZER_GROUPS = "optimizer_param_groups.json"
SCHEDULER_STATE = "scheduler_state.json"

_KERNELS = ("foreach", "fused")
"""Group settings that choose a kernel of this machine: written as null, and kept when a state is loaded."""


def save_optimizer(optimizer: Optimizers, folder: Path) -> None:
    """Write the state of an optimizer, or of several into one folder each.

    Args:
        optimizer: One, or several by name.
        folder: Created when missing.
    """
    if isinstance(optimizer, Mapping):
        for name, one in optimizer.items():
            save_optimizer(one, folder / name)
        return
    state = optimizer.state_dict()
    tensors = {
        f"state/{index}/{name}": value if torch.is_tensor(value) else torch.tensor(value)
        for index, values in state["state"].items()
        for name, value in values.items()
        if value is not None
    }
    groups = [{k: None if k in _KERNELS else v for k, v in group.items()} for group in state["param_groups"]]
    write_tensors(folder / OPTIMIZER_STATE, tensors)
    write_json(folder / OPTIMIZER_GROUPS, groups)


def load_optimizer(optimizer: Optimizers, folder: Path) -> None:
    """Give an optimizer, or several, the state in a folder.

    Args:
        optimizer: One, or several by name.
        folder: What `save_optimizer` or LeRobot wrote.

    Raises:
        CheckpointError: A file is missing or damaged, or the state belongs to other parameters.
    """
    if isinstance(optimizer, Mapping):
        for name, one in optimizer.items():
            load_optimizer(one, folder / name)
        return
    state: dict[int, dict[str, Any]] = {}
    for key, tensor in read_tensors(folder / OPTIMIZER_STATE).items():
        _, index, name = key.split("/", 2)
        state.setdefault(int(index), {})[name] = tensor
    groups = read_json(folder / OPTIMIZER_GROUPS)
    _check_groups(optimizer, groups, folder)
    for saved, own in zip(groups, optimizer.param_groups, strict=True):
        saved.update({name: own[name] for name in _KERNELS if name in own})
        if "betas" in saved:
            saved["betas"] = tuple(saved["betas"])
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _check_groups(optimizer: Optimizer, groups: list[dict[str, Any]], folder: Path) -> None:
    saved = [len(group["params"]) for group in groups]
    own = [len(group["params"]) for group in optimizer.param_groups]
    if saved != own:
        raise CheckpointError(
            f"{folder / OPTIMIZER_GROUPS} has groups of {saved} parameters, the optimizer has {own}.",
            hint="The run was started with another policy or optimizer; resume it with its own settings.",
        )


def save_scheduler(scheduler: LRScheduler, folder: Path) -> None:
    """Write the state of a schedule.

    Args:
        scheduler: The schedule.
        folder: Created when missing.
    """
    write_json(folder / SCHEDULER_STATE, scheduler.state_dict())


def load_scheduler(scheduler: LRScheduler, folder: Path) -> None:
    """Give a schedule the state in a folder.

    Args:
        scheduler: The schedule.
        folder: What `save_scheduler` or LeRobot wrote.

    Raises:
        CheckpointError: The file is missing or damaged.
    """
    scheduler.load_state_dict(read_json(folder / SCHEDULER_STATE))


def read_json(path: Path) -> Any:
    """Read a JSON file of a checkpoint.

    Args:
        path: The file.

    Returns:
        Its content.

    Raises:
        CheckpointError: It is missing or damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
