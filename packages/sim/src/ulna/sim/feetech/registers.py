# SPDX-License-Identifier: Apache-2.0
"""The register file of a Feetech servo: bytes, names, signs, EEPROM, lock. What a register causes is in `servo`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ulna.core.errors import ConfigError, ConfigProblem, nearest
from ulna.sim.feetech.tables import EEPROM_END, FACTORY_START, ModelSpec

__all__ = ["RegisterFile"]

_MEMORY: Final = 128
_READ_ONLY: Final = frozenset(
    {
        "Firmware_Major_Version",
        "Firmware_Minor_Version",
        "Model_Number",
        "Present_Position",
        "Present_Velocity",
        "Present_Load",
        "Present_Voltage",
        "Present_Temperature",
        "Status",
        "Moving",
        "Present_Current",
    }
)


class RegisterFile:
    """128 bytes of registers and the copy that survives a power cycle. Created by its servo.

    Args:
        spec: The model: addresses, signs and byte order.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.memory = bytearray(_MEMORY)
        self._kept = bytearray(_MEMORY)
        self._big = spec.protocol != 0
        self._lock_at = spec.registers["Lock"][0]
        found = [spec.registers[name] for name in _READ_ONLY if name in spec.registers]
        self._read_only = frozenset(address + k for address, width in found for k in range(width))

    @property
    def locked(self) -> bool:
        """Whether writes to EEPROM are lost at the next power cycle."""
        return self.memory[self._lock_at] != 0

    def has(self, name: str) -> bool:
        """Return whether the model has this register.

        Args:
            name: Register name.
        """
        return name in self.spec.registers

    def where(self, name: str) -> tuple[int, int]:
        """Return address and width of a register.

        Args:
            name: Register name.

        Raises:
            ConfigError: The model has no such register.
        """
        found = self.spec.registers.get(name)
        if found is None:
            close = nearest(name, list(self.spec.registers))
            raise ConfigError([ConfigProblem("register", name, f"a register of {self.spec.name}", close)])
        return found

    def load(self, name: str) -> int:
        """Return a register's stored value, sign decoded.

        Args:
            name: Register name.

        Raises:
            ConfigError: The model has no such register.
        """
        address, width = self.spec.registers.get(name) or self.where(name)
        value = self.memory[address]
        if width == 2:
            other = self.memory[address + 1]
            value = value << 8 | other if self._big else other << 8 | value
        bit = self.spec.sign_bits.get(name)
        if bit is None:
            return value
        magnitude = value & ((1 << bit) - 1)
        return -magnitude if value >> bit & 1 else magnitude

    def store(self, name: str, value: float) -> None:
        """Put a value into RAM, rounded and clipped to what the register holds; nothing when the model lacks it.

        Args:
            name: Register name.
            value: Signed value; its magnitude is stored where the register has no sign.
        """
        found = self.spec.registers.get(name)
        if found is None:
            return
        address, width = found
        bit = self.spec.sign_bits.get(name)
        number = abs(round(value))
        if bit is None:
            number = min((1 << 8 * width) - 1, number)
        else:
            number = min(number, (1 << bit) - 1) | (1 << bit if value < 0 else 0)
        self.memory[address : address + width] = self._bytes(number, width)

    def encode(self, name: str, value: int) -> bytes:
        """Return the bytes of a value for the wire.

        Args:
            name: Register name.
            value: Signed value.

        Raises:
            ConfigError: The model has no such register, or the value does not fit it.
        """
        _, width = self.where(name)
        bit = self.spec.sign_bits.get(name)
        top = 1 << (8 * width if bit is None else bit)
        low = 0 if bit is None else 1 - top
        if not low <= value < top:
            raise ConfigError([ConfigProblem(name, value, f"a value in {low}..{top - 1}")])
        return self._bytes(value if value >= 0 or bit is None else -value | 1 << bit, width)

    def preset(self, name: str, value: int) -> None:
        """Set a register for good, as in the factory: no lock applies and it survives power cycles.

        Args:
            name: Register name.
            value: Signed value.

        Raises:
            ConfigError: The model has no such register, or the value does not fit it.
        """
        data = self.encode(name, value)
        address, width = self.where(name)
        self.memory[address : address + width] = data
        self._kept[address : address + width] = data

    def preset_all(self, values: Mapping[str, int]) -> None:
        """Call `preset` for each register that the model has.

        Args:
            values: Register name to signed value.
        """
        for name, value in values.items():
            if self.has(name):
                self.preset(name, value)

    def read(self, address: int, count: int) -> bytes:
        """Return `count` bytes from `address` on; beyond the end they are zero.

        Args:
            address: First register.
            count: Number of bytes.
        """
        return bytes(self.memory[address : address + count]).ljust(count, b"\0")

    def write(self, address: int, data: bytes) -> range:
        """Store bytes as the wire does: read-only registers keep their value, `Lock` decides what lasts.

        Args:
            address: First register.
            data: The bytes.

        Returns:
            The addresses that were written to.
        """
        changed = range(address, min(address + len(data), _MEMORY))
        lasting = not self.locked
        for where, byte in zip(changed, data, strict=False):
            if where in self._read_only:
                continue
            self.memory[where] = byte
            if lasting and (where < EEPROM_END or where >= FACTORY_START):
                self._kept[where] = byte
        return changed

    def power_cycle(self) -> None:
        """Forget RAM; EEPROM comes back as last kept."""
        self.memory[:] = self._kept

    def _bytes(self, value: int, width: int) -> bytes:
        return value.to_bytes(width, "big" if self.spec.protocol else "little")
