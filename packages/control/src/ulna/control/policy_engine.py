# SPDX-License-Identifier: Apache-2.0
"""One action a call from a policy, everything mapped by name. torch is imported when an engine is made.

The chain: observation of the robot -> batch of one -> preprocessor -> `select_action` -> postprocessor -> action by
name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ulna.control.compatibility import IncompatibleError, check_action_names, check_names
from ulna.core.constants import ACTION, OBS_IMAGES, OBS_STATE, TASK
from ulna.core.errors import nearest
from ulna.core.features import FeatureSpecs
from ulna.core.robots import Robot

__all__ = ["ActionSource", "PolicyEngine", "PolicyNames"]

logger = logging.getLogger(__name__)


class ActionSource(Protocol):
    """Something that answers observations with actions; reset at the start of each episode."""

    def reset(self) -> None:
        """Forget the past episode."""
        ...

    def act(self, observation: Mapping[str, Any]) -> dict[str, float]:
        """Return the next action, by name."""
        ...


@dataclass(frozen=True)
class PolicyNames:
    """Names of the elements of a policy's vectors, in the order of its training data.

    Attributes:
        state: Elements of `observation.state`.
        action: Elements of `action`.
    """

    state: tuple[str, ...]
    action: tuple[str, ...]

    @classmethod
    def of_robot(cls, robot: Robot) -> PolicyNames:
        """Take the order in which the robot declares its features: right when it recorded the data.

        Args:
            robot: The robot.
        """
        observed = FeatureSpecs.of(robot.observation_features).only("scalar")
        return cls(tuple(observed), tuple(FeatureSpecs.of(robot.action_features).only("scalar")))

    @classmethod
    def of_features(cls, features: Mapping[str, Mapping[str, Any]]) -> PolicyNames:
        """Take the names that a dataset declares.

        Args:
            features: Its features.
        """
        from ulna.control.frames import element_names

        return cls(tuple(element_names(features.get(OBS_STATE, {}))), tuple(element_names(features.get(ACTION, {}))))


@dataclass(frozen=True)
class _Picture:
    camera: str
    key: str


def _way_out(missing: Sequence[str], spare: Sequence[str]) -> str:
    """Say how the robot can give what a policy lacks: a spare input of the same kind under its name, or a camera."""
    for key in missing:
        alike = [name for name in spare if name.startswith(OBS_IMAGES) == key.startswith(OBS_IMAGES)]
        if alike:
            return f"""Map the names: --rename_map='{{"{nearest(key, alike) or alike[0]}": "{key}"}}'"""
    cameras = [key.removeprefix(f"{OBS_IMAGES}.") for key in missing if key.startswith(f"{OBS_IMAGES}.")]
    if cameras:
        named = ", ".join(f"{name}: {{type: ...}}" for name in cameras)
        return f"Give the robot these cameras: --robot.cameras='{{{named}}}'"
    return "Use a policy that was trained on a robot like this one."


class PolicyEngine:
    """Runs a policy on a robot's observations, one call a tick, in the caller's thread.

    Made once a session; `reset` at the start of each episode empties the policy's queues.

    Args:
        policy: In evaluation mode, on its device.
        preprocessor: Batch to batch; None passes the batch on.
        postprocessor: Action tensor to action tensor; None passes it on.
        robot: Whose observations and actions they are.
        names: Order of the vectors' elements; default: as the robot declares them.
        task: What the robot shall do, in words.
        rename_map: Key of the robot's data to key of the policy, `{"observation.images.front":
            "observation.images.cam1"}`.

    Raises:
        IncompatibleError: Inputs of the policy that the robot does not have, or vectors of other sizes; the nearest
            names are given.
    """

    def __init__(
        self,
        policy: Any,
        preprocessor: Callable[[dict[str, Any]], dict[str, Any]] | None,
        postprocessor: Callable[[Any], Any] | None,
        robot: Robot,
        *,
        names: PolicyNames | None = None,
        task: str = "",
        rename_map: Mapping[str, str] | None = None,
    ) -> None:
        import torch

        self._torch = torch
        self.policy, self.preprocessor, self.postprocessor = policy, preprocessor, postprocessor
        self.names = names or PolicyNames.of_robot(robot)
        self._extra = {TASK: task, "robot_type": robot.robot_type}
        self._rename = dict(rename_map or {})
        self._inner = _saved_renames(preprocessor)
        self._state_key, self._pictures = self._match(robot)

    def _final(self, key: str) -> str:
        """Return the name under which the policy sees a key of the robot's data."""
        key = self._rename.get(key, key)
        return self._inner.get(key, key)

    def _match(self, robot: Robot) -> tuple[str | None, list[_Picture]]:
        specs = FeatureSpecs.of(robot.observation_features)
        cameras = {f"{OBS_IMAGES}.{name}": name for name in specs.only("image")}
        offered = {self._final(key): key for key in (OBS_STATE, *cameras)}
        inputs = dict(self.policy.config.input_features or {})
        missing = [key for key in inputs if key not in offered]
        if missing:
            near = {key: nearest(key, list(offered)) for key in missing}
            listed = ", ".join(f"{key}" + (f" (nearest: {hit})" if hit else "") for key, hit in near.items())
            spare = [key for final, key in offered.items() if final not in inputs]
            raise IncompatibleError(
                f"The policy needs inputs that the robot {robot.robot_type} does not give: {listed}. "
                f"The robot gives: {', '.join(offered.values())}.",
                missing=missing,
                unexpected=spare,
                hint=_way_out(missing, spare),
            )
        unused = [key for final, key in offered.items() if final not in inputs]
        if unused:
            logger.info("The policy does not look at %s.", ", ".join(unused))
        self._check_vectors(robot, inputs)
        pictures = [
            _Picture(cameras[k], self._rename.get(k, k)) for f, k in offered.items() if f in inputs and k in cameras
        ]
        for picture in pictures:
            self._warn_of_size(picture, specs[picture.camera].shape, inputs)
        state = offered.get(OBS_STATE) if self._final(OBS_STATE) in inputs else None
        return None if state is None else self._rename.get(OBS_STATE, OBS_STATE), pictures

    def _check_vectors(self, robot: Robot, inputs: Mapping[str, Any]) -> None:
        check_action_names(self.names.action, robot, offers="the policy")
        width = self.policy.config.output_features[ACTION].shape[0]
        if width != len(self.names.action):
            raise IncompatibleError(
                f"The policy gives {width} actions, but {len(self.names.action)} names are known: {self.names.action}."
            )
        state = inputs.get(self._final(OBS_STATE))
        if state is None:
            return
        check_names(self.names.state, robot.observation_features, needs="the policy", offers="the robot", extra_ok=True)
        if state.shape[0] != len(self.names.state):
            raise IncompatibleError(
                f"The policy takes a state of {state.shape[0]} numbers, but {len(self.names.state)} are named: "
                f"{', '.join(self.names.state)}."
            )

    def _warn_of_size(self, picture: _Picture, shape: Sequence[int], inputs: Mapping[str, Any]) -> None:
        wanted = tuple(inputs[self._inner.get(picture.key, picture.key)].shape)
        given = (shape[2], shape[0], shape[1])
        if wanted != given:
            logger.warning(
                "Camera %s gives pictures of shape %s, the policy was trained on %s.", picture.camera, given, wanted
            )

    def reset(self) -> None:
        """Forget the past episode: the policy's queues and whatever the pipelines remember."""
        for part in (self.policy, self.preprocessor, self.postprocessor):
            reset = getattr(part, "reset", None)
            if reset is not None:
                reset()

    def batch(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        """Make the policy's input, a batch of one.

        Args:
            observation: What the robot reported; pictures uint8 (H, W, C).

        Returns:
            Key to float32 tensor: vectors (1, N), pictures (1, C, H, W) in [0, 1]; `task` and `robot_type` as text.
        """
        torch = self._torch
        batch: dict[str, Any] = dict(self._extra)
        if self._state_key is not None:
            values = [float(observation[name]) for name in self.names.state]
            batch[self._state_key] = torch.tensor([values], dtype=torch.float32)
        for picture in self._pictures:
            pixels = torch.from_numpy(observation[picture.camera])
            batch[picture.key] = pixels.permute(2, 0, 1).unsqueeze(0).contiguous().to(torch.float32).div_(255)
        return batch

    def act(self, observation: Mapping[str, Any]) -> dict[str, float]:
        """Return the next action.

        Args:
            observation: What the robot reported.

        Returns:
            Action name to value, in the robot's units.
        """
        torch, batch = self._torch, self.batch(observation)
        device = self.policy.device
        with torch.inference_mode(), torch.autocast(device.type, enabled=bool(self.policy.config.use_amp)):
            if self.preprocessor is not None:
                batch = self.preprocessor(batch)
            else:
                batch = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in batch.items()}
            action = self.policy.select_action(batch)
            if self.postprocessor is not None:
                action = self.postprocessor(action)
        values = action.detach().to("cpu", torch.float32).reshape(-1).tolist()
        return dict(zip(self.names.action, values, strict=True))


def _saved_renames(preprocessor: Any) -> dict[str, str]:
    """Return the renaming that a preprocessor does itself, from its training."""
    renames: dict[str, str] = {}
    for step in getattr(preprocessor, "steps", ()):
        renames.update(getattr(step, "rename_map", None) or {})
    return renames
