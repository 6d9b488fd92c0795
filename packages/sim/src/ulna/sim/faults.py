# SPDX-License-Identifier: Apache-2.0
"""A scripted plan of what goes wrong on a simulated bus, which asks it about every reply. It owns no bus."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from ulna.core.errors import ConfigError, ConfigProblem

__all__ = ["BusCounters", "FaultPlan", "Verdict"]

Kind = Literal["drop", "corrupt", "delay", "unplug"]


@dataclass
class BusCounters:
    """What happened on a bus since the last `reset`. All counts are of packets unless named otherwise."""

    requests: int = 0
    bad_requests: int = 0
    replies: int = 0
    dropped: int = 0
    corrupted: int = 0
    delayed: int = 0
    collisions: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def reset(self) -> None:
        """Set every count to zero."""
        self.__init__()  # type: ignore[misc]


@dataclass
class Verdict:
    """What becomes of one reply.

    Attributes:
        data: Bytes to send, or None when the reply is lost.
        delay_s: How long to hold it back.
        unplug: Whether the cable is pulled before it is sent.
    """

    data: bytes | None
    delay_s: float = 0.0
    unplug: bool = False


@dataclass
class _Rule:
    kind: Kind
    motor: int | None
    at: frozenset[int]
    every: int
    probability: float
    times: int | None
    value: float = 0.0
    seen: int = 0
    hits: int = field(default=0)

    def fires(self, motor: int, rng: random.Random) -> bool:
        """Count this reply and say whether the rule applies to it."""
        if self.motor is not None and motor != self.motor:
            return False
        self.seen += 1
        if self.times is not None and self.hits >= self.times:
            return False
        hit = (
            self.seen in self.at
            or (self.every > 0 and self.seen % self.every == 0)
            or (self.probability > 0.0 and rng.random() < self.probability)
        )
        self.hits += hit
        return hit


class FaultPlan:
    """Faults of one bus, added by its methods, taken away by `clear`. Create one per bus; calls may come at any time.

    Each rule counts the replies it could apply to (those of `motor`, or all) from 1 on and fires at the counts in `at`,
    at each multiple of `every`, or with `probability`. With the same seed and traffic the same replies are hit.

    Args:
        seed: Seeds the rules with a probability.

    Example:
        >>> plan = FaultPlan()
        >>> plan.drop(every=50)
        >>> plan.kill(4)
        >>> plan.dead
        frozenset({4})
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._rules: list[_Rule] = []
        self._dead: set[int] = set()
        self._rng = random.Random(seed)
        self._errors: dict[int, int] = {}
        self._acknowledge_all = False

    @property
    def dead(self) -> frozenset[int]:
        """Ids of motors that neither hear nor answer."""
        return frozenset(self._dead)

    @property
    def acknowledges_all(self) -> bool:
        """Whether motors also acknowledge sync writes and broadcasts, so that unread replies pile up."""
        return self._acknowledge_all

    def clear(self) -> None:
        """Take every fault away and start the random numbers anew."""
        self._rules.clear()
        self._dead.clear()
        self._errors.clear()
        self._acknowledge_all = False
        self._rng = random.Random(self._seed)

    def drop(
        self,
        *,
        at: Collection[int] = (),
        every: int = 0,
        probability: float = 0.0,
        motor: int | None = None,
        times: int | None = None,
    ) -> None:
        """Lose replies.

        Args:
            at: Counts of the replies to lose, the first being 1.
            every: Lose each reply whose count is a multiple of this.
            probability: Lose a reply with this chance.
            motor: Only replies of this id.
            times: At most so many.

        Raises:
            ConfigError: The rule can never fire, or a number is out of range.
        """
        self._add("drop", at, every, probability, motor, times)

    def corrupt(
        self,
        *,
        at: Collection[int] = (),
        every: int = 0,
        probability: float = 0.0,
        motor: int | None = None,
        times: int | None = None,
    ) -> None:
        """Flip a bit in replies, so that their checksum is wrong.

        Args:
            at: Counts of the replies to spoil, the first being 1.
            every: Spoil each reply whose count is a multiple of this.
            probability: Spoil a reply with this chance.
            motor: Only replies of this id.
            times: At most so many.

        Raises:
            ConfigError: The rule can never fire, or a number is out of range.
        """
        self._add("corrupt", at, every, probability, motor, times)

    def delay(
        self,
        seconds: float,
        *,
        at: Collection[int] = (),
        every: int = 0,
        probability: float = 0.0,
        motor: int | None = None,
        times: int | None = None,
    ) -> None:
        """Hold replies back in real time, whichever clock the simulation runs on.

        Args:
            seconds: How long.
            at: Counts of the replies to hold back, the first being 1.
            every: Hold back each reply whose count is a multiple of this.
            probability: Hold back a reply with this chance.
            motor: Only replies of this id.
            times: At most so many.

        Raises:
            ConfigError: The rule can never fire, or a number is out of range.
        """
        self._add("delay", at, every, probability, motor, times, seconds)

    def unplug(self, *, at: int) -> None:
        """Pull the cable just before a reply.

        Args:
            at: Count of that reply, the first being 1.

        Raises:
            ConfigError: The count is below 1.
        """
        self._add("unplug", (at,), 0, 0.0, None, 1)

    def kill(self, motor: int) -> None:
        """Make a motor deaf and mute.

        Args:
            motor: Its id.
        """
        self._dead.add(motor)

    def revive(self, motor: int) -> None:
        """Undo `kill`.

        Args:
            motor: Its id.
        """
        self._dead.discard(motor)

    def error(self, motor: int, bits: int) -> None:
        """Set error bits in a motor's status packets; 0 takes them away.

        Args:
            motor: Its id.
            bits: A sum of the `ERROR_*` values of `ulna.sim.feetech`.
        """
        self._errors[motor] = bits

    def acknowledge_all(self, enabled: bool = True) -> None:
        """Let motors acknowledge sync writes and broadcast writes too, leaving replies nobody waits for in the line.

        Args:
            enabled: Whether they do.
        """
        self._acknowledge_all = enabled

    def error_bits(self, motor: int) -> int:
        """Return the error bits set by `error`.

        Args:
            motor: Its id.
        """
        return self._errors.get(motor, 0)

    def judge(self, motor: int, data: bytes, counters: BusCounters) -> Verdict:
        """Decide what becomes of a reply and count it.

        Args:
            motor: Id of the motor that answers.
            data: The whole packet.
            counters: Receives the counts.
        """
        verdict = Verdict(data)
        for rule in self._rules:
            if not rule.fires(motor, self._rng):
                continue
            if rule.kind == "unplug":
                verdict.unplug = True
            elif rule.kind == "drop":
                verdict.data = None
                counters.dropped += 1
            elif rule.kind == "delay":
                verdict.delay_s += rule.value
                counters.delayed += 1
            elif verdict.data is not None:
                verdict.data = verdict.data[:-1] + bytes([verdict.data[-1] ^ 0x10])
                counters.corrupted += 1
        return verdict

    def _add(
        self,
        kind: Kind,
        at: Collection[int],
        every: int,
        probability: float,
        motor: int | None,
        times: int | None,
        value: float = 0.0,
    ) -> None:
        problems = []
        if not at and every == 0 and probability == 0.0:
            problems.append(ConfigProblem(kind, None, "one of at, every or probability must be given"))
        if any(count < 1 for count in at):
            problems.append(ConfigProblem(f"{kind}.at", list(at), "counts of 1 or more"))
        if every < 0:
            problems.append(ConfigProblem(f"{kind}.every", every, "0 or more"))
        if not 0.0 <= probability <= 1.0:
            problems.append(ConfigProblem(f"{kind}.probability", probability, "a chance in 0..1"))
        if value < 0.0:
            problems.append(ConfigProblem(f"{kind}.seconds", value, "0 or more"))
        if problems:
            raise ConfigError(problems, title="fault plan")
        self._rules.append(_Rule(kind, motor, frozenset(at), every, probability, times, value))
