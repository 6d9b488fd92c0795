# SPDX-License-Identifier: Apache-2.0
"""Packets of the Feetech bus and the servos' answers to them, as a function from bytes to bytes. No terminal, no time.

Wire format: FF FF, id, length (parameters + 2), instruction or error bits, parameters, checksum. The checksum is the
inverted low byte of the sum from the id on. Protocol 1 (SCS) servos answer neither sync reads nor a broadcast ping.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ulna.sim.faults import BusCounters, FaultPlan
from ulna.sim.feetech.servo import SimFeetechServo

__all__ = ["BROADCAST", "FeetechLine", "Packet", "Reply", "checksum", "instruction_packet", "status_packet"]

BROADCAST: Final = 0xFE
PING: Final = 0x01
READ: Final = 0x02
WRITE: Final = 0x03
REG_WRITE: Final = 0x04
ACTION: Final = 0x05
SYNC_READ: Final = 0x82
SYNC_WRITE: Final = 0x83

_HEADER: Final = b"\xff\xff"
_MAX_LENGTH: Final = 250


@dataclass(frozen=True)
class Packet:
    """One instruction packet as received.

    Attributes:
        id: Bus id it is for.
        instruction: Instruction byte.
        parameters: What follows it.
        size: Bytes on the wire.
    """

    id: int
    instruction: int
    parameters: bytes
    size: int


@dataclass(frozen=True)
class Reply:
    """One status packet on its way back.

    Attributes:
        id: Who answers.
        data: The whole packet.
        delay_s: The servo's own return delay.
    """

    id: int
    data: bytes
    delay_s: float = 0.0


def checksum(body: bytes) -> int:
    """Return the checksum of a packet.

    Args:
        body: The packet from its id to its last parameter.
    """
    return ~sum(body) & 0xFF


def instruction_packet(id: int, instruction: int, parameters: bytes = b"") -> bytes:
    """Return the bytes of an instruction packet.

    Args:
        id: Bus id, 0xFE for all.
        instruction: Instruction byte.
        parameters: What follows it.
    """
    body = bytes([id, len(parameters) + 2, instruction]) + parameters
    return _HEADER + body + bytes([checksum(body)])


def status_packet(id: int, error: int, data: bytes = b"") -> bytes:
    """Return the bytes of a status packet.

    Args:
        id: Who answers.
        error: Error bits.
        data: Registers that were read.
    """
    return instruction_packet(id, error, data)


class FeetechLine:
    """Servos on one wire. It keeps the bytes of an unfinished packet between calls; the owner serializes access.

    Args:
        servos: The servos. Several may have the same id: their answers then collide unless they are equal.
        faults: What goes wrong: dead motors, error bits, needless acknowledgements.
        counters: Receives the counts.
    """

    def __init__(self, servos: Sequence[SimFeetechServo], faults: FaultPlan, counters: BusCounters) -> None:
        self.servos = list(servos)
        self._faults = faults
        self._counters = counters
        self._buffer = bytearray()

    @property
    def unfinished(self) -> bool:
        """Whether part of a packet has been received."""
        return bool(self._buffer)

    def forget(self) -> None:
        """Drop the bytes of an unfinished packet, as servos do after a pause in the line."""
        self._buffer.clear()

    def packets(self, data: bytes) -> Iterator[Packet]:
        """Add received bytes and yield every complete packet with a right checksum.

        Args:
            data: What arrived.
        """
        buffer = self._buffer
        buffer += data
        self._counters.bytes_in += len(data)
        while True:
            start = buffer.find(_HEADER)
            if start < 0:
                del buffer[: max(0, len(buffer) - 1)]
                return
            del buffer[:start]
            if len(buffer) < 4:
                return
            if buffer[2] == 0xFF or not 2 <= buffer[3] <= _MAX_LENGTH:
                del buffer[:1]
                continue
            size = buffer[3] + 4
            if len(buffer) < size:
                return
            body, given = bytes(buffer[2 : size - 1]), buffer[size - 1]
            if checksum(body) != given:
                self._counters.bad_requests += 1
                del buffer[:2]
                continue
            del buffer[:size]
            self._counters.requests += 1
            yield Packet(body[0], body[2], body[3:], size)

    def answer(self, packet: Packet, baud: int | None = None) -> list[Reply]:
        """Let the servos act on a packet.

        Args:
            packet: What they hear.
            baud: Speed of the line; servos set to another speed hear nothing. None means any.

        Returns:
            Their status packets in the order of sending.
        """
        hearing = self._hearing(baud)
        if not hearing:
            return []
        if packet.instruction == SYNC_READ:
            return self._sync_read(packet.parameters, hearing)
        if packet.instruction == SYNC_WRITE:
            return self._sync_write(packet.parameters, hearing)
        if packet.id == BROADCAST:
            return self._broadcast(packet, hearing)
        return self._collide([self._single(servo, packet) for servo in hearing.get(packet.id, ())])

    def _hearing(self, baud: int | None) -> dict[int, list[SimFeetechServo]]:
        dead = self._faults.dead
        found: dict[int, list[SimFeetechServo]] = {}
        for servo in self.servos:
            if (baud is None or servo.baud == baud) and servo.id not in dead:
                found.setdefault(servo.id, []).append(servo)
        return found

    def _status(self, servo: SimFeetechServo, id: int, data: bytes = b"") -> Reply:
        error = servo.errors | self._faults.error_bits(id)
        return Reply(id, status_packet(id, error, data), servo.return_delay_s)

    def _single(self, servo: SimFeetechServo, packet: Packet) -> Reply | None:
        id, parameters = packet.id, packet.parameters
        if packet.instruction == PING:
            return self._status(servo, id)
        if packet.instruction == READ and len(parameters) == 2:
            return self._status(servo, id, servo.read(parameters[0], parameters[1]))
        # The reply to a write leaves under the old id, at the old speed: a new one counts from the next packet on.
        acknowledged = servo.answers_writes
        if not self._carry_out(servo, packet):
            return None
        return self._status(servo, id) if acknowledged else None

    def _carry_out(self, servo: SimFeetechServo, packet: Packet) -> bool:
        parameters = packet.parameters
        if packet.instruction == WRITE and len(parameters) >= 2:
            servo.write(parameters[0], parameters[1:])
        elif packet.instruction == REG_WRITE and len(parameters) >= 2:
            servo.hold_write(parameters[0], parameters[1:])
        elif packet.instruction == ACTION:
            servo.act()
        else:
            return False
        return True

    def _broadcast(self, packet: Packet, hearing: dict[int, list[SimFeetechServo]]) -> list[Reply]:
        replies: list[Reply] = []
        for id in sorted(hearing):
            if packet.instruction == PING:
                replies += self._collide([self._status(s, id) for s in hearing[id] if s.spec.protocol == 0])
                continue
            done = [servo for servo in hearing[id] if self._carry_out(servo, packet)]
            if self._faults.acknowledges_all:
                replies += self._collide([self._status(servo, id) for servo in done])
        return replies

    def _sync_read(self, parameters: bytes, hearing: dict[int, list[SimFeetechServo]]) -> list[Reply]:
        if len(parameters) < 3:
            return []
        address, count = parameters[0], parameters[1]
        replies: list[Reply] = []
        for id in parameters[2:]:
            servos = [servo for servo in hearing.get(id, ()) if servo.spec.protocol == 0]
            replies += self._collide([self._status(servo, id, servo.read(address, count)) for servo in servos])
        return replies

    def _sync_write(self, parameters: bytes, hearing: dict[int, list[SimFeetechServo]]) -> list[Reply]:
        if len(parameters) < 2:
            return []
        address, count = parameters[0], parameters[1]
        replies: list[Reply] = []
        for start in range(2, len(parameters) - count, count + 1):
            id = parameters[start]
            servos = hearing.get(id, [])
            for servo in servos:
                servo.write(address, parameters[start + 1 : start + 1 + count])
            if self._faults.acknowledges_all:
                replies += self._collide([self._status(servo, id) for servo in servos])
        return replies

    def _collide(self, replies: Sequence[Reply | None]) -> list[Reply]:
        """Return what the line carries when servos answer at once: equal packets merge, others spoil each other."""
        sent = [reply for reply in replies if reply is not None]
        if len(sent) < 2:
            return sent
        self._counters.collisions += 1
        size = max(len(reply.data) for reply in sent)
        mixed = bytearray(b"\xff" * size)
        for reply in sent:
            for k, byte in enumerate(reply.data):
                mixed[k] &= byte
        return [Reply(sent[0].id, bytes(mixed), sent[0].delay_s)]
