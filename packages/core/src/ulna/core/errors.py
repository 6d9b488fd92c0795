# SPDX-License-Identifier: Apache-2.0
"""The whole error tree of Ulna. Distributions raise these or derive from them; nothing raises a bare `Exception`.

UlnaError
├── ConfigError (ValueError)               a setting is wrong; `problems` lists every one with its dotted path
├── FeatureError (ValueError)              data does not fit its declared feature
│   └── ActionError                        an action is refused before any driver sees it
├── PluginError (RuntimeError)
│   ├── PluginNotFoundError (LookupError)  nothing of that kind and type is installed
│   ├── PluginConflictError                several distributions offer the same type
│   ├── PluginUnusableError                found, but disabled, incompatible or invalid
│   └── PluginLoadError (ImportError)      importing it failed
├── MissingDependencyError (ImportError)   an optional library is not installed
├── DeviceError (ConnectionError)
│   ├── DeviceNotConnectedError
│   ├── DeviceAlreadyConnectedError
│   ├── DeviceConnectError                 could not be opened
│   ├── DeviceDisconnectError              closed, but parts of it failed to close; `failures`
│   ├── MotorCommunicationError            a motor did not answer, or answered garbage
│   ├── MotorStatusError (RuntimeError)    a motor reports a fault
│   ├── MissingMotorsError                 ids that should be on the bus are not
│   ├── FrameTimeoutError (TimeoutError)   no frame in time
│   └── StaleFrameError (TimeoutError)     the newest frame is too old
├── CalibrationError (ValueError)          a calibration is missing, degenerate or foreign
├── DatasetError (ValueError)
│   ├── DatasetFormatError                 the files are not what the format says
│   ├── DatasetNotFinishedError            a recording has not been finalized
│   └── FrameTimestampError                no frame of a video is near enough to the asked time
├── CheckpointError (ValueError)           weights or settings of a checkpoint do not fit
├── ProcessorError (ValueError)            a processing step cannot be built or applied
└── ControlError (RuntimeError)            a control loop had to stop
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

__all__ = [
    "ActionError",
    "CalibrationError",
    "CheckpointError",
    "ConfigError",
    "ConfigProblem",
    "ControlError",
    "DatasetError",
    "DatasetFormatError",
    "DatasetNotFinishedError",
    "DeviceAlreadyConnectedError",
    "DeviceConnectError",
    "DeviceDisconnectError",
    "DeviceError",
    "DeviceNotConnectedError",
    "FeatureError",
    "FrameTimeoutError",
    "FrameTimestampError",
    "MissingDependencyError",
    "MissingMotorsError",
    "MotorCommunicationError",
    "MotorStatusError",
    "PluginConflictError",
    "PluginError",
    "PluginLoadError",
    "PluginNotFoundError",
    "PluginUnusableError",
    "ProcessorError",
    "StaleFrameError",
    "UlnaError",
    "nearest",
]


def nearest(name: str, candidates: Sequence[str]) -> str | None:
    """Return the candidate spelled most like `name`, or None when nothing is close.

    Args:
        name: What was written.
        candidates: What would have been accepted.

    Returns:
        The closest candidate.
    """
    folded = {c.lower().replace("-", "_"): c for c in candidates}
    hits = get_close_matches(name.lower().replace("-", "_"), list(folded), n=1, cutoff=0.6)
    return folded[hits[0]] if hits else None


class UlnaError(Exception):
    """Base of every error raised by Ulna.

    Args:
        message: What failed with which value, and what was expected.
        hint: What to do next, a command where there is one.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = message
        self.hint = hint
        super().__init__(message if hint is None else f"{message}\n{hint}")


_LONGEST_VALUE = 300


@dataclass(frozen=True)
class ConfigProblem:
    """One thing wrong in a configuration.

    Attributes:
        path: Dotted path of the setting, `robot.port`.
        value: What was given; None when it is missing.
        expected: What is accepted.
        suggestion: The nearest accepted name, if any.
        origin: Where the value came from (`--robot.port`, a file name, `default`), if known.
    """

    path: str
    value: object
    expected: str
    suggestion: str | None = None
    origin: str | None = None

    def __str__(self) -> str:
        value = repr(self.value)
        if len(value) > _LONGEST_VALUE:  # a whole settings file, say
            value = f"{value[:_LONGEST_VALUE]}..."
        given = "" if self.value is None else f" (got {value}{f' from {self.origin}' if self.origin else ''})"
        near = f"; did you mean {self.suggestion!r}?" if self.suggestion else ""
        return f"{self.path or '(top level)'}: {self.expected}{given}{near}"


class ConfigError(UlnaError, ValueError):
    """One or more settings are wrong; all of them are reported at once.

    Args:
        problems: Every problem found.
        title: What was being configured.
        hint: What to do next.
    """

    def __init__(self, problems: Sequence[ConfigProblem], *, title: str = "settings", hint: str | None = None) -> None:
        self.problems = tuple(problems)
        lines = "\n".join(f"  {p}" for p in self.problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__(f"{count} in the {title}:\n{lines}", hint=hint)


class FeatureError(UlnaError, ValueError):
    """A value does not fit the feature it was given for."""


class ActionError(FeatureError):
    """An action was refused before any driver saw it.

    Args:
        message: What is wrong.
        missing: Declared keys that were not given.
        unknown: Given keys that are not declared.
        not_finite: Keys whose value is NaN or infinite.
        hint: What to do next.
    """

    def __init__(
        self,
        message: str,
        *,
        missing: Sequence[str] = (),
        unknown: Sequence[str] = (),
        not_finite: Sequence[str] = (),
        hint: str | None = None,
    ) -> None:
        self.missing, self.unknown, self.not_finite = tuple(missing), tuple(unknown), tuple(not_finite)
        super().__init__(message, hint=hint)


class PluginError(UlnaError, RuntimeError):
    """A plugin cannot be used.

    Args:
        message: What failed.
        kind: Plugin kind, `robots`.
        type: Type string, `so101_follower`.
        distribution: Name of the distribution, if known.
        hint: What to do next.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str | None = None,
        type: str | None = None,
        distribution: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.kind, self.type, self.distribution = kind, type, distribution
        super().__init__(message, hint=hint)


class PluginNotFoundError(PluginError, LookupError):
    """Nothing installed offers this type."""


class PluginConflictError(PluginError):
    """Several distributions offer this type and none is preferred."""


class PluginUnusableError(PluginError):
    """The plugin was found but is disabled, incompatible or invalid."""


class PluginLoadError(PluginError, ImportError):
    """Importing a plugin failed; the cause is chained.

    Python 3.11's ImportError takes no extra positional arguments here, so both bases share one message.
    """


class MissingDependencyError(UlnaError, ImportError):
    """An optional library is needed and not installed.

    Args:
        library: Name of the library.
        needed_for: What needs it.
        install: The command that installs it.
    """

    def __init__(self, library: str, needed_for: str, install: str) -> None:
        self.library, self.needed_for, self.install = library, needed_for, install
        super().__init__(f"{needed_for} needs {library}, which is not installed.", hint=f"Install it with: {install}")


class DeviceError(UlnaError, ConnectionError):
    """Something about a device. `device` names it."""

    def __init__(self, message: str, *, device: str | None = None, hint: str | None = None) -> None:
        self.device = device
        super().__init__(message, hint=hint)


class DeviceNotConnectedError(DeviceError):
    """The call needs a connected device."""


class DeviceAlreadyConnectedError(DeviceError):
    """`connect` was called on a connected device."""


class DeviceConnectError(DeviceError):
    """A device could not be opened."""


class DeviceDisconnectError(DeviceError):
    """Every part was closed or tried; some failed.

    Args:
        message: Summary.
        failures: Part name to the error it raised.
        device: Which device.
        hint: What to do next.
    """

    def __init__(
        self,
        message: str,
        *,
        failures: Mapping[str, BaseException],
        device: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.failures = dict(failures)
        super().__init__(message, device=device, hint=hint)


class MotorCommunicationError(DeviceError):
    """A motor did not answer within the bounded retries, or answered garbage.

    Args:
        message: What failed.
        motors: Names of the motors concerned.
        device: The bus.
        hint: What to do next.
    """

    def __init__(
        self, message: str, *, motors: Sequence[str] = (), device: str | None = None, hint: str | None = None
    ) -> None:
        self.motors = tuple(motors)
        super().__init__(message, device=device, hint=hint)


class MotorStatusError(MotorCommunicationError, RuntimeError):
    """A motor answered with a fault (overload, overheating, voltage, ...).

    Args:
        message: What failed.
        faults: Motor name to the names of its faults.
        device: The bus.
        hint: What to do next.
    """

    def __init__(
        self, message: str, *, faults: Mapping[str, Sequence[str]], device: str | None = None, hint: str | None = None
    ) -> None:
        self.faults = {name: tuple(items) for name, items in faults.items()}
        super().__init__(message, motors=tuple(self.faults), device=device, hint=hint)


class MissingMotorsError(MotorCommunicationError, RuntimeError):
    """Motors that should be on the bus do not answer, or are another model.

    Args:
        message: What was expected and what was found.
        missing: Names of motors that do not answer.
        wrong_model: Motor name to the model number that answered.
        device: The bus.
        hint: What to do next.
    """

    def __init__(
        self,
        message: str,
        *,
        missing: Sequence[str] = (),
        wrong_model: Mapping[str, int] | None = None,
        device: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.missing, self.wrong_model = tuple(missing), dict(wrong_model or {})
        super().__init__(message, motors=(*self.missing, *self.wrong_model), device=device, hint=hint)


class FrameTimeoutError(DeviceError, TimeoutError):
    """A camera delivered no new frame in time."""


class StaleFrameError(DeviceError, TimeoutError):
    """The newest frame of a camera is older than allowed.

    Args:
        message: What failed.
        age_ms: Age of the newest frame in milliseconds.
        device: The camera.
        hint: What to do next.
    """

    def __init__(self, message: str, *, age_ms: float, device: str | None = None, hint: str | None = None) -> None:
        self.age_ms = age_ms
        super().__init__(message, device=device, hint=hint)


class CalibrationError(UlnaError, ValueError):
    """A calibration is missing, degenerate, or belongs to other motors.

    Args:
        message: What is wrong.
        motors: Names of the motors concerned.
        hint: What to do next.
    """

    def __init__(self, message: str, *, motors: Sequence[str] = (), hint: str | None = None) -> None:
        self.motors = tuple(motors)
        super().__init__(message, hint=hint)


class DatasetError(UlnaError, ValueError):
    """A dataset cannot be written, read or edited as asked."""


class DatasetFormatError(DatasetError):
    """Files of a dataset contradict the format or one another."""


class DatasetNotFinishedError(DatasetError):
    """A recording has not been finalized (or was interrupted)."""


class FrameTimestampError(DatasetError):
    """No frame of a video lies within the tolerance of the asked time."""


class CheckpointError(UlnaError, ValueError):
    """Weights or settings of a checkpoint do not fit the class that loads them.

    Args:
        message: What does not fit.
        missing: Keys that the checkpoint lacks.
        unexpected: Keys that nothing takes.
        hint: What to do next.
    """

    def __init__(
        self, message: str, *, missing: Sequence[str] = (), unexpected: Sequence[str] = (), hint: str | None = None
    ) -> None:
        self.missing, self.unexpected = tuple(missing), tuple(unexpected)
        super().__init__(message, hint=hint)


class ProcessorError(UlnaError, ValueError):
    """A processing step cannot be built from its saved form, or cannot handle its input."""


class ControlError(UlnaError, RuntimeError):
    """A control loop had to stop."""
