# SPDX-License-Identifier: Apache-2.0
"""The server of the viewer: what the page is told, pictures, videos in parts, marks, and who is refused."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from ulna.core.errors import MissingDependencyError
from ulna.data.commands import app
from ulna.data.editing.marks import Marks, read_marks, write_marks
from ulna.data.features import Feature
from ulna.data.viewer import serving
from ulna.data.viewer.guarding import allowed_host
from ulna.data.viewer.series import element_names, series, unit_of

CAMERA = "observation.images.cam"
Start = Callable[[Path], Any]


def test_the_page_and_its_files(served: Start, scene: Any, tmp_path: Path) -> None:
    """Everything the page needs comes from the server itself, and browsers are told to take nothing else."""
    scene().record(tmp_path / "set", [3])
    server = served(tmp_path / "set")
    status, headers, body = server.ask("/")
    assert status == 200
    assert "default-src 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    page = body.decode()
    assert "http://" not in page
    assert "https://" not in page
    for name in ("app.js", "theme.js", "style.css", "icon.svg"):
        assert f"static/{name}" in page
        assert server.ask(f"/static/{name}")[0] == 200
    assert server.ask("/static/nothing.js")[0] == 404
    assert server.ask("/static/..%2fapp.py")[0] == 404
    assert server.ask("/static/../app.py")[0] == 404


def test_facts(served: Start, video_set: Path) -> None:
    """Counts, cameras, names of joints and tasks."""
    facts = served(video_set).json("/api/dataset")
    assert (facts["episodes"], facts["frames"], facts["fps"], facts["robot"]) == (2, 11, 30, "fake")
    assert facts["tasks"] == ["task 0", "task 1"]
    (camera,) = facts["cameras"]
    assert (camera["key"], camera["label"], camera["kind"], camera["codec"]) == (CAMERA, "cam", "video", "h264")
    assert (camera["height"], camera["width"]) == (48, 64)
    assert [line["key"] for line in facts["series"]] == ["observation.state", "action"]
    assert facts["series"][0]["names"][1] == "joint_1.pos"
    assert facts["problems"] == []


def test_one_episode(served: Start, video_set: Path) -> None:
    """Its numbers, and where it lies in the video file it shares with others."""
    episode = served(video_set).json("/api/episodes/1")
    assert (episode["episode"], episode["length"], episode["tasks"]) == (1, 7, [[0, 1]])
    assert episode["series"]["observation.state"]["values"][2] == [1000 + frame for frame in range(7)]
    assert episode["series"]["action"]["values"][5] == [1005 + frame for frame in range(7)]
    span = episode["videos"][CAMERA]
    assert (span["chunk"], span["file"]) == (0, 0)
    assert span["start_s"] == pytest.approx(4 / 30)
    assert span["end_s"] == pytest.approx(11 / 30)


def test_ten_thousand_episodes_are_one_small_answer(served: Start, many: tuple[Path, list[int]]) -> None:
    """The list comes as columns, so that the page is ready at once."""
    root, lengths = many
    server = served(root)
    _, _, body = server.ask("/api/episodes")
    assert len(body) < 100_000
    columns = json.loads(body)
    assert columns["lengths"] == lengths
    assert columns["tasks"][:4] == [0, 1, 2, 0]
    assert columns["problems"] == {}
    assert server.json("/api/episodes/9999")["length"] == lengths[9999]


def test_problems_belong_to_their_episode(served: Start, scene: Any, tmp_path: Path) -> None:
    """A file that is gone makes the episode a problem and its numbers an error with a reason; others are shown."""
    root = tmp_path / "set"
    scene().record(root, [3, 4, 5], data_files_size_in_mb=1e-6)
    (root / "data/chunk-000/file-001.parquet").unlink()
    server = served(root)
    problems = server.json("/api/episodes")["problems"]
    assert list(problems) == ["1"]
    assert "file-001.parquet does not exist" in problems["1"][0]
    assert "file-001.parquet" in server.json("/api/episodes/1", 422)["error"]
    assert server.json("/api/episodes/2")["length"] == 5


def test_several_tasks_in_an_episode(served: Start, scene: Any, tmp_path: Path) -> None:
    """The page learns from which frame on which task holds."""
    s = scene()
    with s.create(tmp_path / "set") as dataset:
        for frame in range(6):
            dataset.add_frame({**s.frame(0, frame), "task": "first" if frame < 4 else "second"})
        dataset.save_episode()
    server = served(tmp_path / "set")
    assert server.json("/api/episodes/0")["tasks"] == [[0, 0], [4, 1]]
    assert server.json("/api/episodes")["tasks"] == [[0, 1]]


def test_stretches_keep_what_jumps() -> None:
    """A long line keeps the lowest and highest value of each stretch: a single frame that jumps is never lost."""
    values = np.sin(np.arange(9000) / 500)[:, None] * np.array([1.0, 2.0])
    values[4321, 1] = 99.0
    values[77, 0] = np.nan
    values[100:120] = np.inf
    found = series(values, most=1000)
    assert found["step"] == 18
    low, high = np.array(found["low"], float), np.array(found["high"], float)
    assert low.shape == (2, 500)
    assert high[1, 4321 // 18] == 99.0
    for stretch in (0, 4, 250, 499):
        part = values[stretch * 18 : stretch * 18 + 18]
        part = np.where(np.isfinite(part), part, np.nan)
        np.testing.assert_allclose(low[:, stretch], np.nanmin(part, axis=0), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(high[:, stretch], np.nanmax(part, axis=0), rtol=1e-6, atol=1e-9)
    everything_missing = series(np.full((40, 1), np.nan), most=10)
    assert everything_missing["low"] == [[None] * 5]


def test_short_lines_are_exact() -> None:
    """Every frame, to the seven digits of float32; what is no number is null; booleans are 0 and 1."""
    values = np.array([[0.1, 3e-9], [np.nan, -7654321.0]], np.float32)
    assert series(values) == {"step": 1, "values": [[0.1, None], [3e-09, -7654321.0]]}
    assert series(np.array([[True], [False]])) == {"step": 1, "values": [[1.0, 0.0]]}
    assert series(np.zeros((3, 2, 4)))["values"] == [[0.0] * 3] * 8
    assert len(series(np.zeros((2, 500)))["values"]) == 64


def test_names_and_units() -> None:
    """Declared names where they fit, else positions."""
    assert element_names(Feature("a", "float32", (2,), ["x", "y"])) == ["x", "y"]
    assert element_names(Feature("a", "float32", (2,), {"motors": ["x", "y"]})) == ["x", "y"]
    assert element_names(Feature("a.reward", "float32", (1,))) == ["reward"]
    assert element_names(Feature("a", "float32", (2, 2), ["rows", "columns", "more"])) == [
        "0, 0",
        "0, 1",
        "1, 0",
        "1, 1",
    ]
    assert unit_of(Feature("a", "float32", (1,), None, {"unit": "deg"})) == "deg"
    assert unit_of(Feature("a", "float32", (1,), None, {"info": {"units": "N"}})) == "N"
    assert unit_of(Feature("a", "float32", (1,))) is None


def test_exact_values_of_one_frame(served: Start, video_set: Path) -> None:
    """For the cursor in a long episode."""
    server = served(video_set)
    assert server.json("/api/episodes/1/values/6")["action"] == [1006.0, 1007.0, 1008.0, 1009.0, 1010.0, 1011.0]
    assert "has no frame 7" in server.json("/api/episodes/1/values/7", 422)["error"]


def test_videos_come_in_parts(served: Start, video_set: Path) -> None:
    """Browsers seek by asking for ranges of bytes."""
    server = served(video_set)
    path = next((video_set / "videos").rglob("*.mp4"))
    whole = path.read_bytes()
    address = f"/api/videos/{CAMERA}/0/0"
    status, headers, body = server.ask(address)
    assert (status, headers["content-type"], headers["accept-ranges"], body) == (200, "video/mp4", "bytes", whole)
    status, headers, body = server.ask(address, range="bytes=10-29")
    assert (status, body) == (206, whole[10:30])
    assert headers["content-range"] == f"bytes 10-29/{len(whole)}"
    assert server.ask(address, range=f"bytes={len(whole) - 5}-")[2] == whole[-5:]
    assert server.ask(address, range=f"bytes={len(whole) + 5}-")[0] == 416
    for wrong in (f"/api/videos/{CAMERA}/0/1", "/api/videos/observation.images.came/0/0", "/api/videos/action/0/0"):
        assert server.json(wrong, 422)["error"]


@pytest.mark.parametrize(("kind", "media_type"), [("video", "image/jpeg"), ("image", "image/png")])
def test_single_pictures(served: Start, scene: Any, tmp_path: Path, kind: str, media_type: str) -> None:
    """Each picture carries its number: the one that was asked for comes, out of order too."""
    s = scene(kind)
    s.record(tmp_path / "set", [4, 7])
    server = served(tmp_path / "set")
    for episode, frame in ((1, 6), (0, 0), (1, 0), (0, 3), (1, 3)):
        status, headers, body = server.ask(f"/api/episodes/{episode}/frames/{CAMERA}/{frame}")
        assert (status, headers["content-type"]) == (200, media_type)
        with Image.open(io.BytesIO(body)) as image:
            pixels = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
        assert s.number(pixels) == 64 * episode + frame
    assert "has no frame 7" in server.json(f"/api/episodes/1/frames/{CAMERA}/7", 422)["error"]
    assert "is not a camera" in server.json("/api/episodes/1/frames/action/0", 422)["error"]
    assert "There is no episode 2" in server.json(f"/api/episodes/2/frames/{CAMERA}/0", 422)["error"]


@pytest.mark.parametrize("kind", ["video", "image"])
def test_depth_maps_become_pictures(served: Start, scene: Any, tmp_path: Path, kind: str) -> None:
    """Near and far have different colours, the same in every frame; a place without a distance is black."""
    from ulna.data import LeRobotDataset

    features = {
        "observation.images.depth": {
            "dtype": kind,
            "shape": (32, 48, 1),
            "names": ["height", "width", "channels"],
            "info": {"is_depth_map": True},
        }
    }
    depth = np.full((32, 48, 1), 400, np.uint16)
    depth[:, 24:] = 3000
    with LeRobotDataset.create("lab/depth", 30, features, tmp_path / "set") as dataset:
        for _ in range(3):
            dataset.add_frame({"observation.images.depth": depth, "task": "look"})
        dataset.save_episode()
    server = served(tmp_path / "set")
    assert server.json("/api/dataset")["cameras"][0]["kind"] == "depth"
    _, _, body = server.ask("/api/episodes/0/frames/observation.images.depth/1")
    with Image.open(io.BytesIO(body)) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    near, far = pixels[16, 8], pixels[16, 40]
    assert near[0] > 200 > near[2]  # yellow
    assert far[2] > far[1]  # violet


def test_marks_are_stored_at_once(served: Start, video_set: Path) -> None:
    """One change after the other, beside marks that somebody else made meanwhile; the command is named."""
    server = served(video_set)
    assert server.change({"episode": 1, "delete": True})[1]["delete"] == [1]
    assert read_marks(video_set) == Marks((1,))
    write_marks(video_set, Marks((0, 1)))
    status, marks = server.change({"task": "task 0", "rename": " pick it up "})
    assert status == 200
    assert marks["tasks"] == {"task 0": "pick it up"}
    assert marks["command"] == f"ulna dataset edit apply {video_set}"
    assert read_marks(video_set) == Marks((0, 1), {"task 0": "pick it up"})
    assert server.json("/api/dataset")["marks"] == marks
    server.change({"task": "task 0", "rename": None})
    server.change({"episode": 0, "delete": False})
    server.change({"episode": 1, "delete": False})
    assert not read_marks(video_set)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"episode": 2, "delete": True}, "There is no episode 2"),
        ({"episode": "1", "delete": True}, "A change must be"),
        ({"episode": True, "delete": True}, "A change must be"),
        ({"episode": 1}, "A change must be"),
        ({"task": "task 0", "rename": " "}, "must not be empty"),
        ({"task": "tusk 0", "rename": "x"}, "There is no task 'tusk 0'"),
        ([], "A change must be"),
        (b"{", "JSON"),
        (b" " * 70_000, "at most"),
    ],
)
def test_wrong_changes_are_refused(served: Start, video_set: Path, change: object, reason: str) -> None:
    """With a reason; nothing is stored."""
    status, answer = served(video_set).change(change)
    assert status == 422
    assert reason in answer["error"]
    assert not read_marks(video_set)


def test_changes_of_strangers_are_refused(served: Start, video_set: Path) -> None:
    """A page of another site, a page without the token, and one under another name change nothing."""
    server = served(video_set)
    change = {"episode": 1, "delete": True}
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"x_ulna_token": "guess"},
        {"x_ulna_token": ""},
        {"host": "evil.example", "origin": "http://evil.example"},
    ):
        status, answer = server.change(change, **headers)
        assert (status, bool(answer["error"])) == (403, True), headers
    assert not read_marks(video_set)


def test_other_names_of_the_server_are_refused(served: Start, video_set: Path) -> None:
    """A name that was made to point to this machine cannot read anything; a tunnel under localhost can."""
    server = served(video_set)
    assert server.ask("/api/dataset", host="evil.example")[0] == 403
    assert server.ask("/", host=f"evil.example:{server.port}")[0] == 403
    assert server.ask("/", host="localhost:9000")[0] == 200


@pytest.mark.parametrize(
    ("header", "listening", "allowed"),
    [
        ("127.0.0.1:80", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("[::1]:80", "::1", True),
        ("192.168.0.7", "127.0.0.1", False),
        ("192.168.0.7:80", "0.0.0.0", True),
        ("robot.example", "0.0.0.0", False),
        ("robot.example:80", "robot.example", True),
        ("", "127.0.0.1", False),
        ("[bad", "127.0.0.1", False),
    ],
)
def test_who_is_called_so(header: str, listening: str, allowed: bool) -> None:
    """Names of this machine and, where the server listens to others, addresses: those cannot be redirected."""
    assert allowed_host(header, listening) is allowed


def test_a_dataset_that_was_edited_is_read_again(served: Start, scene: Any, tmp_path: Path) -> None:
    """Reloading the page shows the new episodes, under addresses of pictures that no cache knows."""
    root = tmp_path / "set"
    scene("video").record(root, [4, 7])
    server = served(root)
    before = server.json("/api/dataset")
    root.rename(tmp_path / "old")
    scene("video").record(root, [2])
    after = server.json("/api/dataset")
    assert (before["episodes"], after["episodes"]) == (2, 1)
    assert before["state"] != after["state"]


def test_the_command_serves_until_ctrl_c(video_set: Path) -> None:
    """It prints the address, answers, and ends without a complaint."""
    code = "from ulna.data.commands import app; app()"
    command = [sys.executable, "-c", code, "view", str(video_set), "--no-browser", "--episode", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:")
            assert address.endswith("/#episode=1")
            with urlopen(address) as answer:
                assert answer.status == 200
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0
    assert said == "Ctrl-C ends it.\n"


def test_what_the_command_refuses(video_set: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that is taken, an episode that is not there, options that do not fit, and missing libraries."""
    taken = serving.listen("127.0.0.1", 0)
    try:
        port = str(taken.getsockname()[1])
        done = CliRunner().invoke(app, ["view", str(video_set), "--no-browser", "--port", port])
    finally:
        taken.close()
    assert done.exit_code == 2
    assert "port: needs a port that is free, or none at all, which takes one" in done.stderr
    done = CliRunner().invoke(app, ["view", str(video_set), "--no-browser", "--host", "203.0.113.9"])
    assert done.exit_code == 2
    assert "host: needs an address of this machine" in done.stderr
    done = CliRunner().invoke(app, ["view", str(video_set), "--no-browser", "--episode", "9"])
    assert done.exit_code == 1
    assert "There is no episode 9" in done.stderr
    assert CliRunner().invoke(app, ["view", str(video_set), "--save", "x.rrd"]).exit_code == 2
    monkeypatch.setattr(serving, "find_spec", lambda name: None)
    done = CliRunner().invoke(app, ["view", str(video_set), "--no-browser"])
    assert done.exit_code == 1
    assert "pip install 'ulna-data[view]'" in done.stderr
    with pytest.raises(MissingDependencyError, match="needs starlette"):
        serving.require_server()


def test_no_browser_without_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over ssh, and on Linux without a display, none is started: a text browser would take the terminal."""
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("SSH_CONNECTION", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not serving.can_open_browser()
    monkeypatch.setenv("DISPLAY", ":0")
    assert serving.can_open_browser()
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 1 192.0.2.2 22")
    assert not serving.can_open_browser()
