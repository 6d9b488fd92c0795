# SPDX-License-Identifier: Apache-2.0
"""Looking for motors and cameras with whatever plugins are installed. Asks abilities, never names of vendors."""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from ulna.core.capabilities import OpensFound, ScansPort
from ulna.core.config import Config
from ulna.core.errors import ControlError, DeviceError, PluginError, UlnaError
from ulna.core.files import write_bytes
from ulna.core.plugins import registry

__all__ = [
    "CamerasFound",
    "FindCamerasConfig",
    "MotorFound",
    "ScanConfig",
    "encode_png",
    "find_cameras",
    "save_pictures",
    "scan_motors",
]

logger = logging.getLogger(__name__)


class ScanConfig(Config):
    """Settings of `ulna motors scan`."""

    port: str = Field(description="Serial device or CAN interface.")
    type: str | None = Field(None, description="Kind of bus; default: every installed one that can scan.")
    baudrates: list[int] | None = Field(None, description="Baud rates to try; default: all that the bus knows.")
    settings: dict[str, Any] = Field(default_factory=dict, description="Further settings of the bus, by name.")


@dataclass(frozen=True)
class MotorFound:
    """A motor that answered.

    Attributes:
        bus: Type of the bus.
        baudrate: Bits a second.
        id: Its id.
        model_number: What it answered.
        model: Name of that model, if known.
    """

    bus: str
    baudrate: int
    id: int
    model_number: int
    model: str


def scan_motors(config: ScanConfig) -> list[MotorFound]:
    """Look for motors on a port, at every baud rate; changes nothing on them.

    Args:
        config: Where and with what.

    Returns:
        Motors that answered.

    Raises:
        ControlError: No installed bus can scan.
        PluginError: The bus asked for is not installed or cannot be used.
        DeviceConnectError: The port cannot be opened.
    """
    types = [config.type] if config.type else registry().types("motors")
    found: list[MotorFound] = []
    scanned = 0
    for name in types:
        bus = registry().config_class("motors", name).load_implementation()
        if not isinstance(bus, ScansPort):
            logger.info("Motors of type %s cannot be looked for.", name)
            continue
        scanned += 1
        numbers = {number: model for model, number in getattr(bus, "model_number_table", {}).items()}
        hits = bus.scan_port(config.port, baudrates=config.baudrates, **config.settings)
        for baud, motors in hits.items():
            found += [MotorFound(name, baud, i, n, numbers.get(n, "unknown")) for i, n in motors.items()]
    if not scanned:
        raise ControlError(
            f"Nothing installed can look for motors; motor plugins: {', '.join(types) or 'none'}.",
            hint="Install the plugin of your motors: pip install ulna-motors-feetech",
        )
    return found


class FindCamerasConfig(Config):
    """Settings of `ulna cameras find`."""

    type: str | None = Field(None, description="Kind of camera; default: every installed one.")
    output_dir: Path | None = Field(None, description="Save a picture of each camera in this folder.")


@dataclass(frozen=True)
class CamerasFound:
    """What looking for cameras found.

    Attributes:
        cameras: One mapping a camera: `type`, `id`, `name`, and what else it tells.
        problems: Type of camera to why it could not look.
    """

    cameras: list[dict[str, Any]] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)


def find_cameras(types: Sequence[str] | None = None) -> CamerasFound:
    """Ask every camera plugin for the cameras it sees; one that fails does not stop the others.

    Args:
        types: Kinds of camera; default: every installed one.

    Returns:
        Cameras, and plugins that could not look.

    Raises:
        PluginNotFoundError: A kind asked for is not installed.
    """
    found = CamerasFound()
    for name in types if types is not None else registry().types("cameras"):
        config_class = registry().config_class("cameras", name)
        try:
            seen = config_class.load_implementation().find_cameras()
        except NotImplementedError:
            found.problems[name] = "cameras of this kind cannot be listed"
        except (PluginError, DeviceError, OSError) as error:
            found.problems[name] = str(error)
        else:
            found.cameras.extend({**camera, "type": name} for camera in seen)
    return found


def save_pictures(found: CamerasFound, folder: Path) -> dict[str, str]:
    """Take a picture with each camera and save it as PNG.

    Args:
        found: What `find_cameras` returned.
        folder: Where to; it is created.

    Returns:
        `<type>_<id>` to the file, or to why there is none.
    """
    results = {}
    for camera in found.cameras:
        name = f"{camera['type']}_{camera['id']}".replace("/", "_")
        try:
            results[name] = str(_save_picture(camera, folder / f"{name}.png"))
        except (UlnaError, OSError) as error:
            results[name] = f"no picture: {error}"
    return results


def _save_picture(camera: dict[str, Any], path: Path) -> Path:
    implementation = registry().config_class("cameras", camera["type"]).load_implementation()
    if not isinstance(implementation, OpensFound):
        raise ControlError(f"cameras of type {camera['type']} cannot be opened from what was found")
    with implementation.from_found(camera) as opened:
        write_bytes(path, encode_png(opened.read()))
    return path


def encode_png(pixels: Any) -> bytes:
    """Encode a colour picture as PNG, without an imaging library.

    Args:
        pixels: uint8 (H, W, 3).

    Returns:
        The file's content.
    """
    height, width, _ = pixels.shape
    rows = b"".join(b"\x00" + pixels[y].tobytes() for y in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 6)) + chunk(b"IEND", b"")
