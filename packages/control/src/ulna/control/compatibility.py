# SPDX-License-Identifier: Apache-2.0
"""Whether leader, policy or dataset fit a robot, told before anything moves. By name only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ulna.core.errors import ControlError, nearest
from ulna.core.features import FeatureSpecs

__all__ = ["IncompatibleError", "check_action_names", "check_names", "check_pair"]


class IncompatibleError(ControlError):
    """Two parts of a session do not fit together; nothing was moved.

    Args:
        message: Which parts, and how they differ.
        missing: Names needed and not offered.
        unexpected: Names offered and not taken.
        hint: What to do next.
    """

    def __init__(
        self, message: str, *, missing: Iterable[str] = (), unexpected: Iterable[str] = (), hint: str | None = None
    ) -> None:
        self.missing, self.unexpected = tuple(missing), tuple(unexpected)
        super().__init__(message, hint=hint)


def check_names(
    needed: Iterable[str],
    offered: Iterable[str],
    *,
    needs: str,
    offers: str,
    partial: bool = False,
    extra_ok: bool = False,
    hint: str | None = None,
) -> None:
    """Compare two sets of names.

    Args:
        needed: Names that one side takes.
        offered: Names that the other side gives.
        needs: The taking side, for the message.
        offers: The giving side, for the message.
        partial: Whether needed names may be absent, as long as one is there.
        extra_ok: Whether names that nobody takes are fine.
        hint: What to do next.

    Raises:
        IncompatibleError: They do not fit; every name is listed, with the nearest one.
    """
    needed, offered = list(needed), list(offered)
    missing = [name for name in needed if name not in offered]
    unexpected = [name for name in offered if name not in needed]
    if partial and len(missing) < len(needed):
        missing = []
    if extra_ok and len(unexpected) < len(offered):
        unexpected = []
    if not (missing or unexpected):
        return
    parts = []
    if missing:
        parts.append(f"{offers} does not give {_listed(missing, offered)}, which {needs} needs")
    if unexpected:
        parts.append(f"{needs} does not take {_listed(unexpected, needed)}, which {offers} gives")
    raise IncompatibleError(
        f"{offers} and {needs} do not fit together: {'; '.join(parts)}.",
        missing=missing,
        unexpected=unexpected,
        hint=hint
        or f"{needs} takes: {', '.join(needed) or 'nothing'}. {offers} gives: {', '.join(offered) or 'nothing'}.",
    )


def _listed(names: list[str], candidates: list[str]) -> str:
    near = {name: nearest(name, candidates) for name in names}
    return ", ".join(f"{name!r}" + (f" (nearest: {hit!r})" if hit else "") for name, hit in near.items())


def check_pair(teleop: Any, robot: Any) -> None:
    """Refuse a teleoperator whose actions the robot cannot take, before anything is connected.

    Args:
        teleop: The teleoperator.
        robot: The robot. One with `partial_actions` may be driven in part, by at least one of its keys.

    Raises:
        IncompatibleError: Names or kinds of features differ.
    """
    takes, gives = FeatureSpecs.of(robot.action_features), FeatureSpecs.of(teleop.action_features)
    needs, offers = f"the robot {_title(robot)}", f"the teleoperator {_title(teleop)}"
    check_names(takes, gives, needs=needs, offers=offers, partial=getattr(robot, "partial_actions", False))
    wrong = [key for key in gives if gives[key].plain != takes[key].plain]
    if wrong:
        lines = "; ".join(
            f"{key}: {offers} gives {gives[key].plain}, {needs} takes {takes[key].plain}" for key in wrong
        )
        raise IncompatibleError(f"{offers} and {needs} do not fit together: {lines}.", unexpected=wrong)
    units = [k for k in gives if gives[k].unit and takes[k].unit and gives[k].unit != takes[k].unit]
    if units:
        lines = "; ".join(f"{k}: {gives[k].unit} and {takes[k].unit}" for k in units)
        raise IncompatibleError(
            f"{offers} and {needs} use different units: {lines}.",
            unexpected=units,
            hint="Give both the same setting, --robot.use_degrees and --teleop.use_degrees for the SO arms.",
        )


def check_action_names(names: Iterable[str], robot: Any, *, offers: str, hint: str | None = None) -> None:
    """Refuse actions of a dataset or policy whose names the robot cannot take.

    Args:
        names: Names of the actions.
        robot: The robot.
        offers: Who gives them, for the message.
        hint: What to do next.

    Raises:
        IncompatibleError: The names differ.
    """
    partial = getattr(robot, "partial_actions", False)
    check_names(
        robot.action_features, names, needs=f"the robot {_title(robot)}", offers=offers, partial=partial, hint=hint
    )


def _title(device: Any) -> str:
    config: Mapping[str, Any] | Any = getattr(device, "config", None)
    kind = getattr(config, "type", "") or type(device).__name__
    name = getattr(device, "id", None)
    return f"{kind} {name!r}" if name else str(kind)
