# SPDX-License-Identifier: Apache-2.0
"""A small synthetic robot whose every value and picture tells its episode and frame."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ulna.data import LeRobotDataset, RGBEncoderConfig

NAMES = [f"joint_{i}.pos" for i in range(6)]
CAMERA = "observation.images.cam"


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("ULNA_HOME", str(home / "ulna"))
    monkeypatch.setenv("HF_LEROBOT_HOME", str(home / "lerobot"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # what is not here is an error, not a question to the network


@dataclass(frozen=True)
class Scene:
    """Makes features, frames and whole recordings.

    Attributes:
        camera: None, "image" or "video".
        codec: Video codec.
        size: Height and width.
    """

    camera: str | None = None
    codec: str = "h264"
    size: tuple[int, int] = (48, 64)

    def features(self) -> dict[str, dict[str, Any]]:
        features: dict[str, dict[str, Any]] = {
            "observation.state": {"dtype": "float32", "shape": (6,), "names": NAMES},
            "action": {"dtype": "float32", "shape": (6,), "names": NAMES},
        }
        if self.camera:
            features[CAMERA] = {
                "dtype": self.camera,
                "shape": (*self.size, 3),
                "names": ["height", "width", "channels"],
            }
        return features

    def picture(self, episode: int, frame: int) -> np.ndarray:
        height, width = self.size
        number, bar = (64 * episode + frame) % 1024, width // 10
        picture = np.full((height, width, 3), (90, 120, 150), np.uint8)
        for bit in range(10):
            picture[height - height // 3 :, bit * bar : (bit + 1) * bar] = 235 if number >> (9 - bit) & 1 else 15
        return picture

    def frame(self, episode: int, frame: int) -> dict[str, Any]:
        values: dict[str, Any] = {
            "observation.state": np.full(6, 1000 * episode + frame, np.float32),
            "action": np.arange(6, dtype=np.float32) + 1000 * episode + frame,
            "task": f"task {episode % 2}",
        }
        if self.camera:
            values[CAMERA] = self.picture(episode, frame)
        return values

    def create(self, root: Path, **options: Any) -> LeRobotDataset:
        options.setdefault("rgb_encoder", RGBEncoderConfig(vcodec=self.codec))
        return LeRobotDataset.create("lab/scene", 30, self.features(), root, "fake", **options)

    def add(self, dataset: LeRobotDataset, episode: int, length: int, **options: Any) -> None:
        for frame in range(length):
            dataset.add_frame(self.frame(episode, frame))
        dataset.save_episode(**options)

    def record(self, root: Path, lengths: Sequence[int], *, finalize: bool = True, **options: Any) -> LeRobotDataset:
        dataset = self.create(root, **options)
        for episode, length in enumerate(lengths):
            self.add(dataset, episode, length)
        if finalize:
            dataset.finalize()
        return dataset

    def check(self, root: Path, lengths: Sequence[int], **options: Any) -> LeRobotDataset:
        """Open and compare every value and picture with what was recorded."""
        dataset = LeRobotDataset("lab/scene", root, return_uint8=True, **options)
        assert dataset.meta.episodes["length"] == list(lengths)
        position = 0
        for episode, length in enumerate(lengths):
            for frame in range(length):
                item, wanted = dataset.numpy_item(position), self.frame(episode, frame)
                assert (item["episode_index"], item["frame_index"], item["index"]) == (episode, frame, position)
                assert item["timestamp"] == np.float32(frame / 30)
                assert item["task"] == wanted["task"]
                np.testing.assert_array_equal(item["observation.state"], wanted["observation.state"])
                np.testing.assert_array_equal(item["action"], wanted["action"])
                if self.camera == "image":
                    np.testing.assert_array_equal(item[CAMERA], wanted[CAMERA].transpose(2, 0, 1))
                elif self.camera:
                    assert self.number(item[CAMERA]) == (64 * episode + frame) % 1024
                position += 1
        assert position == len(dataset) == dataset.num_frames
        return dataset

    @staticmethod
    def leave_behind(dataset: LeRobotDataset, root: Path) -> Path:
        """Copy a dataset as a kill leaves it once every picture that was added is on disk, then discard the episode.

        Args:
            dataset: Is recording an episode, which is the only one that is not stored.
            root: Where the copy goes.

        Returns:
            The folder of the unfinished episode in the copy.
        """
        recorder = dataset._recorder
        assert recorder is not None
        episode = recorder._current
        assert episode is not None
        episode.end()
        for worker in episode.workers.values():
            worker.finish()
        shutil.copytree(dataset.root, root)
        dataset.clear_episode_buffer()
        [folder] = (root / ".ulna/staging").iterdir()
        return folder

    def number(self, picture: np.ndarray) -> int:
        _, height, width = picture.shape
        bar, number = width // 10, 0
        for bit in range(10):
            stripe = picture[:, height - height // 3 + 2 : height - 1, bit * bar + 1 : (bit + 1) * bar - 1]
            number = number * 2 + int(stripe.mean() > 127)
        return number


@pytest.fixture
def scene() -> type[Scene]:
    return Scene


@pytest.fixture
def files_below() -> Any:
    def listed(root: Path) -> list[str]:
        return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())

    return listed


@pytest.fixture
def local_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A stand-in of the Hub that the real client connects to."""
    pytest.importorskip("huggingface_hub")
    from huggingface_hub import HfFileSystem, close_session, constants

    from ulna.testing.hub import LocalHub

    with LocalHub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        monkeypatch.setenv("HF_TOKEN", "hf_of_nobody")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no token"))
        HfFileSystem.clear_instance_cache()
        yield server
        close_session()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished dataset of three episodes, not to be changed."""
    root = tmp_path_factory.mktemp("sound") / "set"
    Scene("video").record(root, [3, 4, 2])
    return root


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    shutil.copytree(sound, tmp_path / "set")
    return tmp_path / "set"
