# SPDX-License-Identifier: Apache-2.0
"""Recording from settings: makes the devices, opens or continues the dataset, and hands over to `episodes`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from ulna.control.approach import JumpGuardConfig
from ulna.control.camera_watch import CameraLossConfig
from ulna.control.compatibility import check_names
from ulna.control.episodes import run_recording
from ulna.control.record_plan import EpisodePlan, EpisodeTimes, RecordResult
from ulna.control.runtime import Runtime
from ulna.control.session import RestConfig
from ulna.core.config import Config
from ulna.core.errors import ConfigError, ConfigProblem, DatasetError
from ulna.core.factories import make_robot_from_config, make_teleoperator_from_config
from ulna.core.robots import Robot, RobotConfig
from ulna.core.teleoperators import TeleoperatorConfig

if TYPE_CHECKING:
    from ulna.data import LeRobotDataset

__all__ = [
    "DatasetRecordConfig",
    "DatasetTarget",
    "RecordConfig",
    "check_new",
    "check_upload",
    "dataset_features",
    "open_dataset",
    "push_dataset",
    "record",
]


class DatasetTarget(Config):
    """A dataset to be written, and how it is stored."""

    repo_id: str = Field(
        pattern=r"^[^/\\\s.][^/\\\s]*/[^/\\\s.][^/\\\s]*$", description="Name of the dataset, `user/name`."
    )
    root: Path | None = Field(None, description="Its folder; default: `<Ulna home>/datasets/<repo_id>`.")
    video: bool = Field(True, description="Store cameras as video, else as pictures in the table.")
    vcodec: str = Field("h264", description="Video codec: h264, hevc or av1.")
    encoder_threads: int | None = Field(None, ge=1, description="Threads of each encoder; default: its own choice.")
    encoder_queue_maxsize: int = Field(30, ge=1, description="Frames that may wait for each camera's encoder.")
    push_to_hub: bool = Field(False, description="Upload the dataset at the end.")
    private: bool | None = Field(None, description="Whether the uploaded dataset is private; default: the account's.")
    tags: list[str] | None = Field(None, description="Tags of the uploaded dataset.")


class DatasetRecordConfig(EpisodeTimes, DatasetTarget):
    """The dataset, and what is recorded into it."""

    fps: int = Field(30, gt=0, le=10_000, description="Frames a second.")


class RecordConfig(Config):
    """Settings of `ulna record`."""

    robot: RobotConfig = Field(description="The robot that follows.")
    teleop: TeleoperatorConfig = Field(description="The teleoperator that leads.")
    dataset: DatasetRecordConfig = Field(description="The dataset, and what is recorded into it.")
    resume: bool = Field(False, description="Continue the dataset until it has `dataset.num_episodes` episodes in all.")
    recover: bool | None = Field(
        None,
        description="What becomes of an episode that an interrupted recording left: kept (true) or removed (false).",
    )
    guard: JumpGuardConfig = Field(default_factory=JumpGuardConfig, description="The first command far from the robot.")
    camera_loss: CameraLossConfig = Field(default_factory=CameraLossConfig, description="Silent cameras.")
    rest: RestConfig = Field(default_factory=RestConfig, description="Return to rest before torque is released.")
    display_data: bool = Field(False, description="Show every joint below the rate, on a terminal.")

    @property
    def plan(self) -> EpisodePlan:
        """What `run_recording` needs of it."""
        times = {name: getattr(self.dataset, name) for name in EpisodeTimes.model_fields}
        return EpisodePlan(**times, guard=self.guard, camera_loss=self.camera_loss, rest=self.rest)


def record(config: RecordConfig, runtime: Runtime | None = None) -> RecordResult:
    """Record a dataset, or continue one.

    Args:
        config: Settings.
        runtime: Time, keys, stop and observers.

    Returns:
        What was recorded.

    Raises:
        ConfigError: An upload is asked for without the Hub's client; nothing was connected.
        DatasetError: The dataset exists and `resume` is off, or the other way round; or it has all episodes already.
        IncompatibleError: Teleoperator, robot and dataset do not fit together; nothing was connected.
        RecordingInterruptedError: The hardware, the guard or the dataset failed; `result` says what is safe.
        KeyboardInterrupt: Ctrl-C was pressed twice.
    """
    robot, teleop = make_robot_from_config(config.robot), make_teleoperator_from_config(config.teleop)
    _check_target(config, robot)

    def dataset() -> LeRobotDataset:
        recover = bool(config.recover)
        return open_dataset(config.dataset, robot, config.dataset.fps, resume=config.resume, recover=recover)

    result = run_recording(robot, teleop, dataset, config.plan, runtime)
    if config.dataset.push_to_hub and result.written:
        push_dataset(config.dataset)
    return result


def open_dataset(
    config: DatasetTarget, robot: Robot, fps: int, *, resume: bool = False, recover: bool = False
) -> LeRobotDataset:
    """Open the dataset for recording.

    Args:
        config: Settings of the dataset.
        robot: Its features become those of a new dataset.
        fps: Frames a second of a new dataset.
        resume: Whether to continue an existing one.
        recover: Whether an episode that an interrupted recording left is stored first; else it is removed.

    Returns:
        The dataset, open for recording.

    Raises:
        DatasetError: It exists, or does not, contrary to `resume`.
    """
    from ulna.data import LeRobotDataset, RGBEncoderConfig

    encoder = RGBEncoderConfig(vcodec=config.vcodec, threads=config.encoder_threads)
    if resume:
        return LeRobotDataset.resume(
            config.repo_id,
            config.root,
            rgb_encoder=encoder,
            encoder_queue_maxsize=config.encoder_queue_maxsize,
            recover=recover,
        )
    return LeRobotDataset.create(
        config.repo_id,
        fps,
        dataset_features(robot, use_videos=config.video),
        root=config.root,
        robot_type=robot.robot_type,
        use_videos=config.video,
        rgb_encoder=encoder,
        encoder_queue_maxsize=config.encoder_queue_maxsize,
    )


def dataset_features(robot: Robot, *, use_videos: bool = True) -> dict[str, dict[str, Any]]:
    """Return the features of a dataset recorded with a robot.

    Args:
        robot: The robot.
        use_videos: Whether cameras are stored as video.

    Returns:
        Key to `dtype`, `shape` and `names`.
    """
    from ulna.data import hw_features_to_dataset_features

    return hw_features_to_dataset_features(robot.observation_features, robot.action_features, use_videos)


def _check_target(config: RecordConfig, robot: Robot) -> None:
    """Refuse what cannot work before any device is opened."""
    check_upload(config.dataset)
    if config.resume:
        _check_continued(config.dataset, robot)
        _check_unfinished(config)
    else:
        check_new(config.dataset)


def check_new(target: DatasetTarget) -> None:
    """Refuse a place that is taken.

    Args:
        target: The dataset to be written.

    Raises:
        DatasetError: Its folder holds something already.
    """
    from ulna.data.location import new_root

    try:
        new_root(target.repo_id, target.root)
    except DatasetError as error:
        hint = "Continue it with --resume=true, or choose another --dataset.root or --dataset.repo_id"
        raise DatasetError(error.message, hint=hint) from error


def check_upload(target: DatasetTarget) -> None:
    """Refuse an upload that would fail only after everything was recorded.

    Args:
        target: The dataset to be written.

    Raises:
        ConfigError: The upload is asked for, and the Hub's client is not installed.
    """
    if target.push_to_hub and find_spec("huggingface_hub") is None:
        text = "needs the Hub's client: pip install 'ulna-data[hub]'"
        raise ConfigError([ConfigProblem("dataset.push_to_hub", True, text)], title="the dataset's settings")


def _check_continued(wanted: DatasetRecordConfig, robot: Robot) -> None:
    from ulna.data import LeRobotDatasetMetadata

    meta = LeRobotDatasetMetadata(wanted.repo_id, wanted.root, local_only=True)
    if meta.total_episodes >= wanted.num_episodes:
        raise DatasetError(
            f"{wanted.repo_id} has {meta.total_episodes} episodes, and {wanted.num_episodes} are wanted in all.",
            hint=f"To record 10 more: --dataset.num_episodes={meta.total_episodes + 10}",
        )
    if meta.fps != wanted.fps:
        raise DatasetError(
            f"{wanted.repo_id} is recorded at {meta.fps} Hz, not at {wanted.fps} Hz.",
            hint=f"Use --dataset.fps={meta.fps}",
        )
    theirs = {key: f["names"] for key, f in meta.features.items() if key.startswith(("observation.", "action"))}
    ours = {key: f["names"] for key, f in dataset_features(robot).items()}
    title = f"the dataset {wanted.repo_id}"
    check_names(theirs, ours, needs=title, offers=f"the robot {robot.robot_type}")
    for key in ("observation.state", "action"):
        check_names(
            theirs.get(key) or (),
            ours.get(key) or (),
            needs=f"{key} of {title}",
            offers=f"the robot {robot.robot_type}",
        )


def _check_unfinished(config: RecordConfig) -> None:
    """Refuse to go on while frames could still be recovered and nobody has said what becomes of them."""
    from ulna.data import LeRobotDatasetMetadata

    left = [e for e in LeRobotDatasetMetadata(config.dataset.repo_id, config.dataset.root).unfinished if e.frames]
    if left and config.recover is None:
        frames = ", ".join(f"episode {e.episode} with {e.frames} frames" for e in left)
        raise DatasetError(
            f"{config.dataset.repo_id} was interrupted in {frames}, which can be recovered.",
            hint="Keep it as an episode: --recover=true   Record it again: --recover=false",
        )


def push_dataset(config: DatasetTarget) -> None:
    """Upload a finished dataset.

    Args:
        config: Which dataset, and how.

    Raises:
        DatasetError: It is not there, or the Hub refused; the dataset is safe, and the error tells how to go on.
    """
    from ulna.data import LeRobotDataset

    LeRobotDataset(config.repo_id, config.root).push_to_hub(private=config.private, tags=config.tags)
