# SPDX-License-Identifier: Apache-2.0
"""Packets: every value goes through, damage is noticed, and the bytes are those of the vendor's SDK."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import scservo_sdk
from hypothesis import given, settings
from hypothesis import strategies as st

from ulna.core.motors import Motor, MotorNormMode
from ulna.motors.feetech import FeetechMotorsBus, protocol
from ulna.sim.bus import SimFeetechBus
from ulna.sim.feetech import SimFeetechServo, status_packet

idents = st.integers(0, protocol.MAX_ID)


@settings(max_examples=50, deadline=None)
@given(idents, st.integers(0, 127), st.binary(max_size=20), st.binary(max_size=8))
def test_a_status_is_found_behind_noise(ident: int, faults: int, data: bytes, noise: bytes) -> None:
    """Whatever bytes come before, the packet behind them is found (unless they pretend to be a header)."""
    clean = noise.replace(b"\xff", b"\x00")
    packet = status_packet(ident, faults, data)
    assert list(protocol.statuses(clean + packet)) == [protocol.Status(ident, faults, data)]


@settings(max_examples=50, deadline=None)
@given(st.lists(idents, min_size=1, max_size=12, unique=True), st.sampled_from([1, 2]), st.booleans(), st.data())
def test_the_fast_check_equals_the_careful_one(ids: list[int], width: int, big: bool, data: st.DataObject) -> None:
    """The fast path accepts what the careful one accepts, with the same values, and refuses any flipped bit."""
    values = data.draw(st.lists(st.integers(0, 256**width - 1), min_size=len(ids), max_size=len(ids)))
    order = "big" if big else "little"
    answer = b"".join(status_packet(i, 0, v.to_bytes(width, order)) for i, v in zip(ids, values, strict=True))
    parse = protocol.block_parser(ids, width, big)
    assert parse(answer) == values
    at, bit = data.draw(st.integers(0, len(answer) - 1)), data.draw(st.integers(0, 7))
    damaged = bytes([*answer[:at], answer[at] ^ 1 << bit, *answer[at + 1 :]])
    assert parse(damaged) is None
    assert parse(answer[:-1]) is None
    assert parse(answer + b"\xff") is None


def test_a_fault_is_left_to_the_careful_path() -> None:
    """A status with error bits is not taken for a plain value."""
    assert protocol.block_parser([1], 2, False)(status_packet(1, 32, b"\x00\x08")) is None


def test_too_long_a_packet_is_refused() -> None:
    """Motors ignore longer packets, so they are never sent."""
    with pytest.raises(ValueError, match="longer than"):
        protocol.instruction(1, protocol.WRITE, bytes(300))


@pytest.fixture
def patient_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The vendor's SDK gives up after a few milliseconds, and on a busy machine the simulated bus takes longer."""
    monkeypatch.setattr("scservo_sdk.port_handler.LATENCY_TIMER", 15_000)


def _with_sdk(port: str, end: int) -> None:
    """Run a session with the vendor's SDK."""
    handler = scservo_sdk.PortHandler(port)
    assert handler.openPort()
    assert handler.setBaudRate(1_000_000)
    packets = scservo_sdk.PacketHandler(end)
    results = [packets.ping(handler, ident)[1] for ident in (1, 2)]
    results.append(packets.read2ByteTxRx(handler, 1, 56)[1])
    results.append(packets.read1ByteTxRx(handler, 2, 63)[1])
    results.append(packets.write2ByteTxRx(handler, 2, 42, 1234)[0])
    results.append(packets.write1ByteTxRx(handler, 1, 41, 254)[0])
    if end == 0:
        reader = scservo_sdk.GroupSyncRead(handler, packets, 56, 2)
        reader.addParam(1)
        reader.addParam(2)
        results.append(reader.txRxPacket())
    writer = scservo_sdk.GroupSyncWrite(handler, packets, 42, 2)
    for ident, value in ((1, 100), (2, 3000)):
        writer.addParam(ident, [scservo_sdk.SCS_LOBYTE(value), scservo_sdk.SCS_HIBYTE(value)])
    writer.txPacket()
    handler.closePort()
    assert results == [scservo_sdk.COMM_SUCCESS] * len(results)


def _with_bus(port: str, model: str) -> None:
    """Run the same session with the bus."""
    motors = {name: Motor(i, model, MotorNormMode.DEGREES) for i, name in ((1, "a"), (2, "b"))}
    bus = FeetechMotorsBus(port, motors)
    bus.connect(handshake=False)
    for name in motors:
        bus.ping(name)
    bus.read("Present_Position", "a", normalize=False)
    bus.read("Present_Temperature", "b")
    bus.write("Goal_Position", "b", 1234, normalize=False)
    bus.write("Acceleration", "a", 254)
    if bus.capabilities.sync_read:
        bus.sync_read("Present_Position", normalize=False)
    bus.sync_write("Goal_Position", {"a": 100, "b": 3000}, normalize=False)
    bus.disconnect(disable_torque=False)


@pytest.mark.parametrize(("model", "end"), [("sts3215", 0), ("scs0009", 1)])
def test_the_same_calls_give_the_sdk_s_bytes(
    make_wire: Callable[..., SimFeetechBus], patient_sdk: None, model: str, end: int
) -> None:
    """A session replayed through the vendor's SDK puts the very same bytes on the wire, in both protocols."""

    def traffic(session: Callable[[str], None]) -> list[tuple[str, bytes]]:
        wire = make_wire(SimFeetechServo(1, model), SimFeetechServo(2, model))
        session(wire.port)
        wire.settle()
        return [(record.direction, record.data) for record in wire.wire]

    wanted = traffic(lambda port: _with_sdk(port, end))
    assert len(wanted) > 15
    assert traffic(lambda port: _with_bus(port, model)) == wanted


def test_buses_of_both_protocols_live_side_by_side(make_wire: Callable[..., SimFeetechBus]) -> None:
    """The byte order belongs to the bus: opening one of the other protocol changes nothing for the first."""
    sts, scs = make_wire(SimFeetechServo(1, position=777)), make_wire(SimFeetechServo(1, "scs0009", position=300))
    first = FeetechMotorsBus(sts.port, {"m": Motor(1, "sts3215", MotorNormMode.DEGREES)})
    second = FeetechMotorsBus(scs.port, {"m": Motor(1, "scs0009", MotorNormMode.DEGREES)})
    with second, first:
        for _ in range(3):
            assert first.read("Present_Position", "m", normalize=False) == 777
            assert second.read("Present_Position", "m", normalize=False) == 300
        first.write("Goal_Position", "m", 0x0102, normalize=False)
        second.write("Goal_Position", "m", 0x0102, normalize=False)
        assert sts.servos[0].get("Goal_Position") == scs.servos[0].get("Goal_Position") == 0x0102
