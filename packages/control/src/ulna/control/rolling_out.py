# SPDX-License-Identifier: Apache-2.0
"""Rollout from settings: makes robot, policy and pipelines, and hands over to `rollouts`."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from ulna.control.policy_engine import PolicyNames
from ulna.control.recording import DatasetTarget, check_new, check_upload, open_dataset, push_dataset
from ulna.control.rollout_plan import RolloutResult, RolloutSettings
from ulna.control.rollouts import run_rollout
from ulna.control.runtime import Runtime
from ulna.core.constants import TRAIN_CONFIG_NAME
from ulna.core.errors import ConfigError, ConfigProblem, DatasetError
from ulna.core.factories import make_policy, make_pre_post_processors, make_robot_from_config
from ulna.core.policy_config import PreTrainedConfig
from ulna.core.robots import RobotConfig

__all__ = ["RolloutConfig", "rollout", "trained_names"]

logger = logging.getLogger(__name__)


class RolloutConfig(RolloutSettings):
    """Settings of `ulna rollout`."""

    robot: RobotConfig = Field(description="The robot that the policy drives.")
    policy: PreTrainedConfig = Field(description="The policy: --policy.path=FOLDER or a Hub repository.")
    task: str = Field("", description="What the robot shall do, in words.")
    device: str | None = Field(None, description="cpu, cuda, mps, ...; default: the best there is.")
    rename_map: dict[str, str] = Field(
        default_factory=dict, description="Key of the robot's data to key of the policy."
    )
    dataset: DatasetTarget | None = Field(None, description="Record the rollout; episodic strategy only.")

    @model_validator(mode="after")
    def _fits(self) -> RolloutConfig:
        problems = []
        if self.policy.pretrained_path is None:
            problems.append(ConfigProblem("policy.path", None, "is required: the folder of a trained policy"))
        if self.dataset is not None and self.strategy != "episodic":
            problems.append(ConfigProblem("dataset", self.dataset.repo_id, "recording needs --strategy=episodic"))
        if self.dataset is not None and not self.task:
            problems.append(ConfigProblem("task", "", "is stored with every recorded frame and must not be empty"))
        if problems:
            raise ConfigError(problems, title="rollout settings")
        return self


def rollout(
    config: RolloutConfig, runtime: Runtime | None = None, *, judge: Callable[[], bool] | None = None
) -> RolloutResult:
    """Load a policy and let it drive a robot.

    Args:
        config: Settings.
        runtime: Time, keys, stop and observers.
        judge: Called after every action; True ends the episode as a success.

    Returns:
        How every episode went.

    Raises:
        CheckpointError: The policy cannot be loaded.
        ConfigError: An upload is asked for without the Hub's client; nothing was connected.
        IncompatibleError: Policy and robot do not fit together; nothing was connected.
        DatasetError: The dataset to be written exists already.
        DeviceError: The hardware failed; torque has been released.
    """
    target = config.dataset
    if target is not None:
        check_upload(target)
        check_new(target)
    robot = make_robot_from_config(config.robot)
    path = config.policy.pretrained_path
    if config.device is not None:
        config.policy.device = config.device
    policy = make_policy(config.policy)
    policy.eval()
    overrides = {"device_processor": {"device": str(policy.device)}}
    before, after = make_pre_post_processors(config.policy, path, preprocessor_overrides=overrides)
    names = trained_names(path) if path is not None else None
    source = None if target is None else lambda: open_dataset(target, robot, config.fps)
    result = run_rollout(
        robot,
        policy,
        before,
        after,
        config,
        names=names,
        rename_map=config.rename_map,
        task=config.task,
        judge=judge,
        dataset=source,
        runtime=runtime,
    )
    if target is not None and target.push_to_hub and result.recorded:
        push_dataset(target)
    return result


def trained_names(path: Path) -> PolicyNames | None:
    """Find the order of a policy's vectors: the names in the dataset that its training settings speak of.

    Args:
        path: Folder of the checkpoint.

    Returns:
        The names; None when the checkpoint does not say, or the dataset is not on this machine.
    """
    file = path / TRAIN_CONFIG_NAME
    if not file.is_file():
        return None
    try:
        dataset: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")).get("dataset") or {}
        meta = _metadata(dataset)
    except (ValueError, OSError, DatasetError) as error:
        logger.info("The order of the policy's joints is taken from the robot: %s", error)
        return None
    names = PolicyNames.of_features(meta.features)
    return names if names.action else None


def _metadata(dataset: dict[str, Any]) -> Any:
    from ulna.data import LeRobotDatasetMetadata

    repo_id, root = dataset.get("repo_id"), dataset.get("root")
    if not isinstance(repo_id, str):
        raise DatasetError("the training settings name no dataset")
    return LeRobotDatasetMetadata(repo_id, root, local_only=True)
