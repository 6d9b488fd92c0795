# SPDX-License-Identifier: Apache-2.0
"""Conversions between batches, actions, observations and transitions. Custom keys survive the way there and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ulna.core.constants import ACTION, DONE, INFO, OBS_PREFIX, REWARD, TRUNCATED
from ulna.core.errors import ProcessorError
from ulna.core.types import EnvTransition, TransitionKey

__all__ = [
    "batch_to_transition",
    "create_transition",
    "observation_to_transition",
    "policy_action_to_transition",
    "robot_action_observation_to_transition",
    "robot_action_to_transition",
    "transition_to_batch",
    "transition_to_observation",
    "transition_to_policy_action",
    "transition_to_robot_action",
]


def create_transition(
    observation: dict[str, Any] | None = None,
    action: Any = None,
    reward: Any = 0.0,
    done: Any = False,
    truncated: Any = False,
    info: dict[str, Any] | None = None,
    complementary_data: dict[str, Any] | None = None,
) -> EnvTransition:
    """Make a transition with all seven keys.

    Args:
        observation: Key to value.
        action: A tensor, array or mapping.
        reward: A number or tensor.
        done: Whether the episode ended.
        truncated: Whether it was cut off.
        info: Anything.
        complementary_data: What belongs to the sample and to nothing else: task, indices, padding masks, custom keys.

    Returns:
        The transition.
    """
    return {
        TransitionKey.OBSERVATION: observation,
        TransitionKey.ACTION: action,
        TransitionKey.REWARD: reward,
        TransitionKey.DONE: done,
        TransitionKey.TRUNCATED: truncated,
        TransitionKey.INFO: {} if info is None else info,
        TransitionKey.COMPLEMENTARY_DATA: {} if complementary_data is None else complementary_data,
    }


_FIXED = {ACTION, REWARD, DONE, TRUNCATED, INFO}


def batch_to_transition(batch: Mapping[str, Any]) -> EnvTransition:
    """Sort the keys of a batch into a transition.

    Keys that start with `observation.` become the observation (their padding masks do not); every key that is nothing
    else is complementary data.

    Args:
        batch: Key to value.

    Returns:
        The transition.

    Raises:
        ProcessorError: `batch` is no mapping.
    """
    if not isinstance(batch, Mapping):
        raise ProcessorError(f"A batch is a mapping, got {type(batch).__name__}.")
    observation, extra = {}, {}
    for key, value in batch.items():
        if key in _FIXED:
            continue
        if key.startswith(OBS_PREFIX) and "_is_pad" not in key:
            observation[key] = value
        else:
            extra[key] = value
    return create_transition(
        observation=observation or None,
        action=batch.get(ACTION),
        reward=batch.get(REWARD, 0.0),
        done=batch.get(DONE, False),
        truncated=batch.get(TRUNCATED, False),
        info=batch.get(INFO),
        complementary_data=extra,
    )


def transition_to_batch(transition: EnvTransition) -> dict[str, Any]:
    """Lay a transition out as a batch.

    Args:
        transition: The transition.

    Returns:
        `action`, `next.reward`, `next.done`, `next.truncated`, `info`, observation and complementary data, flat.
    """
    batch: dict[str, Any] = {
        ACTION: transition.get(TransitionKey.ACTION),
        REWARD: transition.get(TransitionKey.REWARD, 0.0),
        DONE: transition.get(TransitionKey.DONE, False),
        TRUNCATED: transition.get(TransitionKey.TRUNCATED, False),
        INFO: transition.get(TransitionKey.INFO, {}),
    }
    batch.update(transition.get(TransitionKey.COMPLEMENTARY_DATA) or {})
    batch.update(transition.get(TransitionKey.OBSERVATION) or {})
    return batch


def policy_action_to_transition(action: Any) -> EnvTransition:
    """Wrap a policy's action tensor (B, A)."""
    return create_transition(action=action)


def transition_to_policy_action(transition: EnvTransition) -> Any:
    """Take the action tensor out."""
    return transition[TransitionKey.ACTION]


def robot_action_to_transition(action: Mapping[str, Any]) -> EnvTransition:
    """Wrap a robot's action, key to number."""
    return create_transition(action=dict(action))


def transition_to_robot_action(transition: EnvTransition) -> dict[str, Any]:
    """Take the robot's action out, key to number.

    Raises:
        ProcessorError: The action is no mapping.
    """
    action = transition[TransitionKey.ACTION]
    if not isinstance(action, Mapping):
        raise ProcessorError(
            f"Expected a robot action (a mapping) at the end of the pipeline, got {type(action).__name__}."
        )
    return dict(action)


def observation_to_transition(observation: Mapping[str, Any]) -> EnvTransition:
    """Wrap a robot's observation."""
    return create_transition(observation=dict(observation))


def transition_to_observation(transition: EnvTransition) -> dict[str, Any]:
    """Take the observation out."""
    return dict(transition[TransitionKey.OBSERVATION] or {})


def robot_action_observation_to_transition(pair: tuple[Mapping[str, Any], Mapping[str, Any]]) -> EnvTransition:
    """Wrap a robot's action together with the observation it was made from."""
    action, observation = pair
    return create_transition(action=dict(action), observation=dict(observation))
