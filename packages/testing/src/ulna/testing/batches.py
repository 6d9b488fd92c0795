# SPDX-License-Identifier: Apache-2.0
"""Random batches, statistics and comparisons for the checks of what learns. Its functions need torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ulna.core.constants import ACTION, TASK
from ulna.core.features import FeatureType, PolicyFeature
from ulna.core.policy_config import PreTrainedConfig

__all__ = ["copied", "differences", "observation", "statistics", "training", "transition_batch"]


def _value(feature: PolicyFeature, lead: tuple[int, ...], random: Any) -> Any:
    import torch

    if feature.type is FeatureType.VISUAL:
        return torch.rand(*lead, *feature.shape, generator=random)
    return torch.randn(*lead, *feature.shape, generator=random)


def _generator(seed: int) -> Any:
    import torch

    return torch.Generator().manual_seed(seed)


def observation(config: PreTrainedConfig, size: int, seed: int = 0) -> dict[str, Any]:
    """Make a preprocessed observation for the inputs of a policy.

    Args:
        config: Settings with features.
        size: Batch size.
        seed: Same seed, same values.

    Returns:
        Key to tensor (size, ...); pictures in [0, 1]; and a task for each sample.
    """
    random = _generator(seed)
    inputs = config.input_features or {}
    return {**{k: _value(f, (size,), random) for k, f in inputs.items()}, TASK: ["pick up the cube"] * size}


def training(config: PreTrainedConfig, size: int, seed: int, now: Mapping[str, Any]) -> dict[str, Any]:
    """Add to an observation what training needs: time axes, actions, rewards and padding masks.

    Args:
        config: Settings with features.
        size: Batch size.
        seed: Same seed, same values.
        now: The observation.

    Returns:
        Key to tensor; nothing is padded.
    """
    import torch

    random = _generator(seed + 1000)
    batch = dict(now)
    steps = config.observation_delta_indices
    for key in (config.input_features or {}) if steps is not None else ():
        batch[key] = torch.stack([batch[key]] * len(steps or ()), dim=1)
        batch[f"{key}_is_pad"] = torch.zeros(size, len(steps or ()), dtype=torch.bool)
    ahead = config.action_delta_indices
    lead = (size,) if ahead is None else (size, len(ahead))
    batch |= {k: _value(f, lead, random) for k, f in (config.output_features or {}).items()}
    if ahead is not None:
        batch[f"{ACTION}_is_pad"] = torch.zeros(lead, dtype=torch.bool)
    rewards = config.reward_delta_indices
    if rewards is not None:
        batch["next.reward"] = torch.randn(size, len(rewards), generator=random)
        batch["next.reward_is_pad"] = torch.zeros(size, len(rewards), dtype=torch.bool)
    return batch


def statistics(config: PreTrainedConfig) -> dict[str, dict[str, Any]]:
    """Make the statistics of a dataset with the features of a policy.

    Args:
        config: Settings with features.

    Returns:
        Key to statistic to tensor; those of pictures have the shape (C, 1, 1).
    """
    import torch

    found = {}
    for key, feature in {**(config.input_features or {}), **(config.output_features or {})}.items():
        shape = (feature.shape[0], 1, 1) if feature.type is FeatureType.VISUAL else feature.shape
        base = torch.linspace(0.5, 1.5, max(1, int(torch.tensor(shape).prod()))).reshape(shape)
        scales = {"min": -2.0, "max": 2.0, "q01": -1.9, "q10": -1.5, "q50": 0.1, "q90": 1.5, "q99": 1.9}
        found[key] = {name: base * scale for name, scale in scales.items()}
        found[key] |= {"mean": base * 0.1, "std": base, "count": torch.tensor([100])}
    return found


def transition_batch(config: PreTrainedConfig, size: int, seed: int = 0) -> dict[str, Any]:
    """Make a batch of transitions as replay buffers give them.

    Args:
        config: Settings of the policy.
        size: Number of transitions.
        seed: Same seed, same values.

    Returns:
        `state`, `action`, `reward`, `next_state`, `done`, `truncated` and `complementary_info`; actions in [-1, 1].
    """
    import torch

    random = _generator(seed)
    inputs, action = config.input_features or {}, config.action_feature
    shape = action.shape if action else (1,)
    return {
        "state": {k: _value(f, (size,), random) for k, f in inputs.items()},
        ACTION: torch.rand(size, *shape, generator=random) * 2 - 1,
        "reward": torch.randn(size, generator=random),
        "next_state": {k: _value(f, (size,), random) for k, f in inputs.items()},
        "done": torch.zeros(size),
        "truncated": torch.zeros(size),
        "complementary_info": None,
    }


def copied(data: Any) -> Any:
    """Copy nested data; tensors and arrays too.

    Args:
        data: Mappings, lists, tensors, arrays and plain values.

    Returns:
        The copy.
    """
    if isinstance(data, Mapping):
        return {key: copied(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(copied(value) for value in data)
    if hasattr(data, "clone"):
        return data.clone()
    return data.copy() if hasattr(data, "copy") else data


def differences(one: Any, other: Any, tolerance: float, path: str = "") -> list[str]:
    """Tell where nested data differ.

    Args:
        one: Nested data.
        other: Nested data.
        tolerance: Largest difference of numbers.
        path: Where they stand, for the answer.

    Returns:
        Paths of what differs, `observation.state`; those of keys that only one has among them.
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        pairs = {getattr(k, "value", k): (k in one and k in other, k) for k in dict.fromkeys([*one, *other])}
        shared = [(name, one[k], other[k]) for name, (both, k) in pairs.items() if both]
        found = [_joined(path, name) for name, (both, _) in pairs.items() if not both]
    elif isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and len(one) == len(other):
        shared, found = [(i, a, b) for i, (a, b) in enumerate(zip(one, other, strict=True))], []
    else:
        return [] if _equal(one, other, tolerance) else [path or "the value"]
    for name, a, b in shared:
        found += differences(a, b, tolerance, _joined(path, name))
    return found


def _joined(path: str, name: Any) -> str:
    return f"{path}.{name}" if path else str(name)


def _equal(one: Any, other: Any, tolerance: float) -> bool:
    if hasattr(one, "shape") and hasattr(other, "shape"):
        import numpy as np

        a, b = (np.asarray(x.detach().cpu() if hasattr(x, "detach") else x) for x in (one, other))
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if a.dtype.kind not in "fc":
            return bool(np.array_equal(a, b))
        return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True))
    return type(one) is type(other) and bool(one == other)
