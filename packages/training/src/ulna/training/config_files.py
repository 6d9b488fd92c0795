# SPDX-License-Identifier: Apache-2.0
"""Training settings on disk: LeRobot's `train_config.json`, read with tolerance, written as LeRobot does."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from ulna.core.constants import PRETRAINED_MODEL_DIR, TRAIN_CONFIG_NAME
from ulna.core.errors import CheckpointError, ConfigError, ConfigProblem
from ulna.core.files import write_json
from ulna.core.options.schema import chosen_class, model_of
from ulna.core.options.sources import plant, read_file

if TYPE_CHECKING:
    from ulna.training.config import TrainPipelineConfig

__all__ = ["OWN_FIELDS", "read_train_settings", "save_train_config", "split_own_fields", "train_config_path"]

_log = logging.getLogger(__name__)

OWN_FIELDS = ("dataset.cache", "dataset.cache_limit_gb", "mixed_precision", "keep_last")
"""Settings that LeRobot does not have; they are kept beside the step of a checkpoint, and its file stays readable."""

OWN_KEY = "ulna"


def train_config_path(source: Path | str) -> Path:
    """Return the settings file that somebody means.

    Args:
        source: A file; a run, checkpoint or `pretrained_model` folder.

    Returns:
        A file.

    Raises:
        CheckpointError: A folder is given and there is no `train_config.json` where one would be.
    """
    from ulna.training.checkpoints import find_checkpoint

    path = Path(source).expanduser()
    if not path.is_dir():
        return path
    for candidate in (path / TRAIN_CONFIG_NAME, path / PRETRAINED_MODEL_DIR / TRAIN_CONFIG_NAME):
        if candidate.is_file():
            return candidate
    found = find_checkpoint(path).model / TRAIN_CONFIG_NAME
    if not found.is_file():
        raise CheckpointError(f"{found} does not exist.", hint="Name the file with the settings itself.")
    return found


def read_train_settings(
    cls: type[TrainPipelineConfig], source: Path | str, wanted_by: str = "config"
) -> dict[str, Any]:
    """Read training settings from a file, or from the checkpoint in a folder.

    A saved `train_config.json` may have fields of another version: they are warned about and left out. Optimizer and
    schedule that came from the policy's preset are left out too, so that they follow the policy's settings. In any
    other file unknown names stay, to be refused.

    Args:
        cls: Class of the settings.
        source: A YAML or JSON file; a run, checkpoint or `pretrained_model` folder.
        wanted_by: The setting that names it, for messages.

    Returns:
        Nested settings; `checkpoint_path` is set when they come from a checkpoint.

    Raises:
        ConfigError: The file cannot be read.
    """
    from ulna.training.checkpoints import Checkpoint

    try:
        path = train_config_path(source)
    except CheckpointError as error:
        raise ConfigError([ConfigProblem(wanted_by, str(source), error.message)], hint=error.hint) from error
    data = read_file(path, wanted_by=wanted_by)
    if path.name != TRAIN_CONFIG_NAME:
        return data
    if data.get("use_policy_training_preset", True):
        data = {key: value for key, value in data.items() if key not in ("optimizer", "scheduler")}
    unknown: list[str] = []
    data = _known(cls, data, "", unknown)
    if unknown:
        _log.warning("%s: fields of another version are left out: %s", path, ", ".join(unknown))
    data.update(resume=False, checkpoint_path=None)
    checkpoint = Checkpoint(path.resolve().parent.parent)
    if path.parent.name == PRETRAINED_MODEL_DIR and checkpoint.complete:
        data["checkpoint_path"] = str(checkpoint.path)
        for dotted, value in checkpoint.training_step().get(OWN_KEY, {}).get("settings", {}).items():
            _set(data, dotted, value)
    return data


def _known(cls: type[BaseModel], data: Mapping[str, Any], prefix: str, unknown: list[str]) -> dict[str, Any]:
    """Return the known settings of a section, and those below it; note the others."""
    kept: dict[str, Any] = {}
    for key, value in data.items():
        info = cls.model_fields.get(key)
        if info is None:
            unknown.append(f"{prefix}{key}")
            continue
        section = model_of(info.annotation)
        if section is not None and isinstance(value, Mapping):
            section = chosen_class(section, plant(value, ""))
            value = _known(section, value, f"{prefix}{key}.", unknown)
        kept[key] = value
    return kept


def _set(data: dict[str, Any], dotted: str, value: Any) -> None:
    if dotted not in OWN_FIELDS:
        return
    *above, name = dotted.split(".")
    for part in above:
        data = data.setdefault(part, {})
    data[name] = value


def split_own_fields(data: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separate the settings that LeRobot does not have.

    Args:
        data: All settings. Not changed.

    Returns:
        LeRobot's settings, nested, and our own by dotted path.
    """
    theirs: dict[str, Any] = {k: dict(v) if isinstance(v, dict) else v for k, v in data.items()}
    own = {}
    for dotted in OWN_FIELDS:
        section, (*above, name) = theirs, dotted.split(".")
        for part in above:
            section = section[part]
        own[dotted] = section.pop(name)
    return theirs, own


def save_train_config(config: TrainPipelineConfig, folder: Path) -> dict[str, Any]:
    """Write `train_config.json` as LeRobot would.

    Args:
        config: Resolved settings.
        folder: Where to.

    Returns:
        The settings that LeRobot does not have, by dotted path, to be kept elsewhere.
    """
    theirs, own = split_own_fields({**config.to_dict(), "resume": False, "checkpoint_path": None})
    write_json(folder / TRAIN_CONFIG_NAME, theirs)
    return own
