# SPDX-License-Identifier: Apache-2.0
"""The bus on its pseudo terminal: driven with raw bytes and with the vendor's SDK."""

from __future__ import annotations

import os
import random
import select
import termios
import threading
import time
from collections.abc import Iterator

import pytest
import scservo_sdk as sdk
import serial

from ulna.core.errors import ConfigError, DeviceNotConnectedError
from ulna.sim.bus import SimFeetechBus
from ulna.sim.clock import VirtualClock
from ulna.sim.faults import BusCounters, FaultPlan
from ulna.sim.feetech import ERROR_OVERLOAD, SimFeetechServo, checksum, instruction_packet, status_packet
from ulna.testing import leftovers

PING, READ, WRITE, REG_WRITE, ACTION, SYNC_READ, SYNC_WRITE = 1, 2, 3, 4, 5, 0x82, 0x83
BROADCAST = 0xFE
LONG_S = 30.0
"""Longer than any answer takes on a busy machine: a wait that ends when the answer is there."""


class Client:
    """A bare terminal, as a driver would open it."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)

    def send(self, id: int, instruction: int, *parameters: int) -> None:
        os.write(self.fd, instruction_packet(id, instruction, bytes(parameters)))

    def receive(self, size: int, timeout_s: float = LONG_S) -> bytes:
        data = b""
        deadline = time.monotonic() + timeout_s
        while len(data) < size and time.monotonic() < deadline:
            if select.select([self.fd], [], [], 0.05)[0]:
                data += os.read(self.fd, size - len(data))
        return data

    def ask(self, size: int, id: int, instruction: int, *parameters: int) -> bytes:
        self.send(id, instruction, *parameters)
        return self.receive(size)

    def silent(self, bus: SimFeetechBus) -> bool:
        """Whether nothing comes back after the bus has acted on everything."""
        bus.settle()
        return not select.select([self.fd], [], [], 0.01)[0]

    def close(self) -> None:
        os.close(self.fd)


@pytest.fixture
def bus() -> Iterator[SimFeetechBus]:
    with SimFeetechBus([SimFeetechServo(i) for i in (1, 2, 3)], clock=VirtualClock(), log_wire=True) as bus:
        yield bus


@pytest.fixture
def client(bus: SimFeetechBus) -> Iterator[Client]:
    client = Client(bus.port)
    yield client
    client.close()


def test_ping_read_write(bus: SimFeetechBus, client: Client) -> None:
    assert client.ask(6, 2, PING) == status_packet(2, 0)
    assert client.ask(8, 2, READ, 56, 2) == status_packet(2, 0, b"\x00\x08")
    assert client.ask(6, 2, WRITE, 42, 0xB8, 0x0B) == status_packet(2, 0)
    assert bus.servos[1].get("Goal_Position") == 3000
    assert bus.counters.requests == bus.counters.replies == 3


def test_checksum_is_the_inverted_low_byte_of_the_sum() -> None:
    assert checksum(bytes([1, 2, 1])) == 0xFB
    assert instruction_packet(1, PING) == b"\xff\xff\x01\x02\x01\xfb"


def test_absent_ids_and_bad_checksums_stay_unanswered(bus: SimFeetechBus, client: Client) -> None:
    client.send(9, PING)
    os.write(client.fd, instruction_packet(1, PING)[:-1] + b"\0")
    assert client.silent(bus)
    assert bus.counters.bad_requests == 1


def test_garbage_before_a_packet_is_skipped(client: Client) -> None:
    os.write(client.fd, b"\x00\xff\x13\xff\xff\xff" + instruction_packet(1, PING)[2:])
    assert client.receive(6) == status_packet(1, 0)


def test_a_packet_may_arrive_in_pieces(bus: SimFeetechBus, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ulna.sim.bus._GAP_S", LONG_S)
    packet = instruction_packet(3, READ, bytes([3, 2]))
    for k in range(len(packet)):
        os.write(client.fd, packet[k : k + 1])
        if k < len(packet) - 1:
            bus.settle()
    assert client.receive(8) == status_packet(3, 0, (777).to_bytes(2, "little"))


def test_sync_read_answers_in_the_asked_order(client: Client) -> None:
    got = client.ask(16, BROADCAST, SYNC_READ, 56, 2, 3, 1)
    assert got == status_packet(3, 0, b"\x00\x08") + status_packet(1, 0, b"\x00\x08")


def test_sync_write_reaches_all_and_is_not_acknowledged(bus: SimFeetechBus, client: Client) -> None:
    client.send(BROADCAST, SYNC_WRITE, 42, 2, 1, 0x10, 0x00, 3, 0x20, 0x00)
    assert client.silent(bus)
    assert [servo.get("Goal_Position") for servo in bus.servos] == [16, 2048, 32]


def test_registered_writes_wait_for_action(bus: SimFeetechBus, client: Client) -> None:
    client.ask(6, 1, REG_WRITE, 42, 0x10, 0x00)
    assert bus.servos[0].get("Goal_Position") == 2048
    client.send(BROADCAST, ACTION)
    assert client.silent(bus)
    assert bus.servos[0].get("Goal_Position") == 16


def test_broadcast_ping_is_answered_by_all_in_order(client: Client) -> None:
    assert client.ask(18, BROADCAST, PING) == b"".join(status_packet(i, 0) for i in (1, 2, 3))


def test_response_level_zero_answers_reads_only(bus: SimFeetechBus, client: Client) -> None:
    client.ask(6, 1, WRITE, 8, 0)
    client.send(1, WRITE, 41, 10)
    assert client.silent(bus)
    assert client.ask(7, 1, READ, 41, 1) == status_packet(1, 0, b"\x0a")


def test_a_new_id_counts_from_the_next_packet_on(bus: SimFeetechBus, client: Client) -> None:
    assert client.ask(6, 1, WRITE, 5, 9) == status_packet(1, 0)
    assert client.ask(6, 9, PING) == status_packet(9, 0)
    client.send(1, PING)
    assert client.silent(bus)


@pytest.mark.parametrize("baud", [1_000_000, 500_000, 115_200, 57_600, 38_400, 19_200, 128_000, 250_000])
def test_only_servos_of_the_ports_speed_hear(baud: int) -> None:
    others = [rate for rate in (1_000_000, 115_200) if rate != baud]
    servos = [SimFeetechServo(1, baud=baud), *(SimFeetechServo(k, baud=rate) for k, rate in enumerate(others, start=2))]
    with SimFeetechBus(servos) as bus, serial.Serial(bus.port, baud, timeout=LONG_S) as port:
        port.write(instruction_packet(BROADCAST, PING))
        assert port.read(6) == status_packet(1, 0)
        bus.settle()
        assert port.in_waiting == 0


def test_changing_the_baud_register_takes_effect_after_the_reply(bus: SimFeetechBus) -> None:
    with serial.Serial(bus.port, 1_000_000, timeout=LONG_S) as port:
        port.write(instruction_packet(1, WRITE, bytes([6, 4])))
        assert port.read(6) == status_packet(1, 0)
        port.write(instruction_packet(1, PING))
        bus.settle()
        assert port.in_waiting == 0
        port.baudrate = 115_200
        port.write(instruction_packet(1, PING))
        assert port.read(6) == status_packet(1, 0)


def test_two_equal_motors_with_one_id_look_like_one_until_they_differ() -> None:
    twins = [SimFeetechServo(1), SimFeetechServo(1)]
    with SimFeetechBus(twins, clock=VirtualClock()) as bus:
        client = Client(bus.port)
        assert client.ask(6, 1, PING) == status_packet(1, 0)
        twins[1].position = 1111
        spoiled = client.ask(8, 1, READ, 56, 2)
        assert spoiled not in (status_packet(1, 0, b"\x00\x08"), status_packet(1, 0, b"\x57\x04"))
        assert bus.counters.collisions == 2
        client.close()


def test_scs_servos_answer_big_endian_and_no_group_instructions() -> None:
    with SimFeetechBus([SimFeetechServo(4, "scs0009")], clock=VirtualClock()) as bus:
        client = Client(bus.port)
        assert client.ask(8, 4, READ, 56, 2) == status_packet(4, 0, b"\x02\x00")
        client.send(BROADCAST, SYNC_READ, 56, 2, 4)
        client.send(BROADCAST, PING)
        assert client.silent(bus)
        client.close()


def test_vendor_sdk_works_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for its patience of a few milliseconds, which is too little on a busy machine."""
    monkeypatch.setattr("scservo_sdk.port_handler.LATENCY_TIMER", LONG_S * 500)
    with SimFeetechBus([SimFeetechServo(i) for i in range(1, 7)]) as bus:
        port = sdk.PortHandler(bus.port)
        assert port.openPort()
        assert port.setBaudRate(1_000_000)
        handler = sdk.PacketHandler(0)
        assert handler.ping(port, 4) == (777, sdk.COMM_SUCCESS, 0)
        assert handler.write2ByteTxRx(port, 4, 42, 2500) == (sdk.COMM_SUCCESS, 0)
        reader = sdk.GroupSyncRead(port, handler, 56, 2)
        for i in range(1, 7):
            reader.addParam(i)
        assert reader.txRxPacket() == sdk.COMM_SUCCESS
        assert [reader.getData(i, 56, 2) for i in range(1, 7)] == [2048] * 6
        bus.faults.error(4, ERROR_OVERLOAD)
        assert handler.read1ByteTxRx(port, 4, 63) == (25, sdk.COMM_SUCCESS, ERROR_OVERLOAD)
        port.closePort()


def test_dropped_replies_follow_the_plan(bus: SimFeetechBus, client: Client) -> None:
    bus.faults.drop(at=[2], every=5)
    answered = []
    for _ in range(10):
        client.send(1, PING)
        before = bus.counters.replies
        bus.settle()
        answered.append(bus.counters.replies > before)
        if answered[-1]:
            assert client.receive(6) == status_packet(1, 0)
        assert client.silent(bus)
    assert answered == [True, False, True, True, False, True, True, True, True, False]
    assert bus.counters.dropped == 3


def test_faults_of_one_motor_and_a_number_of_times(bus: SimFeetechBus, client: Client) -> None:
    bus.faults.drop(every=1, motor=2, times=1)
    got = client.ask(16, BROADCAST, SYNC_READ, 56, 2, 1, 2, 3)
    assert got == status_packet(1, 0, b"\x00\x08") + status_packet(3, 0, b"\x00\x08")
    assert client.ask(6, 2, PING) == status_packet(2, 0)


def test_corrupt_replies_fail_their_checksum(bus: SimFeetechBus, client: Client) -> None:
    bus.faults.corrupt(at=[1])
    reply = client.ask(6, 1, PING)
    assert reply[-1] != checksum(reply[2:-1])
    assert client.ask(6, 1, PING) == status_packet(1, 0)


def test_random_faults_are_the_same_for_a_seed() -> None:
    def hits(seed: int) -> list[bool]:
        plan, counters = FaultPlan(seed), BusCounters()
        plan.drop(probability=0.3)
        return [plan.judge(1, b"x", counters).data is None for _ in range(100)]

    assert hits(1) == hits(1)
    assert hits(1) != hits(2)
    assert 10 < sum(hits(1)) < 50


def test_dead_motors_neither_hear_nor_answer(bus: SimFeetechBus, client: Client) -> None:
    bus.faults.kill(2)
    client.send(BROADCAST, SYNC_WRITE, 42, 2, 2, 0x10, 0x00)
    client.send(2, PING)
    assert client.silent(bus)
    assert bus.servos[1].get("Goal_Position") == 2048
    bus.faults.revive(2)
    assert client.ask(6, 2, PING) == status_packet(2, 0)


def test_delayed_replies_do_arrive(bus: SimFeetechBus, client: Client) -> None:
    bus.faults.delay(0.05, at=[1])
    started = time.monotonic()
    assert client.ask(6, 1, PING) == status_packet(1, 0)
    assert time.monotonic() - started >= 0.05
    assert bus.counters.delayed == 1


def test_needless_acknowledgements_pile_up(bus: SimFeetechBus, client: Client) -> None:
    bus.faults.acknowledge_all()
    client.send(BROADCAST, SYNC_WRITE, 40, 1, 1, 0, 2, 0)
    bus.settle()
    assert client.receive(12) == status_packet(1, 0) + status_packet(2, 0)


def test_clearing_the_plan_makes_all_well(bus: SimFeetechBus, client: Client) -> None:
    bus.faults.drop(every=1)
    bus.faults.kill(1)
    bus.faults.error(2, 4)
    bus.faults.clear()
    assert client.ask(6, 1, PING) == status_packet(1, 0)
    assert client.ask(6, 2, PING) == status_packet(2, 0)


def test_senseless_rules_are_refused() -> None:
    plan = FaultPlan()
    with pytest.raises(ConfigError, match="at, every or probability"):
        plan.drop()
    with pytest.raises(ConfigError, match="counts of 1"):
        plan.unplug(at=0)
    with pytest.raises(ConfigError, match=r"0\.\.1"):
        plan.corrupt(probability=2.0)


def test_unplug_at_a_reply_and_plug_in_again(bus: SimFeetechBus, client: Client) -> None:
    bus.faults.unplug(at=2)
    assert client.ask(6, 1, PING) == status_packet(1, 0)
    client.send(1, PING)
    deadline = time.monotonic() + LONG_S
    while bus.plugged and time.monotonic() < deadline:
        time.sleep(0.001)
    with pytest.raises(OSError, match="Input/output error"):
        os.write(client.fd, b"x")
    with pytest.raises(DeviceNotConnectedError, match="unplugged"):
        _ = bus.port
    again = Client(bus.replug())
    assert again.ask(6, 1, PING) == status_packet(1, 0)
    again.close()


def test_settling_copes_with_a_full_line() -> None:
    with SimFeetechBus([SimFeetechServo(1)], clock=VirtualClock()) as bus:
        client = Client(bus.port)
        written = 0
        packet = instruction_packet(BROADCAST, SYNC_WRITE, bytes([42, 2, 1, 0x10, 0x00]))
        with bus._io:  # nobody listens meanwhile
            for _ in range(100_000):
                try:
                    if os.write(client.fd, packet) < len(packet):
                        break
                except BlockingIOError:
                    break
                written += 1
            bus.settle()
        assert bus.counters.requests == written
        client.close()


def test_echo_returns_what_was_sent() -> None:
    with SimFeetechBus([SimFeetechServo(1)], echo=True) as bus:
        client = Client(bus.port)
        packet = instruction_packet(1, PING)
        assert client.ask(12, 1, PING) == packet + status_packet(1, 0)
        client.close()


def test_paced_replies_take_their_time_on_the_wire() -> None:
    servo = SimFeetechServo(1, baud=19_200)
    with SimFeetechBus([servo], paced=True) as bus, serial.Serial(bus.port, 19_200, timeout=LONG_S) as port:
        started = time.monotonic()
        port.write(instruction_packet(1, PING))
        assert port.read(6) == status_packet(1, 0)
        assert time.monotonic() - started >= 12 * 10 / 19_200


def test_a_client_may_come_and_go(bus: SimFeetechBus) -> None:
    for _ in range(5):
        client = Client(bus.port)
        assert client.ask(6, 1, PING) == status_packet(1, 0)
        client.close()


def test_time_before_a_packet_has_passed_for_the_servos(bus: SimFeetechBus, client: Client) -> None:
    client.ask(6, 1, WRITE, 42, 0xB8, 0x0B)
    client.ask(6, 1, WRITE, 40, 1)
    assert isinstance(bus.clock, VirtualClock)
    bus.clock.sleep(2.0)
    assert client.ask(8, 1, READ, 56, 2) == status_packet(1, 0, (3000).to_bytes(2, "little"))


def test_same_traffic_gives_the_same_bytes() -> None:
    def session(seed: int) -> list[tuple[str, bytes]]:
        clock = VirtualClock()
        faults = FaultPlan(seed)
        faults.drop(probability=0.1)
        servos = [SimFeetechServo(i) for i in (1, 2)]
        with SimFeetechBus(servos, clock=clock, log_wire=True, faults=faults) as bus:
            client = Client(bus.port)
            rng = random.Random(3)
            client.send(BROADCAST, SYNC_WRITE, 40, 1, 1, 1, 2, 1)
            for _ in range(40):
                goal = rng.randrange(4096)
                client.send(BROADCAST, SYNC_WRITE, 42, 2, 1, goal & 255, goal >> 8, 2, goal & 255, goal >> 8)
                client.send(BROADCAST, SYNC_READ, 56, 6, 1, 2)
                bus.settle()
                clock.sleep(0.02)
            client.close()
            return [(record.direction, record.data) for record in bus.wire]

    first = session(1)
    assert first == session(1)
    assert first != session(2)
    assert len(first) > 120


def test_closing_leaves_no_thread_and_no_file_descriptor() -> None:
    threads = set(threading.enumerate())
    with leftovers() as left:
        buses = [SimFeetechBus([SimFeetechServo(1)]) for _ in range(5)]
        assert len(set(threading.enumerate()) - threads) == 5
        for bus in buses:
            bus.close()
            bus.close()
    assert not left, left
    with pytest.raises(DeviceNotConnectedError):
        buses[0].replug()


def test_the_thread_sleeps_while_nothing_happens() -> None:
    with SimFeetechBus([SimFeetechServo(1)]) as bus:
        assert bus._thread.ident is not None
        its_time = time.pthread_getcpuclockid(bus._thread.ident)
        before = time.clock_gettime(its_time)
        time.sleep(0.3)
        assert time.clock_gettime(its_time) - before < 0.15


def test_the_port_starts_at_the_usual_speed(bus: SimFeetechBus, client: Client) -> None:
    assert termios.tcgetattr(client.fd)[5] == termios.B1000000
