# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of motor buses."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from ulna.core.errors import (
    CalibrationError,
    ConfigError,
    DeviceAlreadyConnectedError,
    DeviceDisconnectError,
    DeviceError,
    DeviceNotConnectedError,
    MissingMotorsError,
    MotorCommunicationError,
)
from ulna.core.motors import MotorsBus
from ulna.testing import configs
from ulna.testing.checks import NotExercised, check, expect, refused
from ulna.testing.isolation import leftovers, recorded_io
from ulna.testing.suites.motors_values import MotorsBusValueChecks

__all__ = ["MotorsBusSuite"]


class MotorsBusSuite(MotorsBusValueChecks):
    """Checks of a motor bus. Override the fixture `bus`; it returns one, not connected, with at least two motors.

    Override `lose_replies` and `kill` where the wire is simulated, so that faults are exercised. The suite writes a
    calibration of its own to the motors. A bus without goals to be read back sets `goal_name` to None.

    Attributes:
        goal_name: Register that takes a goal and can be read back; None when there is none.
        position_name: Register of the present position.
        lost_every: Which reply is lost in the check of retries.
    """

    @check(
        "M01-pure-constructor",
        "Making a bus opens no port and starts no thread.",
        "Open the port in connect.",
    )
    def test_m01_pure_constructor(self, bus: MotorsBus) -> None:
        self._another(bus)
        with leftovers(0.0) as left, recorded_io() as log:
            made = self._another(bus)
        expect(not log.events, f"the constructor did: {'; '.join(log.events[:5])}")
        expect(not left, f"the constructor left {left} behind")
        expect(not made.is_connected, "is_connected is True before connect() was called")

    @check(
        "M02-bad-motors-refused",
        "Two motors with one id, or a motor of an unknown model, are refused by the constructor with a ConfigError.",
        "Call the base class's constructor and list the models in model_resolution.",
    )
    def test_m02_bad_motors_refused(self, bus: MotorsBus) -> None:
        names = list(bus.motors)
        if len(names) < 2:
            raise NotExercised("the bus of the fixture has a single motor")
        twice = {**bus.motors, names[1]: replace(bus.motors[names[1]], id=bus.motors[names[0]].id)}
        with refused(ConfigError, "two motors with one id"):
            self._another(bus, motors=twice)
        odd = {**bus.motors, names[0]: replace(bus.motors[names[0]], model="no_such_model")}
        with refused(ConfigError, "a motor of the model 'no_such_model'"):
            self._another(bus, motors=odd)

    @check(
        "M03-connect-twice",
        "connect on a connected bus raises DeviceAlreadyConnectedError and leaves it connected.",
        "Raise it at the start of connect when is_connected.",
    )
    def test_m03_connect_twice(self, bus: MotorsBus) -> None:
        with self._session(bus, calibrated=False):
            with refused(DeviceAlreadyConnectedError, "connect() on a connected bus"):
                bus.connect()
            expect(bus.is_connected, "the refused second connect() closed the port")

    @check(
        "M04-disconnect-idempotent",
        "disconnect can be called at any time, any number of times, and the bus connects again after it.",
        "Return early from disconnect when the port is closed.",
    )
    def test_m04_disconnect_idempotent(self, bus: MotorsBus) -> None:
        bus.disconnect()
        for _ in range(2):
            bus.connect()
            bus.disconnect()
            expect(not bus.is_connected, "is_connected is True after disconnect()")
            bus.disconnect()

    @check(
        "M05-disconnect-releases",
        "After disconnect no thread and no open port of the bus is left, and no motor holds torque.",
        "Disable torque, then close the port in a finally block.",
    )
    def test_m05_disconnect_releases(self, bus: MotorsBus) -> None:
        bus.connect()
        bus.disconnect()
        with leftovers() as left:
            bus.connect()
            bus.enable_torque()
            bus.disconnect()
        expect(not left, f"after disconnect() there is still {left}")
        bus.connect(handshake=False)
        try:
            stiff = [name for name, is_on in bus.torque_state().items() if is_on]
        finally:
            bus.disconnect(disable_torque=False)
        expect(not stiff, f"after disconnect() these motors still hold torque: {', '.join(stiff)}")

    @check(
        "M06-not-connected-errors",
        "Reading and writing raise DeviceNotConnectedError before connect and after disconnect.",
        "Call self._require_connected() first in every such method.",
    )
    def test_m06_not_connected_errors(self, bus: MotorsBus) -> None:
        motor, name = next(iter(bus.motors)), self.goal_name or self.position_name
        for _ in range(2):
            with refused(DeviceNotConnectedError, "read() while disconnected"):
                bus.read(self.position_name, motor, normalize=False)
            with refused(DeviceNotConnectedError, "write() while disconnected"):
                bus.write(name, motor, 1, normalize=False)
            with refused(DeviceNotConnectedError, "sync_read() while disconnected"):
                bus.sync_read(self.position_name, normalize=False)
            with refused(DeviceNotConnectedError, "sync_write() while disconnected"):
                bus.sync_write(name, {motor: 1}, normalize=False)
            bus.connect()
            bus.disconnect()

    @check(
        "M10-lost-replies-are-repeated",
        "Lost replies are asked for again, within num_retry, without the caller noticing; counters tell how often.",
        "Repeat an exchange up to num_retry times in the bus and count in self.counters.retries.",
    )
    def test_m10_lost_replies_are_repeated(self, bus: MotorsBus) -> None:
        with self._session(bus, calibrated=False):
            self.lose_replies(bus, self.lost_every)
            before = bus.counters.retries
            try:
                for _ in range(4 * self.lost_every):
                    bus.sync_read(self.position_name, normalize=False)
            finally:
                self.lose_replies(bus, 0)
            expect(bus.counters.retries > before, "counters.retries did not count while replies were lost")

    @check(
        "M11-dead-motor-is-named",
        "A motor that never answers makes reads fail with its name after bounded tries; the others still answer.",
        "Raise MotorCommunicationError(motors=[...]) after num_retry repetitions.",
    )
    def test_m11_dead_motor_is_named(self, bus: MotorsBus) -> None:
        dead = list(bus.motors)[-1]
        alive = [n for n in bus.motors if n != dead]
        with self._session(bus, calibrated=False):
            self.kill(bus, dead)
            before = bus.counters.exchanges
            with refused(MotorCommunicationError, f"sync_read with {dead} dead"):
                self._expect_named(bus, dead)
            used = bus.counters.exchanges - before
            allowed = (bus.num_retry + 1) * (len(bus.motors) + 1)
            expect(used <= allowed, f"it took {used} exchanges to give up, at most {allowed} are allowed")
            found = bus.sync_read(self.position_name, alive, normalize=False) if alive else {}
            expect(set(found) == set(alive), f"without the dead motor, sync_read gave {found}")

    def _expect_named(self, bus: MotorsBus, dead: str) -> None:
        try:
            bus.sync_read(self.position_name, normalize=False)
        except MotorCommunicationError as error:
            expect(tuple(error.motors) == (dead,), f"the error names {error.motors or 'nobody'}, dead is {dead!r}")
            expect(dead in str(error), f"the message does not name {dead!r}: {error}")
            raise

    @check(
        "M12-handshake-names-missing",
        "Connecting while a motor is missing raises MissingMotorsError that names it, and the port is closed again.",
        "Ping every motor in connect and close the port before the error leaves it.",
    )
    def test_m12_handshake_names_missing(self, bus: MotorsBus) -> None:
        dead = next(iter(bus.motors))
        self.kill(bus, dead)
        with leftovers() as left, refused(MissingMotorsError, f"connect() with {dead} missing"):
            try:
                bus.connect()
            except MissingMotorsError as error:
                expect(dead in error.missing, f"missing is {error.missing}, expected {dead!r}")
                raise
            finally:
                is_open = bus.is_connected
                bus.disconnect() if is_open else None
        expect(not is_open, "the port stayed open after connect() failed")
        expect(not left, f"after the failed connect() there is still {left}")

    @check(
        "M13-dead-motor-does-not-keep-torque",
        "With one motor dead, disconnect releases the torque of all others, closes the port and reports the dead one.",
        "Try every motor before raising, and close the port in a finally block.",
    )
    def test_m13_dead_motor_does_not_keep_torque(self, bus: MotorsBus) -> None:
        dead, *others = bus.motors
        with self._session(bus, calibrated=False):
            bus.enable_torque()
            self.kill(bus, dead)
            with refused(DeviceDisconnectError, f"disconnect() with {dead} dead"):
                bus.disconnect()
            expect(not bus.is_connected, "the port stayed open")
            if not others:
                return
            bus.connect(handshake=False)
            name = "Torque_Enable"
            try:
                stiff = [n for n in others if bus.read(name, n, normalize=False)]
            except (KeyError, ValueError) as error:
                raise NotExercised(f"it has no register {name}") from error
            finally:
                with contextlib.suppress(DeviceError):
                    bus.disconnect(disable_torque=False)
        expect(not stiff, f"these motors still hold torque: {', '.join(stiff)}")

    @check(
        "M18-calibration-round-trip",
        "A calibration that was written is read back equal and is the one in use.",
        "Write every field that the motor can hold, and update self.calibration when cache is True.",
    )
    def test_m18_calibration_round_trip(self, bus: MotorsBus) -> None:
        wanted = self.calibration(bus)
        with self._session(bus, calibrated=False):
            bus.calibration.clear()
            bus.write_calibration(wanted, cache=False)
            expect(not bus.calibration, "write_calibration(cache=False) changed the calibration in use")
            bus.write_calibration(wanted)
            expect(bus.calibration == wanted, f"the calibration in use is {bus.calibration}, written was {wanted}")
            found = bus.read_calibration()
            expect(bus._same_calibration(found), f"read back {found}, written was {wanted}")
            expect(bus.is_calibrated, "is_calibrated is False right after write_calibration")

    @check(
        "M19-bad-calibration-refused",
        "A calibration with equal limits, or of a motor that is not there, raises CalibrationError and writes nothing.",
        "Call ulna.core.calibration.check_calibration before the first write.",
    )
    def test_m19_bad_calibration_refused(self, bus: MotorsBus) -> None:
        with self._session(bus):
            before, held = bus.read_calibration(), dict(bus.calibration)
            first, last = next(iter(held)), list(held)[-1]
            moved = {n: replace(c, range_min=c.range_min + 7) for n, c in held.items()}
            flat = {**moved, last: replace(moved[last], range_min=100, range_max=100)}
            with refused(CalibrationError, f"a calibration whose {last} has equal limits"):
                bus.write_calibration(flat)
            foreign = {**moved, "no_such_motor": replace(moved[first], id=99)}
            with refused((CalibrationError, ValueError), "a calibration of 'no_such_motor'"):
                bus.write_calibration(foreign)
            after = bus.read_calibration()
            expect(before == after, f"a refused calibration changed the motors from {before} to {after}")
            expect(bus.calibration == held, "a refused calibration changed the one in use")

    @check(
        "M20-torque-is-restored",
        "torque_disabled releases torque in its block and afterwards restores exactly what was on before.",
        "Leave torque_disabled to the base class and implement torque_state.",
    )
    def test_m20_torque_is_restored(self, bus: MotorsBus) -> None:
        first = next(iter(bus.motors))
        with self._session(bus):
            bus.enable_torque(first)
            before = bus.torque_state()
            expect(
                before == {n: n == first for n in bus.motors}, f"torque of {first} was enabled, the state is {before}"
            )
            error = RuntimeError("raised by the conformance suite in the block")
            with contextlib.suppress(RuntimeError), bus.torque_disabled():
                inside = bus.torque_state()
                raise error
            after = bus.torque_state()
        expect(not any(inside.values()), f"inside torque_disabled the state is {inside}")
        expect(before == after, f"torque was {before} before torque_disabled and {after} after it")

    @check(
        "M21-half-turn-homing",
        "After set_half_turn_homings every motor reads half a turn where it stands.",
        "Write the shortest offset that makes it so (ulna.core.homing.shortest_offset).",
    )
    def test_m21_half_turn_homing(self, bus: MotorsBus) -> None:
        if not bus.capabilities.homing_offset:
            raise NotExercised("its motors store no homing offset")
        with self._session(bus, calibrated=False):
            offsets = bus.set_half_turn_homings()
            found = bus.sync_read(self.position_name, normalize=False)
        expect(set(offsets) == set(bus.motors), f"offsets were returned for {', '.join(offsets)}")
        half = {n: (bus.model_resolution[m.model] - 1) // 2 for n, m in bus.motors.items()}
        wrong = {n: v for n, v in found.items() if abs(v - half[n]) > bus.model_resolution[bus.motors[n].model] / 40}
        expect(not wrong, f"after homing these read something else than half a turn: {wrong}")

    @check(
        "M22-runs-without-torch",
        "The module of the bus can be imported where torch is not installed.",
        "Import torch nowhere in a bus.",
    )
    def test_m22_runs_without_torch(self, bus: MotorsBus) -> None:
        configs.runs_without(type(bus), ("torch", "torchvision"))
