# SPDX-License-Identifier: Apache-2.0
"""Fakes in the plugin registry, for the length of a block."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module

from ulna.core.plugins import Registry, registry, use_registry

__all__ = ["FAKES", "fake_plugins", "isolated_registry"]

FAKES: dict[tuple[str, str], str] = {
    ("robots", "fake_robot"): "configs:FakeRobotConfig",
    ("teleoperators", "fake_teleop"): "configs:FakeTeleoperatorConfig",
    ("cameras", "fake_camera"): "configs:FakeCameraConfig",
    ("motors", "fake_motors"): "configs:FakeMotorsBusConfig",
    ("envs", "fake_env"): "configs:FakeEnvConfig",
    ("policies", "fake_policy"): "learning_configs:FakePolicyConfig",
    ("algorithms", "fake_algorithm"): "learning_configs:FakeAlgorithmConfig",
    ("optimizers", "fake_adam"): "learning_configs:FakeOptimizerConfig",
    ("processors", "fake_scale"): "processing:FakeScaleStep",
}
"""Kind and type to the class, below `ulna.testing.fakes`."""

_NEEDS_TORCH = ("processing",)


@contextmanager
def isolated_registry() -> Iterator[Registry]:
    """Make a registry that sees no installed plugin the process's own for the block.

    Yields:
        The registry.
    """
    with use_registry(Registry(lambda: (), environ={})) as made:
        yield made


@contextmanager
def fake_plugins(reg: Registry | None = None) -> Iterator[Registry]:
    """Register every fake for the block; those that need torch only where it is installed.

    Args:
        reg: Where; default: the registry of this process.

    Yields:
        The registry.
    """
    target = reg or registry()
    has_torch = importlib.util.find_spec("torch") is not None
    with ExitStack() as stack:
        for (kind, type_name), path in FAKES.items():
            module, _, attribute = path.partition(":")
            if module in _NEEDS_TORCH and not has_torch:
                continue
            found = getattr(import_module(f"ulna.testing.fakes.{module}"), attribute)
            stack.callback(target.register(kind, type_name, found, distribution="ulna-testing"))
        yield target
