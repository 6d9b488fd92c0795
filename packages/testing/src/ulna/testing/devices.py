# SPDX-License-Identifier: Apache-2.0
"""Checks that devices share: pure construction, atomic connection, safe disconnection, silent calibration."""

from __future__ import annotations

import builtins
import contextlib
import inspect
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ulna.core.calibration import CalibrationStep, drive
from ulna.core.cameras import Camera
from ulna.core.devices import Device, OpenParts
from ulna.core.errors import CalibrationError, DeviceAlreadyConnectedError, DeviceConnectError, DeviceError
from ulna.core.motors import MotorsBus
from ulna.testing.checks import NotExercised, expect, refused
from ulna.testing.isolation import isolated_home, leftovers, recorded_io

__all__ = [
    "InjectedError",
    "calibrates_as_dialogue",
    "closing",
    "components",
    "connects_atomically",
    "construction_is_pure",
    "disconnect_is_idempotent",
    "disconnect_releases",
    "disconnect_tries_all",
    "fresh",
    "patched",
    "refuses_second_connect",
    "torque_is_released",
]

D = TypeVar("D", bound=Any)
Part = Device | MotorsBus | Camera


class InjectedError(DeviceConnectError):
    """The error that the checks put in the way of a device."""


def fresh(device: D) -> D:
    """Make another device of the same class and settings.

    Args:
        device: A device, or anything made from `config` alone.

    Returns:
        A new one, not connected.
    """
    made: D = type(device)(device.config.model_copy(deep=True))
    return made


@contextmanager
def patched(target: Any, name: str, replacement: Any) -> Iterator[None]:
    """Give one object another method for the block.

    Args:
        target: The object.
        name: Attribute to replace, on this object alone.
        replacement: What it is for the block.

    Yields:
        Nothing.
    """
    own = vars(target).get(name, _NOTHING)
    setattr(target, name, replacement)
    try:
        yield
    finally:
        if own is _NOTHING:
            delattr(target, name)
        else:
            setattr(target, name, own)


_NOTHING = object()


@contextmanager
def closing(device: Any) -> Iterator[None]:
    """Disconnect a device when the block ends, whatever it is like.

    Args:
        device: The device.

    Yields:
        Nothing.
    """
    try:
        yield
    finally:
        with contextlib.suppress(DeviceError):
            device.disconnect()


def components(device: Any) -> dict[str, Part]:
    """Return what a device is made of: buses, cameras and devices among its attributes, or in mappings there.

    Args:
        device: The device.

    Returns:
        Name to component.
    """
    found: dict[str, Part] = {}
    for name, value in vars(device).items():
        if isinstance(value, Part):
            found[name] = value
        elif isinstance(value, Mapping):
            found |= {f"{name}.{key}": item for key, item in value.items() if isinstance(item, Part)}
    return found


def construction_is_pure(make: Callable[[], Any], folder: Path) -> None:
    """Expect that making a device opens, creates and starts nothing.

    Args:
        make: Makes one.
        folder: A scratch folder; home folders are put there.
    """
    before = set(folder.rglob("*"))
    with isolated_home(folder / "first"):
        make()
    with isolated_home(folder / "second"), leftovers(0.0) as left, recorded_io() as log:
        made = make()
    created = [str(path.relative_to(folder)) for path in folder.rglob("*") if path not in before]
    expect(not log.events, f"the constructor did: {'; '.join(log.events[:5])}")
    expect(not left, f"the constructor left {left} behind")
    expect(not created, f"the constructor created {', '.join(created[:5])}")
    expect(not made.is_connected, "is_connected is True before connect() was called")


def refuses_second_connect(device: Any) -> None:
    """Expect that connecting twice is an error that leaves the device connected.

    Args:
        device: A disconnected device.
    """
    with closing(device):
        device.connect()
        expect(device.is_connected, "is_connected is False after connect()")
        with refused(DeviceAlreadyConnectedError, "connect() on a connected device"):
            device.connect()
        expect(device.is_connected, "the refused second connect() disconnected the device")


def disconnect_is_idempotent(device: Any) -> None:
    """Expect that disconnecting is safe at any time, and that the device connects again after it.

    Args:
        device: A disconnected device.
    """
    with closing(device):
        device.disconnect()
        for _ in range(2):
            device.connect()
            device.disconnect()
            expect(not device.is_connected, "is_connected is True after disconnect()")
            device.disconnect()


def disconnect_releases(device: Any, use: Callable[[Any], object]) -> None:
    """Expect that nothing is left of a session: no thread, no open file or port.

    Args:
        device: A disconnected device.
        use: Uses it once while connected.
    """
    with closing(device):
        device.connect()
        use(device)
    with leftovers() as left, closing(device):
        device.connect()
        use(device)
    expect(not left, f"after disconnect() there is still {left}")


def _raise_injected(*_: Any, **__: Any) -> None:
    raise InjectedError("This error is injected by the conformance suite.")


@contextmanager
def _open_fails_at(parts: OpenParts, index: int) -> Iterator[list[str]]:
    """Make opening part `index` of a device fail; yields the names of the parts opened before."""
    opened: list[str] = []
    original = parts.open

    def open_part(name: str, opening: Callable[[], object], closing: Callable[[], object]) -> None:
        if len(opened) == index:
            _raise_injected()
        original(name, opening, closing)
        opened.append(name)

    with patched(parts, "open", open_part):
        yield opened


def _is_all_closed(device: Any, when: str) -> None:
    expect(not device.is_connected, f"is_connected is True after connect() failed {when}")
    still = [name for name, part in components(device).items() if part.is_connected]
    still += list(getattr(device, "_parts", OpenParts("")).names)
    expect(not still, f"when connect() failed {when}, these stayed open: {', '.join(dict.fromkeys(still))}")


def connects_atomically(device: Device) -> None:
    """Expect that a connection that fails anywhere leaves nothing open, and that the device connects afterwards.

    Args:
        device: A disconnected device.
    """
    with closing(device):
        device.connect()
        count = len(device._parts.names)
    tried = 0
    for label, trap in _traps(device, count):
        one = fresh(device)
        with closing(one), leftovers() as left:
            try:
                with trap(one):
                    one.connect()
            except InjectedError:
                tried += 1
                _is_all_closed(one, label)
            else:
                one.disconnect()
        expect(not left, f"when connect() failed {label}, {left} stayed open")
        with closing(one):
            one.connect()
            expect(one.is_connected, f"is_connected is False when connecting again after a failure {label}")
    if not tried:
        raise NotExercised("connect() opens no part and does not configure anything")


def _traps(device: Device, count: int) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield ways to make `connect` fail: at each part opened, at each component, and at configuring."""
    for index in range(count):
        yield f"at part {index + 1} of {count}", partial(_part_fails, index)
    for name in components(device):
        yield f"at {name}", partial(_component_fails, name)
    yield "at configure()", lambda one: patched(one, "configure", _raise_injected)


def _part_fails(index: int, device: Any) -> AbstractContextManager[Any]:
    return _open_fails_at(device._parts, index)


def _component_fails(name: str, device: Any) -> AbstractContextManager[Any]:
    return patched(components(device)[name], "connect", _raise_injected)


def disconnect_tries_all(device: Any) -> None:
    """Expect that one part failing to close does not keep the others open, and is reported.

    Args:
        device: A disconnected device.
    """
    names = list(components(device))
    if not names:
        raise NotExercised("it has no bus, camera or device of its own")
    tried = 0
    for name in names:
        one = fresh(device)
        part = components(one)[name]
        with closing(one), patched(part, "disconnect", _closing_badly(part)):
            one.connect()
            if not part.is_connected:
                one.disconnect()
                continue
            tried += 1
            with refused(DeviceError, f"disconnect() while {name} fails to close"):
                one.disconnect()
            expect(not one.is_connected, f"is_connected is True after {name} failed to close")
            still = [n for n, other in components(one).items() if other.is_connected]
            expect(not still, f"when {name} failed to close, these stayed open: {', '.join(still)}")
    if not tried:
        raise NotExercised("none of its parts is opened by connect()")


def _closing_badly(part: Part) -> Callable[..., None]:
    original = part.disconnect

    def disconnect(*arguments: Any, **named: Any) -> None:
        original(*arguments, **named)
        _raise_injected()

    return disconnect


def calibrates_as_dialogue(device: D, answer: Callable[[D, CalibrationStep], str], folder: Path) -> None:
    """Expect that calibrating asks through the dialogue alone: it neither reads stdin nor writes stdout.

    Args:
        device: A disconnected device.
        answer: Plays the operator of the device given first.
        folder: Where calibration files go instead of the home folder.
    """
    config = device.config.model_copy(deep=True, update={"calibration_dir": folder})
    one = type(device)(config)
    heard: list[str] = []

    def listen(prompt: object = "", /) -> str:
        heard.append(str(prompt))
        return ""

    said = io.StringIO()
    with closing(one), ExitStack() as stack:
        one.connect(calibrate=False)
        stack.enter_context(patched(builtins, "input", listen))
        stack.enter_context(contextlib.redirect_stdout(said))
        dialogue = one.calibrate()
        expect(inspect.isgenerator(dialogue), f"calibrate() returned {type(dialogue).__name__}, not a generator")
        with contextlib.suppress(CalibrationError):
            drive(dialogue, lambda step: answer(one, step))
    expect(not heard, f"calibrate() called input({', '.join(map(repr, heard))})")
    expect(not said.getvalue(), f"calibrate() printed {said.getvalue()[:200]!r}")


def torque_is_released(device: Any) -> None:
    """Expect that no motor holds torque after `disconnect`, after an error in use, and after a failed `connect`.

    Args:
        device: A disconnected device.
    """
    buses = [n for n, part in components(device).items() if isinstance(part, MotorsBus)]
    if not buses:
        raise NotExercised("it has no motor bus")
    if not getattr(device.config, "disable_torque_on_disconnect", True):
        raise NotExercised("its settings say that torque stays on")
    for label, session in (("disconnect()", _plain), ("an error in use", _failing), ("a failed connect()", _stuck)):
        session(device)
        for name in buses:
            bus: Any = components(device)[name]
            stiff = _torque_of(bus)
            expect(not stiff, f"after {label} these motors of {name} still hold torque: {', '.join(stiff)}")


def _torque_of(bus: MotorsBus) -> list[str]:
    if not bus.is_connected:
        bus.connect(handshake=False)
    try:
        return [name for name, is_on in bus.torque_state().items() if is_on]
    finally:
        bus.disconnect(disable_torque=False)


def _plain(device: Any) -> None:
    device.connect()
    device.disconnect()


def _failing(device: Any) -> None:
    error = RuntimeError("raised by the conformance suite while the device is in use")
    try:
        with device:
            raise error
    except RuntimeError as seen:
        expect(seen is error, f"the context manager replaced the error in its block by {seen!r}")
    expect(not device.is_connected, "is_connected is True after the context manager was left by an error")


def _stuck(device: Any) -> None:
    original = device.configure

    def configure() -> None:
        original()
        _raise_injected()

    with closing(device), patched(device, "configure", configure), contextlib.suppress(InjectedError):
        device.connect()
