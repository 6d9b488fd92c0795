# SPDX-License-Identifier: Apache-2.0
"""Real-time loops: teleoperate, record, replay, roll out, calibrate. Names resolve when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.lazy import lazy_names

if TYPE_CHECKING:
    from ulna.control.approach import JumpError as JumpError
    from ulna.control.approach import JumpGuard as JumpGuard
    from ulna.control.approach import JumpGuardConfig as JumpGuardConfig
    from ulna.control.approach import move_to as move_to
    from ulna.control.calibrating import calibrate as calibrate
    from ulna.control.calibrating import setup_motors as setup_motors
    from ulna.control.calibrating import watch_limits as watch_limits
    from ulna.control.camera_watch import CameraLossConfig as CameraLossConfig
    from ulna.control.camera_watch import CameraLostError as CameraLostError
    from ulna.control.compatibility import IncompatibleError as IncompatibleError
    from ulna.control.driving import Processors as Processors
    from ulna.control.episodes import run_recording as run_recording
    from ulna.control.interrupts import Interrupts as Interrupts
    from ulna.control.interrupts import StopRequest as StopRequest
    from ulna.control.keyboard import TerminalKeys as TerminalKeys
    from ulna.control.keyboard import open_keys as open_keys
    from ulna.control.logbook import EpisodeReport as EpisodeReport
    from ulna.control.logbook import read_reports as read_reports
    from ulna.control.loop import LoopStats as LoopStats
    from ulna.control.loop import RateLoop as RateLoop
    from ulna.control.policy_engine import ActionSource as ActionSource
    from ulna.control.policy_engine import PolicyEngine as PolicyEngine
    from ulna.control.policy_engine import PolicyNames as PolicyNames
    from ulna.control.record_plan import EpisodePlan as EpisodePlan
    from ulna.control.record_plan import RecordingInterruptedError as RecordingInterruptedError
    from ulna.control.record_plan import RecordResult as RecordResult
    from ulna.control.recording import DatasetRecordConfig as DatasetRecordConfig
    from ulna.control.recording import DatasetTarget as DatasetTarget
    from ulna.control.recording import RecordConfig as RecordConfig
    from ulna.control.recording import dataset_features as dataset_features
    from ulna.control.recording import open_dataset as open_dataset
    from ulna.control.recording import record as record
    from ulna.control.replaying import ReplayConfig as ReplayConfig
    from ulna.control.replaying import ReplayResult as ReplayResult
    from ulna.control.replaying import ReplaySettings as ReplaySettings
    from ulna.control.replaying import replay as replay
    from ulna.control.replaying import run_replay as run_replay
    from ulna.control.rolling_out import RolloutConfig as RolloutConfig
    from ulna.control.rolling_out import rollout as rollout
    from ulna.control.rollout_plan import RolloutEpisode as RolloutEpisode
    from ulna.control.rollout_plan import RolloutResult as RolloutResult
    from ulna.control.rollout_plan import RolloutSettings as RolloutSettings
    from ulna.control.rollouts import run_engine as run_engine
    from ulna.control.rollouts import run_rollout as run_rollout
    from ulna.control.runtime import KeySource as KeySource
    from ulna.control.runtime import NoKeys as NoKeys
    from ulna.control.runtime import Phase as Phase
    from ulna.control.runtime import Runtime as Runtime
    from ulna.control.runtime import Tick as Tick
    from ulna.control.session import RestConfig as RestConfig
    from ulna.control.session import Session as Session
    from ulna.control.teleoperation import TeleoperateConfig as TeleoperateConfig
    from ulna.control.teleoperation import TeleoperateResult as TeleoperateResult
    from ulna.control.teleoperation import TeleoperateSettings as TeleoperateSettings
    from ulna.control.teleoperation import run_teleoperation as run_teleoperation
    from ulna.control.teleoperation import teleoperate as teleoperate

_HOMES = {
    "approach": ("JumpError", "JumpGuard", "JumpGuardConfig", "move_to"),
    "calibrating": ("calibrate", "setup_motors", "watch_limits"),
    "camera_watch": ("CameraLossConfig", "CameraLostError"),
    "compatibility": ("IncompatibleError",),
    "driving": ("Processors",),
    "episodes": ("run_recording",),
    "interrupts": ("Interrupts", "StopRequest"),
    "keyboard": ("TerminalKeys", "open_keys"),
    "logbook": ("EpisodeReport", "read_reports"),
    "loop": ("LoopStats", "RateLoop"),
    "policy_engine": ("ActionSource", "PolicyEngine", "PolicyNames"),
    "record_plan": ("EpisodePlan", "RecordResult", "RecordingInterruptedError"),
    "recording": ("DatasetRecordConfig", "DatasetTarget", "RecordConfig", "dataset_features", "open_dataset", "record"),
    "replaying": ("ReplayConfig", "ReplayResult", "ReplaySettings", "replay", "run_replay"),
    "rolling_out": ("RolloutConfig", "rollout"),
    "rollout_plan": ("RolloutEpisode", "RolloutResult", "RolloutSettings"),
    "rollouts": ("run_engine", "run_rollout"),
    "runtime": ("KeySource", "NoKeys", "Phase", "Runtime", "Tick"),
    "session": ("RestConfig", "Session"),
    "teleoperation": (
        "TeleoperateConfig",
        "TeleoperateResult",
        "TeleoperateSettings",
        "run_teleoperation",
        "teleoperate",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ActionSource",
    "CameraLossConfig",
    "CameraLostError",
    "DatasetRecordConfig",
    "DatasetTarget",
    "EpisodePlan",
    "EpisodeReport",
    "IncompatibleError",
    "Interrupts",
    "JumpError",
    "JumpGuard",
    "JumpGuardConfig",
    "KeySource",
    "LoopStats",
    "NoKeys",
    "Phase",
    "PolicyEngine",
    "PolicyNames",
    "Processors",
    "RateLoop",
    "RecordConfig",
    "RecordResult",
    "RecordingInterruptedError",
    "ReplayConfig",
    "ReplayResult",
    "ReplaySettings",
    "RestConfig",
    "RolloutConfig",
    "RolloutEpisode",
    "RolloutResult",
    "RolloutSettings",
    "Runtime",
    "Session",
    "StopRequest",
    "TeleoperateConfig",
    "TeleoperateResult",
    "TeleoperateSettings",
    "TerminalKeys",
    "Tick",
    "calibrate",
    "dataset_features",
    "move_to",
    "open_dataset",
    "open_keys",
    "read_reports",
    "record",
    "replay",
    "rollout",
    "run_engine",
    "run_recording",
    "run_replay",
    "run_rollout",
    "run_teleoperation",
    "setup_motors",
    "teleoperate",
    "watch_limits",
]

__getattr__, __dir__ = lazy_names(globals(), _HOME_OF)
