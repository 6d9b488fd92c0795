# SPDX-License-Identifier: Apache-2.0
"""Names for the things that flow between robots, pipelines, policies and environments."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import torch

__all__ = ["EnvAction", "EnvTransition", "PolicyAction", "RobotAction", "RobotObservation", "TransitionKey"]


class TransitionKey(str, Enum):
    """Keys of a transition. Values are the strings in LeRobot's files."""

    OBSERVATION = "observation"
    ACTION = "action"
    REWARD = "reward"
    DONE = "done"
    TRUNCATED = "truncated"
    INFO = "info"
    COMPLEMENTARY_DATA = "complementary_data"


EnvTransition: TypeAlias = dict[TransitionKey, Any]
RobotAction: TypeAlias = dict[str, Any]
RobotObservation: TypeAlias = dict[str, Any]
PolicyAction: TypeAlias = "torch.Tensor"
EnvAction: TypeAlias = "np.ndarray[Any, Any]"
