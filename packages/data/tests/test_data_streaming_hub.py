# SPDX-License-Identifier: Apache-2.0
"""Streams from the Hub through the real client, against a stand-in of the Hub on this machine."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from ulna.core.errors import DatasetError
from ulna.data import StreamingLeRobotDataset
from ulna.data.hub import pull_dataset
from ulna.data.remote import RemoteFiles
from ulna.testing.hub import LocalHub, Repository

REPO = "lab/arm"


@pytest.fixture
def hub(local_hub: LocalHub, tmp_path: Path, scene: Any) -> LocalHub:
    """The stand-in, with a dataset of 3 episodes and 9 frames in several files."""
    scene("video").record(tmp_path / "set", [2, 3, 4], video_files_size_in_mb=0.001, data_files_size_in_mb=0.001)
    found = [path for path in (tmp_path / "set").rglob("*") if path.is_file()]
    files = {path.relative_to(tmp_path / "set").as_posix(): path.read_bytes() for path in found}
    repository = Repository()
    repository.tags["v3.0"] = repository.commit("main", files, "a dataset")
    local_hub.repositories[f"datasets/{REPO}"] = repository
    return local_hub


def numbers(stream: Any) -> list[int]:
    return [int(item["index"]) for item in stream]


def test_a_stream_from_the_hub(hub: LocalHub) -> None:
    """Metadata come first, the other files once when they are needed, and only of the episodes asked for."""
    stream = StreamingLeRobotDataset(REPO, shuffle=False)
    before = hub.requests["GET resolve"]
    assert numbers(stream) == list(range(9))
    assert hub.requests["GET resolve"] - before == 6
    chosen = StreamingLeRobotDataset(REPO, episodes=[1], shuffle=False)
    before = hub.requests["GET resolve"]
    assert numbers(chosen) == [2, 3, 4]
    assert hub.requests["GET resolve"] - before == 2


def test_readers_share_the_hub(hub: LocalHub) -> None:
    """Copies of the stream, as workers get them, fetch their own shares; no process is forked beside the server."""
    stream = StreamingLeRobotDataset(REPO, buffer_size=2)
    copies = [pickle.loads(pickle.dumps(stream)) for _ in range(2)]
    shares = [numbers(copy.read_part(part, 2)) for part, copy in enumerate(copies)]
    assert sorted(shares[0] + shares[1]) == list(range(9))
    assert [path.name for path in stream.root.iterdir()] == ["meta"]


def test_the_commit_is_held(hub: LocalHub) -> None:
    """A push meanwhile does not mix two states of the dataset."""
    stream = StreamingLeRobotDataset(REPO, revision="main", shuffle=False)
    repository = hub.dataset(REPO)
    repository.commit("main", {"README.md": b"emptied"}, "take everything out")
    assert numbers(stream) == list(range(9))


def test_a_server_that_fails_is_asked_again(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer with an error of the server is no end of the stream."""
    monkeypatch.setattr(RemoteFiles, "first_wait_s", 0)
    stream = StreamingLeRobotDataset(REPO, shuffle=False)
    failures = [500, 500]
    hub.fail = lambda what, path: failures.pop() if failures and what == "GET resolve" else None
    assert numbers(stream) == list(range(9))
    assert not failures


def test_what_was_pulled_is_read_here(hub: LocalHub) -> None:
    """A dataset that was pulled whole needs no connection; of one pulled in part, the rest is streamed."""
    pull_dataset(REPO, episodes=[0])
    assert not StreamingLeRobotDataset(REPO, episodes=[0]).is_remote
    part = StreamingLeRobotDataset(REPO, shuffle=False)
    assert part.is_remote
    assert numbers(part) == list(range(9))
    pull_dataset(REPO)
    asked = hub.requests.total()
    whole = StreamingLeRobotDataset(REPO, shuffle=False)
    assert numbers(whole) == list(range(9))
    assert hub.requests.total() == asked
    assert StreamingLeRobotDataset(REPO, force_cache_sync=True).is_remote


def test_a_name_that_is_not_there(hub: LocalHub) -> None:
    """The name is told, and what to check."""
    with pytest.raises(DatasetError, match=r"(?s)lab/nothing.*Check the name"):
        StreamingLeRobotDataset("lab/nothing")
