# SPDX-License-Identifier: Apache-2.0
"""Feetech's packets: bytes of instructions, and what status packets say. No port, no registers, nothing global.

Wire: FF FF, id, length, instruction or error bits, parameters, checksum; length = parameters + 2; the checksum is the
    inverted
low byte of the sum from the id on. Words are little endian on protocol 0 and big endian on protocol 1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

__all__ = [
    "BROADCAST_ID",
    "MAX_ID",
    "PING",
    "READ",
    "SYNC_READ",
    "SYNC_WRITE",
    "WRITE",
    "Status",
    "block_parser",
    "instruction",
    "statuses",
]

PING: Final = 0x01
READ: Final = 0x02
WRITE: Final = 0x03
SYNC_READ: Final = 0x82
SYNC_WRITE: Final = 0x83

BROADCAST_ID: Final = 0xFE
MAX_ID: Final = 0xFC

_HEADER: Final = b"\xff\xff"
_MAX_LENGTH: Final = 250


class Status(NamedTuple):
    """What one motor answered.

    Attributes:
        ident: Its id.
        faults: Its error bits.
        data: Registers that were read; empty for an acknowledgement.
    """

    ident: int
    faults: int
    data: bytes


def instruction(ident: int, code: int, parameters: bytes = b"") -> bytes:
    """Make an instruction packet.

    Args:
        ident: Id of the motor, or BROADCAST_ID.
        code: Instruction.
        parameters: What follows it.

    Returns:
        The bytes to send.

    Raises:
        ValueError: The packet would be longer than motors accept.
    """
    length = len(parameters) + 2
    if length + 4 > _MAX_LENGTH:
        raise ValueError(f"A packet of {length + 4} bytes is longer than the {_MAX_LENGTH} that motors accept.")
    body = bytes((ident, length, code)) + parameters
    return _HEADER + body + bytes((~sum(body) & 0xFF,))


def statuses(data: bytes) -> Iterator[Status | None]:
    """Find the status packets in what came over the wire; bytes that belong to none are passed over.

    Args:
        data: The bytes.

    Yields:
        Each packet, or None for one whose checksum is wrong or whose end is missing.
    """
    at = 0
    while (at := data.find(_HEADER, at)) >= 0:
        if at + 4 > len(data):
            return
        ident, length = data[at + 2], data[at + 3]
        if ident > MAX_ID or length < 2 or length > _MAX_LENGTH:
            at += 1
            continue
        end = at + 4 + length
        if end > len(data) or ~sum(data[at + 2 : end - 1]) & 0xFF != data[end - 1]:
            yield None
            at += 2
            continue
        yield Status(ident, data[at + 4], data[at + 5 : end - 1])
        at = end


def block_parser(ids: Sequence[int], width: int, big_endian: bool) -> Callable[[bytes], list[int] | None]:
    """Prepare the fast check of an answer: one faultless status packet of each motor, in order, and nothing else.

    Args:
        ids: Ids in the order asked.
        width: Bytes of the register, 1 or 2.
        big_endian: Order of the bytes of a word.

    Returns:
        A function from the bytes received to the unsigned values, or to None when anything is not as expected.
    """
    order = ">" if big_endian else "<"
    unpack = struct.Struct(order + f"IB{'BH'[width - 1]}B" * len(ids)).unpack
    heads = [_HEADER + bytes((ident, width + 2)) for ident in ids]
    expected = [(int.from_bytes(head, "big" if big_endian else "little"), sum(head[2:])) for head in heads]
    size = (6 + width) * len(ids)

    def parse(data: bytes) -> list[int] | None:
        if len(data) != size:
            return None
        fields = iter(unpack(data))
        values = []
        for (head, partial), found, faults, value, check in zip(expected, fields, fields, fields, fields, strict=True):
            if found != head or faults or (partial + (value & 0xFF) + (value >> 8) + check) & 0xFF != 0xFF:
                return None
            values.append(value)
        return values

    return parse
