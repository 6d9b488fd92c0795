# SPDX-License-Identifier: Apache-2.0
"""The kinds of plugin: their entry-point groups, API levels and bases. A new kind is one more line here."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GROUP_PREFIX", "KINDS", "KindInfo"]

GROUP_PREFIX = "ulna."


@dataclass(frozen=True)
class KindInfo:
    """What core knows about one kind of plugin.

    Attributes:
        name: Plural name, `robots`; the entry-point group is `ulna.robots`.
        title: One plugin of this kind in words, `robot`.
        base: `module:Class` that the entry point's object derives from; empty when it is not a class.
        config: Whether the entry point names a `PluginConfig`.
        api_level: Version of the kind's contract. Core supports this one and the one before.
    """

    name: str
    title: str
    base: str
    config: bool = True
    api_level: int = 1

    @property
    def group(self) -> str:
        """The entry-point group."""
        return GROUP_PREFIX + self.name

    @property
    def supported_levels(self) -> tuple[int, ...]:
        """API levels that core works with, the newest first."""
        return tuple(level for level in (self.api_level, self.api_level - 1) if level > 0)


KINDS: dict[str, KindInfo] = {
    info.name: info
    for info in (
        KindInfo("robots", "robot", "ulna.core.robots:RobotConfig"),
        KindInfo("teleoperators", "teleoperator", "ulna.core.teleoperators:TeleoperatorConfig"),
        KindInfo("cameras", "camera", "ulna.core.cameras:CameraConfig"),
        KindInfo("motors", "motors bus", "ulna.core.motors:MotorsBusConfig"),
        KindInfo("policies", "policy", "ulna.core.policy_config:PreTrainedConfig"),
        KindInfo("rewards", "reward model", "ulna.core.config:PluginConfig"),
        KindInfo("algorithms", "RL algorithm", "ulna.core.algorithm_config:RLAlgorithmConfig"),
        KindInfo("envs", "environment", "ulna.core.envs:EnvConfig"),
        KindInfo("processors", "processor step", "ulna.core.pipeline:ProcessorStep", config=False),
        KindInfo("optimizers", "optimizer", "ulna.core.optim:OptimizerConfig"),
        KindInfo("schedulers", "learning-rate scheduler", "ulna.core.optim:LRSchedulerConfig"),
        KindInfo("trackers", "experiment tracker", "ulna.core.trackers:TrackerConfig"),
        KindInfo("commands", "command", "", config=False),
        KindInfo("hooks", "hook", "", config=False),
    )
}
