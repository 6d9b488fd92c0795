# SPDX-License-Identifier: Apache-2.0
"""What robots and teleoperators share: identity, calibration files, a connection atomic to open and safe to close."""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from pydantic import Field, field_validator

from ulna.core.calibration import CalibrationStep, MotorCalibration, load_calibration, save_calibration
from ulna.core.config import PluginConfig
from ulna.core.errors import DeviceAlreadyConnectedError, DeviceDisconnectError, DeviceNotConnectedError
from ulna.core.paths import calibration_roots

__all__ = ["Device", "DeviceConfig", "OpenParts"]

logger = logging.getLogger(__name__)

_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class DeviceConfig(PluginConfig):
    """Settings every robot and teleoperator has."""

    id: str | None = Field(None, description="Name of this very device; its calibration file is `<id>.json`.")
    calibration_dir: Path | None = Field(
        None, description="Folder of the calibration file; default: Ulna's, then LeRobot's."
    )

    @field_validator("id")
    @classmethod
    def _id_is_a_file_name(cls, value: str | None) -> str | None:
        if value is not None and not _SAFE_ID.fullmatch(value):
            raise ValueError("an id of letters, digits, '.', '_' and '-', since it names a file")
        return value


@dataclass
class _Part:
    name: str
    close: Callable[[], object]


class OpenParts:
    """The parts of a device that are open, so that they can be closed in reverse order. Made by `Device.connect`."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._parts: list[_Part] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def names(self) -> list[str]:
        """Names of the open parts, in the order they were opened."""
        return [part.name for part in self._parts]

    def open(self, name: str, opening: Callable[[], object], closing: Callable[[], object]) -> None:
        """Open one part and remember how to close it.

        Args:
            name: What it is called in messages: `bus`, `camera front`.
            opening: Opens it; must leave nothing open when it raises.
            closing: Closes it.
        """
        opening()
        self._parts.append(_Part(name, closing))

    def on_close(self, name: str, closing: Callable[[], object]) -> None:
        """Remember something to do when closing (release torque, say).

        Args:
            name: What it is called in messages.
            closing: Does it.
        """
        self._parts.append(_Part(name, closing))

    def close(self) -> dict[str, BaseException]:
        """Close every part in reverse order, each tried whatever the others do.

        Returns:
            Name of the part to the error it raised; empty when all went well.
        """
        failures: dict[str, BaseException] = {}
        interrupt: BaseException | None = None
        while self._parts:
            part = self._parts.pop()
            try:
                part.close()
            except Exception as error:  # noqa: BLE001 - reported: every part must be tried, and all failures are returned
                failures[part.name] = error
                logger.error("%s: closing %s failed: %s", self._owner, part.name, error)
            except BaseException as error:  # noqa: BLE001 - Ctrl-C while closing: finish closing, then let it through
                interrupt = error
        if interrupt is not None:
            raise interrupt
        return failures


class Device(ABC):
    """A robot or teleoperator: made without I/O, connected atomically, disconnected safely.

    Implementers write the methods that start with an underscore; users call the others. Not thread-safe unless it says
    so.

    Args:
        config: Its settings.
    """

    config_class: ClassVar[type[DeviceConfig]]
    name: ClassVar[str]
    _calibration_kind: ClassVar[str]

    def __init__(self, config: DeviceConfig) -> None:
        self.config = config
        self.id = config.id
        self.calibration: dict[str, MotorCalibration] = {}
        self._parts = OpenParts(str(self))
        self._connected = False

    def __str__(self) -> str:
        return f"{self.id} {type(self).__name__}" if self.id else type(self).__name__

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.disconnect()
        except DeviceDisconnectError as failed:
            if error is None:
                raise
            error.add_note(f"While disconnecting: {failed}")

    @property
    def is_connected(self) -> bool:
        """Whether `connect` succeeded and `disconnect` was not called since."""
        return self._connected

    @property
    @abstractmethod
    def is_calibrated(self) -> bool:
        """Whether the hardware holds the calibration in use; True where there is none. Works when connected."""

    @abstractmethod
    def _connect(self, parts: OpenParts, calibrate: bool) -> None:
        """Open every part through `parts.open`, check the calibration when `calibrate`, and configure the hardware.

        Whatever raises here is followed by closing all parts opened so far, in reverse order.
        """

    def connect(self, calibrate: bool = True) -> None:
        """Open the device, all of it or nothing.

        Args:
            calibrate: Whether a missing calibration is an error. Calibrating itself is a dialogue: see `calibrate`.

        Raises:
            DeviceAlreadyConnectedError: It is connected.
            DeviceConnectError: A part could not be opened; everything opened before has been closed again.
            CalibrationError: It is not calibrated.
        """
        if self._connected:
            raise DeviceAlreadyConnectedError(f"{self} is already connected.", device=str(self))
        if self._parts:
            self._parts.close()
        try:
            self._connect(self._parts, calibrate)
        except BaseException as error:
            for part, failure in self._parts.close().items():
                error.add_note(f"While closing {part} again: {failure}")
            raise
        self._connected = True

    def disconnect(self) -> None:
        """Close every part in reverse order; safe to call at any time, any number of times.

        Raises:
            DeviceDisconnectError: Some parts failed to close; all were tried, and `failures` holds their errors.
        """
        self._connected = False
        failures = self._parts.close()
        if failures:
            lines = "; ".join(f"{part}: {error}" for part, error in failures.items())
            raise DeviceDisconnectError(
                f"{self} closed, but {len(failures)} part(s) failed: {lines}",
                failures=failures,
                device=str(self),
                hint="If a motor may still hold torque, switch its power off.",
            )

    def _require_connected(self) -> None:
        if not self._connected:
            raise DeviceNotConnectedError(
                f"{self} is not connected.",
                device=str(self),
                hint="Call connect() first, or use it as a context manager.",
            )

    def calibrate(self) -> Generator[CalibrationStep, str, None]:
        """Calibrate as a dialogue: yield what the operator shall do, take the answer, end when it is saved.

        The CLI, a GUI or a test drives it (`ulna.core.calibration.drive`). Devices without calibration yield nothing.

        Yields:
            The next step for the operator.
        """
        yield from ()

    def configure(self) -> None:
        """Write operating modes and gains; idempotent. `connect` calls it where it is needed."""

    def calibration_file(self) -> Path | None:
        """Return the existing calibration file of this id, or None. Ulna's folder is searched first, then LeRobot's."""
        return next((path for path in self._calibration_candidates() if path.is_file()), None)

    def _calibration_candidates(self) -> list[Path]:
        if self.id is None:
            return []
        if self.config.calibration_dir is not None:
            return [self.config.calibration_dir / f"{self.id}.json"]
        return [root / self._calibration_kind / self.name / f"{self.id}.json" for root in calibration_roots()]

    def load_calibration(self) -> dict[str, MotorCalibration]:
        """Read the calibration file into `calibration`.

        Returns:
            Motor name to its calibration; empty when there is no file.

        Raises:
            CalibrationError: The file is damaged or degenerate.
        """
        path = self.calibration_file()
        self.calibration = {} if path is None else load_calibration(path)
        return self.calibration

    def save_calibration(self, calibration: dict[str, MotorCalibration]) -> Path:
        """Write the calibration file of this id, atomically.

        Args:
            calibration: Motor name to its calibration.

        Returns:
            The file written.

        Raises:
            CalibrationError: The device has no id, or the calibration is degenerate.
        """
        from ulna.core.errors import CalibrationError

        candidates = self._calibration_candidates()
        if not candidates:
            raise CalibrationError(
                f"{self} has no id, so its calibration has no file name.", hint="Give it one: --robot.id=my_arm"
            )
        save_calibration(candidates[0], calibration)
        self.calibration = dict(calibration)
        return candidates[0]
