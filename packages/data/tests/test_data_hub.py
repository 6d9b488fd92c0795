# SPDX-License-Identifier: Apache-2.0
"""Pushing and pulling through the real client, against a stand-in of the Hub on this machine."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ulna.core.errors import DatasetError, DatasetNotFinishedError
from ulna.data import LeRobotDataset, LeRobotDatasetMetadata, MultiLeRobotDataset
from ulna.data.commands import app
from ulna.data.hub import pull_dataset, push_dataset
from ulna.testing.hub import LocalHub

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # the client's own, while uploading

REPO = "lab/arm"


@pytest.fixture
def hub(local_hub: LocalHub) -> LocalHub:
    return local_hub


@pytest.fixture
def recorded(scene: Any, tmp_path: Path) -> Path:
    scene("video").record(tmp_path / "set", [2, 3, 4], video_files_size_in_mb=0.002, data_files_size_in_mb=0.01)
    return tmp_path / "set"


def contents(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def test_what_was_pushed_is_pulled(hub: LocalHub, recorded: Path, scene: Any) -> None:
    done = push_dataset(recorded, REPO, private=True)
    repository = hub.dataset(REPO)
    files = repository.files()
    card = files.pop("README.md").decode()
    assert files == contents(recorded)
    assert repository.private is True
    assert repository.tags == {"v3.0": done.commit}
    assert card.startswith('---\nlicense: "apache-2.0"')
    assert '"LeRobot"' in card
    assert done.url == f"{hub.url}/datasets/{REPO}"
    folder = pull_dataset(REPO)
    pulled = contents(folder)
    del pulled["README.md"]
    assert pulled == contents(recorded)
    scene("video").check(folder, [2, 3, 4])


@pytest.mark.parametrize("what", ["POST create", "POST preupload", "POST lfs", "PUT lfs", "POST commit", "POST tag"])
def test_whatever_fails_tells_how_to_go_on(hub: LocalHub, recorded: Path, what: str) -> None:
    hub.fail = lambda found, path: 403 if found == what else None
    with pytest.raises(DatasetError, match=f"Pushing {REPO} failed") as caught:
        push_dataset(recorded, REPO)
    assert f"Go on with: ulna dataset push {recorded} {REPO}" in str(caught.value)
    hub.fail = lambda found, path: None
    assert push_dataset(recorded, REPO).commit == hub.dataset(REPO).tags["v3.0"]


def test_second_push_sends_nothing(hub: LocalHub, recorded: Path) -> None:
    first = push_dataset(recorded, REPO)
    hub.requests.clear()
    second = push_dataset(recorded, REPO)
    assert second.uploaded == ()
    assert second.kept == len(contents(recorded))
    assert second.commit == first.commit
    assert hub.requests["POST commit"] == hub.requests["PUT lfs"] == 0


def test_push_that_failed_goes_on_where_it_stopped(
    hub: LocalHub, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network ends after some files; nothing is lost, and the error tells the command that goes on."""
    monkeypatch.setattr("ulna.data.hub._BATCH_FILES", 2)
    whole = contents(recorded)
    hub.fail = lambda what, path: 403 if what == "POST commit" and hub.requests[what] >= 3 else None
    with pytest.raises(DatasetError) as caught:
        push_dataset(recorded, REPO)
    assert f"ulna dataset push {recorded} {REPO}" in str(caught.value)
    assert contents(recorded) == whole
    there = hub.dataset(REPO).files()
    assert 0 < len(there) < len(whole)
    assert "meta/info.json" not in there
    assert hub.dataset(REPO).tags == {}
    hub.fail = lambda what, path: None
    hub.requests.clear()
    done = push_dataset(recorded, REPO)
    assert done.kept == len(there)
    assert not set(done.uploaded) & set(there)
    files = hub.dataset(REPO).files()
    del files["README.md"]
    assert files == whole


def test_edited_dataset_replaces_the_old_one(hub: LocalHub, recorded: Path, scene: Any, tmp_path: Path) -> None:
    push_dataset(recorded, REPO)
    before = hub.dataset(REPO).tags["v3.0"]
    scene("video").record(tmp_path / "new", [5])
    done = push_dataset(tmp_path / "new", REPO)
    files = hub.dataset(REPO).files()
    del files["README.md"]
    assert files == contents(tmp_path / "new")
    assert hub.dataset(REPO).tags == {"v3.0": done.commit}
    assert LeRobotDataset(REPO).num_episodes == 1
    assert LeRobotDataset(REPO, revision=before).num_episodes == 3


def test_part_of_a_dataset_leaves_the_rest_there(hub: LocalHub, recorded: Path) -> None:
    push_dataset(recorded, REPO)
    push_dataset(recorded, REPO, push_videos=False)
    push_dataset(recorded, REPO, allow_patterns="meta/*")
    assert set(contents(recorded)) <= set(hub.dataset(REPO).files())


def test_branch_is_created_and_main_stays(hub: LocalHub, recorded: Path) -> None:
    push_dataset(recorded, REPO, branch="trial", tag_version=False, tags=["so101"], license="mit")
    repository = hub.dataset(REPO)
    assert repository.files() == {}
    assert "meta/info.json" in repository.files("trial")
    assert 'license: "mit"' in repository.files("trial")["README.md"].decode()
    assert LeRobotDataset(REPO, revision="trial").num_frames == 9


def test_unfinished_data_is_refused(hub: LocalHub, recorded: Path, scene: Any) -> None:
    dataset = LeRobotDataset.resume("lab/scene", recorded)
    try:
        with pytest.raises(DatasetNotFinishedError, match="its recording is open"):
            push_dataset(recorded, REPO)
    finally:
        dataset.finalize()
    next((recorded / "videos").rglob("*.mp4")).unlink()
    with pytest.raises(DatasetNotFinishedError, match="are not whole"):
        push_dataset(recorded, REPO)
    assert hub.requests.total() == 0


@pytest.mark.parametrize("lost", [0, 2])
def test_a_dataset_without_some_of_its_files_is_refused(hub: LocalHub, scene: Any, tmp_path: Path, lost: int) -> None:
    """Also where it is the last episode, which opening leaves out."""
    scene().record(tmp_path / "set", [2, 3, 1], data_files_size_in_mb=1e-4)
    (tmp_path / f"set/data/chunk-000/file-{lost:03d}.parquet").unlink()
    with pytest.raises(DatasetNotFinishedError, match=rf"episodes \[{lost}\] are not whole"):
        push_dataset(tmp_path / "set", REPO)
    assert hub.requests.total() == 0


def test_marks_and_hidden_files_stay_here(hub: LocalHub, recorded: Path) -> None:
    for name in ("meta/ulna_marks.json", ".cache/x", "images/a/b.png", ".DS_Store"):
        (recorded / name).parent.mkdir(parents=True, exist_ok=True)
        (recorded / name).write_text("{}")
    push_dataset(recorded, REPO)
    assert not {name for name in hub.dataset(REPO).files() if "marks" in name or name[0] == "." or "images/a" in name}


def test_local_data_never_leads_to_the_network(hub: LocalHub, recorded: Path, tmp_path: Path) -> None:
    """A folder that is here is opened, an unfinished or broken one complains: nobody asks the Hub."""
    LeRobotDataset(REPO, recorded)
    (recorded / "meta/info.json").unlink()
    with pytest.raises(DatasetError, match="is not a dataset"):
        LeRobotDataset(REPO, recorded)
    with pytest.raises(DatasetError, match="not on this machine"):
        LeRobotDataset(REPO, tmp_path / "elsewhere")
    with pytest.raises(DatasetError, match="not on this machine"):
        LeRobotDataset.resume(REPO)
    assert hub.requests.total() == 0


def test_dataset_that_is_not_here_is_pulled_and_found_again(hub: LocalHub, recorded: Path, scene: Any) -> None:
    push_dataset(recorded, REPO)
    hub.requests.clear()
    dataset = LeRobotDataset(REPO)
    scene("video").check(dataset.root, [2, 3, 4])
    asked = hub.requests.total()
    assert asked > 0
    LeRobotDataset(REPO)
    assert hub.requests.total() == asked
    LeRobotDataset(REPO, force_cache_sync=True)
    assert hub.requests.total() > asked


def test_only_the_files_of_some_episodes(hub: LocalHub, recorded: Path) -> None:
    push_dataset(recorded, REPO)
    meta = LeRobotDatasetMetadata(REPO)
    assert not list(meta.root.rglob("*.mp4"))
    dataset = LeRobotDataset(REPO, episodes=[1])
    files = {path.relative_to(meta.root) for path in meta.root.rglob("*.mp4")}
    assert files == {meta.get_video_file_path(1, meta.video_keys[0]).relative_to(meta.root)}
    assert len(dataset) == 3
    assert int(dataset[0]["episode_index"]) == 1
    assert LeRobotDataset(REPO).num_frames == 9
    with pytest.raises(DatasetError, match=r"\[7\] do not exist: lab/arm has 3"):
        pull_dataset(REPO, episodes=[7])


def test_videos_can_be_left_there(hub: LocalHub, recorded: Path) -> None:
    push_dataset(recorded, REPO)
    assert not list(pull_dataset(REPO, download_videos=False).rglob("*.mp4"))


def test_several_datasets_are_pulled_as_single_ones_are(hub: LocalHub, recorded: Path) -> None:
    """Videos can be left there for all of them."""
    push_dataset(recorded, REPO)
    both = MultiLeRobotDataset([REPO], download_videos=False)
    assert len(both) == 9
    assert not list(LeRobotDatasetMetadata(REPO).root.rglob("*.mp4"))


def test_revisions_have_snapshots_of_their_own(hub: LocalHub, recorded: Path, scene: Any, tmp_path: Path) -> None:
    old = push_dataset(recorded, REPO).commit
    one = LeRobotDataset(REPO, revision=old)
    scene("video").record(tmp_path / "new", [6])
    push_dataset(tmp_path / "new", REPO)
    two = LeRobotDataset(REPO, revision="main")
    assert one.root != two.root
    assert (len(one), len(two)) == (9, 6)
    assert (int(one[8]["frame_index"]), int(two[5]["frame_index"])) == (3, 5)


def test_pull_into_a_folder(hub: LocalHub, recorded: Path, tmp_path: Path) -> None:
    push_dataset(recorded, REPO)
    assert pull_dataset(REPO, tmp_path / "here") == tmp_path / "here"
    assert LeRobotDataset("any/name", tmp_path / "here").num_frames == 9
    dataset = LeRobotDataset.resume("lab/scene", recorded)
    with pytest.raises(DatasetNotFinishedError, match="nothing was downloaded over it"):
        pull_dataset(REPO, recorded)
    dataset.finalize()


def test_pull_that_failed_goes_on(hub: LocalHub, recorded: Path) -> None:
    push_dataset(recorded, REPO)
    hub.fail = lambda what, path: 403 if what == "GET resolve" and path.endswith(".mp4") else None
    with pytest.raises(DatasetError, match=f"ulna dataset pull {REPO}"):
        pull_dataset(REPO)
    hub.fail = lambda what, path: None
    hub.requests.clear()
    folder = pull_dataset(REPO)
    assert hub.requests["GET resolve"] < len(contents(recorded))
    assert LeRobotDataset(REPO).root == folder


def test_version_tags_choose_the_revision(hub: LocalHub, recorded: Path, caplog: pytest.LogCaptureFixture) -> None:
    push_dataset(recorded, REPO, tag_version=False)
    with caplog.at_level(logging.INFO, "ulna.data.hub"):
        pull_dataset(REPO)
    assert "has no version tags" in caplog.text
    repository = hub.dataset(REPO)
    repository.tags = {"v2.1": repository.branches["main"]}
    with pytest.raises(DatasetError, match=r"has the versions v2\.1") as caught:
        pull_dataset(REPO)
    assert "ulna dataset convert" in str(caught.value)
    assert pull_dataset(REPO, revision="v2.1")


def test_missing_dataset_names_the_next_step(hub: LocalHub) -> None:
    with pytest.raises(DatasetError, match="Finding lab/none on the Hub failed") as caught:
        LeRobotDataset("lab/none")
    assert "hf auth whoami" in str(caught.value)


def test_offline_switch(hub: LocalHub, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    push_dataset(recorded, REPO)
    hub.requests.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DatasetError, match=f"From the Hub: ulna dataset pull {REPO}"):
        LeRobotDataset(REPO)
    assert hub.requests.total() == 0


def test_commands(hub: LocalHub, recorded: Path, tmp_path: Path) -> None:
    pushed = CliRunner().invoke(app, ["push", str(recorded), REPO, "--private", "--tag", "so101"])
    assert pushed.exit_code == 0, pushed.output
    assert pushed.stdout.strip() == f"{hub.url}/datasets/{REPO}"
    assert "files uploaded, 0 were there already" in pushed.stderr
    pulled = CliRunner().invoke(app, ["pull", REPO, "--root", str(tmp_path / "in"), "--episodes", "0,1-2"])
    assert pulled.exit_code == 0, pulled.output
    assert pulled.stdout.strip() == str(tmp_path / "in")
    info = CliRunner().invoke(app, ["info", str(tmp_path / "in"), "--json"])
    assert json.loads(info.stdout)["frames"] == 9
    wrong = CliRunner().invoke(app, ["push", str(recorded), "noslash"])
    assert wrong.exit_code == 1
    assert "expected user/name" in wrong.stderr
    assert "'a-b' names no episodes" in CliRunner().invoke(app, ["pull", REPO, "--episodes", "a-b"]).stderr


def test_dataset_pushes_itself(hub: LocalHub, recorded: Path) -> None:
    LeRobotDataset(REPO, recorded).push_to_hub(private=True, tags=["so101"])
    assert hub.dataset(REPO).private
    assert "so101" in hub.dataset(REPO).files()["README.md"].decode()


def test_commands_in_a_process_of_their_own(hub: LocalHub, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the client has been loaded before, as it is for everybody who types the command."""
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    program = "from ulna.data.commands import app; app()"
    for words, said in ((["push", str(recorded), REPO], REPO), (["pull", REPO], "snapshots")):
        command = [sys.executable, "-c", program, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False)
        assert done.returncode == 0, done.stderr
        assert said in done.stdout
