# SPDX-License-Identifier: Apache-2.0
"""Normalizing observations and actions by statistics of a dataset, and back, with LeRobot's formulas and eps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ulna.core.constants import ACTION
from ulna.core.errors import ProcessorError, nearest
from ulna.core.features import FeatureType, NormalizationMode, PolicyFeature
from ulna.core.pipeline import PipelineFeatures, ProcessorStep
from ulna.core.types import EnvTransition, TransitionKey

__all__ = ["NormalizerProcessorStep", "UnnormalizerProcessorStep", "check_stats"]

logger = logging.getLogger(__name__)

Stats = Mapping[str, Mapping[str, Any]]
Formula = Callable[[Tensor, NormalizationMode, dict[str, Tensor]], Tensor]

_NEEDS: dict[NormalizationMode, tuple[str, ...]] = {
    NormalizationMode.MEAN_STD: ("mean", "std"),
    NormalizationMode.MIN_MAX: ("min", "max"),
    NormalizationMode.QUANTILES: ("q01", "q99"),
    NormalizationMode.QUANTILE10: ("q10", "q90"),
    NormalizationMode.IDENTITY: (),
}


def check_stats(
    features: Mapping[str, PolicyFeature], norm_map: Mapping[FeatureType, NormalizationMode], stats: Stats
) -> None:
    """Check before training that every feature to be normalized has the statistics it needs.

    Args:
        features: Key to feature.
        norm_map: Feature type to mode.
        stats: Key to statistic to array.

    Raises:
        ProcessorError: Statistics are missing; keys, what is missing and the nearest key there is are all named.
    """
    problems = []
    for key, feature in features.items():
        needed = _NEEDS[norm_map.get(feature.type, NormalizationMode.IDENTITY)]
        if not needed:
            continue
        if key not in stats:
            near = nearest(key, list(stats))
            problems.append(f"{key}: no statistics" + (f" (nearest key: {near})" if near else ""))
        elif missing := [name for name in needed if name not in stats[key]]:
            problems.append(f"{key}: no {', '.join(missing)}")
    if problems:
        raise ProcessorError(
            "Statistics are missing: " + "; ".join(problems) + f". Keys with statistics: {', '.join(stats) or 'none'}.",
            hint="Record or recompute the statistics of the dataset, or map the camera names with --rename_map.",
        )


class _StatisticsStep(ProcessorStep):
    """What both directions share: features, modes, and statistics as tensors on the device of what they are applied to.

    Args:
        features: Key to feature, or to its JSON form.
        norm_map: Feature type to mode.
        stats: Key to statistic to array.
        device: Where the statistics start.
        dtype: Unused; kept because saved forms may have it.
        eps: Added to the deviation, and put in place of an empty range.
        normalize_observation_keys: Only these observation keys, when given.
    """

    _tells_constants: ClassVar[bool] = True  # once a policy is enough: its other step has the same statistics

    def __init__(
        self,
        features: Mapping[str, Any],
        norm_map: Mapping[Any, Any],
        stats: Stats | None = None,
        *,
        device: str | None = None,
        dtype: Any = None,
        eps: float = 1e-8,
        normalize_observation_keys: Collection[str] | None = None,
    ) -> None:
        self.features = {k: f if isinstance(f, PolicyFeature) else PolicyFeature(**f) for k, f in features.items()}
        self.norm_map = {FeatureType(k): NormalizationMode(m) for k, m in norm_map.items()}
        self.eps = eps
        self.normalize_observation_keys = (
            None if normalize_observation_keys is None else set(normalize_observation_keys)
        )
        self._stats: dict[str, dict[str, Tensor]] = {}
        self._cache: dict[tuple[str, torch.device, torch.dtype], dict[str, Tensor]] = {}
        self._take_stats(stats or {}, device)

    def _take_stats(self, stats: Stats, device: str | None = None) -> None:
        self._cache.clear()
        self._stats = {
            key: {name: self._as_tensor(key, value).to(device or "cpu") for name, value in values.items()}
            for key, values in stats.items()
        }
        if self._tells_constants:
            self._warn_about_constants()

    def _as_tensor(self, key: str, value: Any) -> Tensor:
        tensor = torch.as_tensor(np.asarray(value) if not isinstance(value, Tensor) else value).to(torch.float32)
        feature = self.features.get(key)
        if feature is not None and feature.type is FeatureType.VISUAL and tensor.dim() == 1:
            return tensor.reshape(-1, 1, 1)
        return tensor

    def _warn_about_constants(self) -> None:
        for key, feature in self.features.items():
            mode = self.norm_map.get(feature.type, NormalizationMode.IDENTITY)
            names = _NEEDS[mode]
            values = self._stats.get(key, {})
            if not names or any(name not in values for name in names):
                continue
            spread = values["std"] if mode is NormalizationMode.MEAN_STD else values[names[1]] - values[names[0]]
            constant = (spread.flatten() == 0).nonzero().flatten().tolist()
            if constant:
                logger.warning("%s never changes in dimension(s) %s; they carry no information.", key, constant)

    @property
    def stats(self) -> dict[str, dict[str, Tensor]]:
        """Key to statistic to float32 tensor."""
        return self._stats

    def _for(self, key: str, like: Tensor) -> dict[str, Tensor]:
        mark = (key, like.device, like.dtype)
        if mark not in self._cache:
            self._cache[mark] = {n: t.to(device=like.device, dtype=like.dtype) for n, t in self._stats[key].items()}
        return self._cache[mark]

    def _apply(self, key: str, value: Any, formula: Formula) -> Any:
        feature = self.features.get(key)
        if feature is None or key not in self._stats or value is None:
            return value
        mode = self.norm_map.get(feature.type, NormalizationMode.IDENTITY)
        needed = _NEEDS[mode]
        if not needed:
            return value
        missing = [name for name in needed if name not in self._stats[key]]
        if missing:
            raise ProcessorError(
                f"{mode.value} normalization of {key} needs {' and '.join(needed)}; missing: {', '.join(missing)}.",
                hint="Recompute the statistics of the dataset, or choose another normalization mode.",
            )
        tensor = torch.as_tensor(value)
        if not tensor.is_floating_point():
            tensor = tensor.to(torch.float32)
        return formula(tensor, mode, self._for(key, tensor))

    def _convert(self, transition: EnvTransition, formula: Formula) -> EnvTransition:
        converted = dict(transition)
        observation = transition.get(TransitionKey.OBSERVATION)
        if observation:
            only = self.normalize_observation_keys
            converted[TransitionKey.OBSERVATION] = {
                k: self._apply(k, v, formula) if only is None or k in only else v for k, v in observation.items()
            }
        action = transition.get(TransitionKey.ACTION)
        if action is not None:
            if not isinstance(action, Tensor):
                raise ProcessorError(f"{self.registry_name} takes an action tensor, got {type(action).__name__}.")
            converted[TransitionKey.ACTION] = self._apply(ACTION, action, formula)
        return converted

    def get_config(self) -> dict[str, Any]:
        """Return features, modes and eps; the statistics are state."""
        config: dict[str, Any] = {
            "eps": self.eps,
            "features": {k: {"type": f.type.value, "shape": list(f.shape)} for k, f in self.features.items()},
            "norm_map": {k.value: m.value for k, m in self.norm_map.items()},
        }
        if self.normalize_observation_keys is not None:
            config["normalize_observation_keys"] = sorted(self.normalize_observation_keys)
        return config

    def state_dict(self) -> dict[str, Tensor]:
        """Return `key.statistic` to float32 tensor."""
        return {f"{key}.{name}": t.cpu() for key, values in self._stats.items() for name, t in values.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take saved statistics.

        Args:
            state: `key.statistic` to tensor.
        """
        stats: dict[str, dict[str, Any]] = {}
        for full, tensor in state.items():
            key, name = full.rsplit(".", 1)
            stats.setdefault(key, {})[name] = tensor
        self._take_stats(stats)

    def transform_features(self, features: PipelineFeatures) -> PipelineFeatures:
        """Return the features unchanged."""
        return features


class NormalizerProcessorStep(_StatisticsStep):
    """Normalizes observations and actions.

    MEAN_STD gives (x - mean) / (std + eps); MIN_MAX, QUANTILES and QUANTILE10 map their two values to -1 and 1, without
    clipping. A feature without any statistics passes unchanged.
    """

    registry_name: ClassVar[str] = "normalizer_processor"

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Normalize.

        Raises:
            ProcessorError: A statistic is missing, or the action is no tensor.
        """
        return self._convert(transition, self._forward)

    def _forward(self, x: Tensor, mode: NormalizationMode, stats: dict[str, Tensor]) -> Tensor:
        if mode is NormalizationMode.MEAN_STD:
            return (x - stats["mean"]) / (stats["std"] + self.eps)
        low, high = (stats[name] for name in _NEEDS[mode])
        return 2 * (x - low) / self._range(low, high) - 1

    def _range(self, low: Tensor, high: Tensor) -> Tensor:
        width = high - low
        return torch.where(width == 0, torch.full_like(width, self.eps), width)


class UnnormalizerProcessorStep(_StatisticsStep):
    """Takes normalization back. MEAN_STD gives x * std + mean (without eps, as in LeRobot)."""

    _tells_constants: ClassVar[bool] = False
    registry_name: ClassVar[str] = "unnormalizer_processor"

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Unnormalize.

        Raises:
            ProcessorError: A statistic is missing, or the action is no tensor.
        """
        return self._convert(transition, self._inverse)

    def _inverse(self, x: Tensor, mode: NormalizationMode, stats: dict[str, Tensor]) -> Tensor:
        if mode is NormalizationMode.MEAN_STD:
            return x * stats["std"] + stats["mean"]
        low, high = (stats[name] for name in _NEEDS[mode])
        width = high - low
        width = torch.where(width == 0, torch.full_like(width, self.eps), width)
        return (x + 1) / 2 * width + low
