# SPDX-License-Identifier: Apache-2.0
"""`--dry-run` of the commands that convert says what would be done, refuses what they refuse, and leaves no trace."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from ulna.data.commands import app
from ulna.data.workspace import Workspace

GOLDEN = Path(__file__).parent / "golden"
FRONT, WRIST = "observation.images.front", "observation.images.wrist"
FOLDERS = {
    "images": "images/dataset",
    "videos": "videos_h264/dataset",
    "state": "state_only/dataset",
    "old": "v21_videos/v21",
    "older": "v21_images/v21",
}
OLD_TABLE = "data/chunk-000/episode_000001.parquet"

Trace = dict[str, tuple[int, bytes | None]]
Run = Callable[[str], Result]


def trace(folder: Path) -> Trace:
    """Return the time of change of a folder and all below it, and the bytes of its files."""
    paths = [folder, *folder.rglob("*")]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None) for path in paths}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Copy the datasets that a command names as {folder}, and run it there."""

    def invoke(line: str) -> Result:
        for name, source in FOLDERS.items():
            if f"{{{name}}}" in line and not (tmp_path / name).exists():
                shutil.copytree(GOLDEN / source, tmp_path / name)
        places = {name: str(tmp_path / name) for name in FOLDERS}
        words = [word.format(**places, tmp=str(tmp_path)) for word in line.split()]
        return CliRunner().invoke(app, words)

    return invoke


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "convert {old}",
            "old_v30: converts format v2.1 to v3.0: 3 episodes, 60 frames, 6 video files to be joined, a",
        ),
        ("convert {older} --no-picture-quantiles -o {tmp}/x", "x: converts format v2.1 to v3.0: 2 episodes, 18 frames"),
        (
            "edit images-to-video {images} --codec h264 --episodes 0-1",
            f"images_video: turns pictures into video in 2 of 3 episodes: {FRONT}, {WRIST} (libx264, crf 30, g 2)",
        ),
        (
            f"edit reencode {{videos}} --codec h264 --g 8 --camera {FRONT} --in-place",
            f"videos, in place: encodes 1 video files again: {FRONT} (libx264, crf 30, g 8)",
        ),
        (
            f"edit crop {{videos}} --roi {FRONT}=10,20,24,32 --resize 12,16",
            f"_cropped: crops the cameras of 3 episodes to {FRONT}: rows 10 to 33, columns 20 to 51, scaled to 12x16",
        ),
        (
            "edit recompute-stats {state} --relative-action --exclude-joint gripper --chunk-size 4",
            "action; meta/stats.json: action in chunks of 4, 5 of its 6 dimensions relative to the state",
        ),
        ("edit add-quantiles {videos}", "videos, in place: has all quantiles already; nothing to do"),
        (
            "edit add-quantiles {videos} --overwrite",
            f"anew: observation.state, action, {FRONT}, {WRIST}; all quantiles",
        ),
        ("edit add-quantiles {state} -o {tmp}/x", "x: computes the statistics of 3 episodes anew"),
    ],
)
def test_it_says_what_the_real_run_says_first_and_leaves_no_trace(
    run: Run, tmp_path: Path, line: str, said: str
) -> None:
    run(f"{line} --help")  # copies what is named
    before = trace(tmp_path)
    rehearsed = run(f"{line} --dry-run")
    assert (rehearsed.exit_code, rehearsed.stdout) == (0, ""), rehearsed.output
    assert trace(tmp_path) == before
    assert said in rehearsed.stderr
    real = run(line)
    assert real.exit_code == 0, real.output
    assert real.stderr.startswith(rehearsed.stderr)
    assert Path(real.stdout.strip()).is_dir()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("convert {state}", "It needs no conversion"),
        ("convert {old} -o {state}", "exists already and holds a dataset"),
        ("convert {old} -o {old}/meta/info.json/new", "info.json is not a folder"),
        ("convert nobody/nothing", "is not on this machine"),
        ("edit images-to-video {videos}", "no camera that is stored as pictures"),
        ("edit images-to-video {images} --camera observation.images.fornt", f"Did you mean '{FRONT}'?"),
        ("edit images-to-video {images} --episodes 3", "There is no episode 3"),
        ("edit images-to-video {images} --episodes 1 --in-place", "would delete the others"),
        ("edit images-to-video {images} --codec h265x", "has no 'h265x'"),
        ("edit images-to-video {images} -o {state}", "exists already and holds a dataset"),
        ("edit reencode {images}", "images-to-video"),
        ("edit reencode {videos} --camera observation.images.fornt", f"Did you mean '{FRONT}'?"),
        ("edit reencode {videos} --codec h264 --preset foo", "cannot be encoded with libx264"),
        ("edit reencode {videos} --in-place -o {tmp}/x", "exclude one another"),
        ("edit reencode {videos} -o {state}", "exists already and holds a dataset"),
        (f"edit crop {{videos}} --roi {FRONT}=0,0,65,8", "64 rows"),
        (f"edit crop {{videos}} --roi {FRONT}=0,0,11,11", "even height and width"),
        ("edit crop {videos} --roi front=0,0,8,8", "There is no camera 'front'"),
        ("edit crop {videos}", "nothing to do"),
        ("edit crop {videos} --params {tmp}/none.json", "No such file"),
        ("edit crop {videos} --resize 8,8 -o {state}", "exists already and holds a dataset"),
        ("edit recompute-stats {state} --relative-action --exclude-joint nix", "No joint has 'nix'"),
        ("edit recompute-stats {state} -o {images}", "exists already and holds a dataset"),
        ("edit add-quantiles {state} -o {images}", "exists already and holds a dataset"),
        ("edit add-quantiles nobody/nothing", "is not on this machine"),
    ],
)
def test_it_refuses_what_the_real_run_refuses_with_the_same_words(
    run: Run, tmp_path: Path, line: str, said: str
) -> None:
    run(f"{line} {{state}} {{images}} --help")
    before = trace(tmp_path)
    rehearsed = run(f"{line} --dry-run")
    assert said in " ".join(rehearsed.stderr.split())
    assert trace(tmp_path) == before
    real = run(line)
    assert (rehearsed.exit_code, rehearsed.stdout, rehearsed.stderr) == (real.exit_code, real.stdout, real.stderr)
    assert rehearsed.exit_code != 0
    assert trace(tmp_path).keys() == before.keys()


def _late(root: Path) -> None:
    table = pq.read_table(root / OLD_TABLE)
    frames = pa.array([9, *table["frame_index"].to_pylist()[1:]], pa.int64())
    pq.write_table(table.set_column(table.column_names.index("frame_index"), "frame_index", frames), root / OLD_TABLE)


def _without_task(root: Path) -> None:
    path = root / "meta/tasks.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:1]))


def _without_video(root: Path) -> None:
    next((root / "videos").rglob("episode_000001.mp4")).unlink()


def _older(root: Path) -> None:
    path = root / "meta/info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "codebase_version": "v1.6"}))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_late, "row 0 is frame 9"),
        (_without_task, "names task"),
        (_without_video, "does not exist"),
        (_older, "has format v1.6"),
    ],
)
def test_a_broken_dataset_of_v21_is_refused_with_the_same_words(
    run: Run, tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    """The rows of every table are read, because nothing else checks datasets of the old formats."""
    run("convert {old} --help")
    damage(tmp_path / "old")
    before = trace(tmp_path)
    rehearsed = run("convert {old} --dry-run")
    assert trace(tmp_path) == before
    real = run("convert {old}")
    assert said in " ".join(rehearsed.stderr.split())
    assert rehearsed.exit_code == real.exit_code == 1
    # The real run says what it is about to do before it reads the rows.
    assert real.stderr.endswith(rehearsed.stderr)


@pytest.mark.parametrize(
    "line",
    [
        "edit images-to-video {images} --in-place",
        f"edit crop {{images}} --roi {FRONT}=0,0,8,8 --in-place",
        "edit recompute-stats {images} --in-place",
        "edit add-quantiles {images} --overwrite",
        "edit delete {images} 0 --in-place",
        "edit set-task {images} wait --in-place",
    ],
)
def test_an_unfinished_recording_is_not_edited_in_place(run: Run, tmp_path: Path, line: str) -> None:
    """And neither is one that goes on: the dry run notices the lock without taking it."""
    run(f"{line} --help")
    workspace = Workspace(tmp_path / "images")
    assert workspace.lock()
    workspace.set_mark(3)
    for said in ("is in use by a recording", "was interrupted"):
        before = trace(tmp_path)
        rehearsed = run(f"{line} --dry-run")
        assert said in rehearsed.stderr
        assert trace(tmp_path) == before
        real = run(line)
        assert (rehearsed.exit_code, rehearsed.stderr) == (real.exit_code, real.stderr)
        assert rehearsed.exit_code == 1
        workspace.unlock()
