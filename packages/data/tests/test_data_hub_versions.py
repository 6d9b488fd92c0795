# SPDX-License-Identifier: Apache-2.0
"""Which version of a dataset is read: the one asked for, whatever else is here; pushes compare contents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ulna.core.errors import DatasetError
from ulna.data import LeRobotDataset
from ulna.data.hub import _best_tag, pull_dataset, push_dataset
from ulna.data.location import cached_snapshot, dataset_roots
from ulna.testing.hub import LocalHub

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # the client's own, while uploading

REPO = "lab/arm"


@pytest.fixture
def hub(local_hub: LocalHub) -> LocalHub:
    return local_hub


@pytest.fixture
def recorded(scene: Any, tmp_path: Path) -> Path:
    scene().record(tmp_path / "recorded", [4, 5])
    return tmp_path / "recorded"


def test_a_revision_is_not_that_of_a_dataset_recorded_here(hub: LocalHub, recorded: Path, scene: Any) -> None:
    """What was recorded under the same name has no revisions: it is opened without one, and never for one."""
    push_dataset(recorded, REPO)
    scene().record(dataset_roots()[0] / REPO, [1])
    assert LeRobotDataset(REPO).num_frames == 1
    assert LeRobotDataset(REPO, revision="main").num_frames == 9
    assert LeRobotDataset(REPO, revision="main").root != LeRobotDataset(REPO).root


def test_the_tagged_version_is_pulled_although_main_went_on(
    hub: LocalHub, recorded: Path, scene: Any, tmp_path: Path
) -> None:
    """And a pull by name of another revision does not change what the name alone means."""
    tagged = push_dataset(recorded, REPO).commit
    scene().record(tmp_path / "later", [6])
    later = push_dataset(tmp_path / "later", REPO, tag_version=False).commit
    assert tagged != later
    assert pull_dataset(REPO).name == tagged
    assert LeRobotDataset(REPO).num_frames == 9
    assert pull_dataset(REPO, revision="main").name == later
    assert LeRobotDataset(REPO, revision="main").num_frames == 6
    assert LeRobotDataset(REPO).num_frames == 9
    assert [snapshot and snapshot.name for snapshot in map(cached_snapshot, [REPO, REPO], [None, "main"])] == [
        tagged,
        later,
    ]


def test_the_newest_version_that_is_understood_is_chosen() -> None:
    assert _best_tag(REPO, ["v2.1", "v3.0", "v3.9", "v4.0", "demo"]) == "v3.0"
    with pytest.raises(DatasetError, match=r"has the versions v2\.1, v3\.9"):
        _best_tag(REPO, ["v3.9", "v2.1"])


@pytest.mark.parametrize("name", ["meta/info.json", "meta/stats.json", "data/chunk-000/file-000.parquet"])
def test_files_of_equal_size_are_compared_by_content(hub: LocalHub, recorded: Path, name: str) -> None:
    push_dataset(recorded, REPO)
    path = recorded / name
    content = bytearray(path.read_bytes())
    place = content.rindex(b"fake" if name.endswith("info.json") else b"1") if "meta" in name else len(content) // 3
    content[place] ^= 1
    path.write_bytes(content)
    assert push_dataset(recorded, REPO).uploaded == (name,)
    assert hub.dataset(REPO).files()[name] == bytes(content)
