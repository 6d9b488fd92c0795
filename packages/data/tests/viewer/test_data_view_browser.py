# SPDX-License-Identifier: Apache-2.0
"""The page of the viewer in a headless Chromium. Skipped where none is installed; ULNA_CHROMIUM may name one."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ulna.data import LeRobotDataset, RGBEncoderConfig
from ulna.data.editing.marks import read_marks

sync_api = pytest.importorskip("playwright.sync_api")

CHROMIUM = os.environ.get("ULNA_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LONG_MS = 120_000
"""Longer than anything here takes on a busy machine: a wait ends when what it waits for is there."""

H264 = RGBEncoderConfig(vcodec="h264")
CAMERA = "observation.images.cam"
NUMBER_OF_CANVAS = """
key => {
  const canvas = document.querySelector(`[data-camera="${key}"] canvas`);
  const pen = canvas.getContext("2d");
  const [width, height] = [canvas.width, canvas.height];
  const bar = Math.floor(width / 10);
  let number = 0;
  for (let bit = 0; bit < 10; bit += 1) {
    const { data } = pen.getImageData(bit * bar + 2, height - Math.floor(height / 3) + 4, bar - 4, 6);
    let sum = 0;
    for (let i = 0; i < data.length; i += 4) sum += data[i];
    number = number * 2 + (sum / (data.length / 4) > 127 ? 1 : 0);
  }
  return number;
}
"""

pytestmark = [
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium: install one (apt-get install chromium), or name it in ULNA_CHROMIUM"
    ),
]
Start = Callable[[Path], Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests."""
    with sync_api.sync_playwright() as playwright:
        sync_api.expect.set_options(timeout=LONG_MS)
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES, timeout=LONG_MS)
        yield started
        started.close()


class Page:
    """A page of the viewer that must not have errors."""

    def __init__(self, context: Any, url: str, anchor: str = "") -> None:
        self.page = context.new_page()
        self.page.set_default_timeout(LONG_MS)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url + anchor)
        self.page.wait_for_selector("body[data-ready]")

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def key(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def until(self, condition: str, argument: Any = None) -> None:
        self.page.wait_for_function(condition, arg=argument)

    def at_episode(self, episode: int) -> None:
        self.page.wait_for_selector(f'#stage[data-episode="{episode}"]')

    def at_frame(self, frame: int, *cameras: str) -> None:
        """Wait until scrub bar and cameras are at a frame."""
        self.until("frame => document.querySelector('#scrub').value === String(frame)", frame)
        for camera in cameras:
            self.page.wait_for_selector(f'[data-camera="{camera}"][data-frame="{frame}"]')

    def number(self, camera: str = CAMERA) -> int:
        """Return the number that the shown picture carries."""
        return int(self.page.evaluate(NUMBER_OF_CANVAS, camera))


@pytest.fixture
def show(browser: Any) -> Iterator[Callable[..., Page]]:
    """Open pages; at the end they are closed, and none may have had an error or asked anybody else."""
    opened: list[tuple[Any, Page, str]] = []

    def start(server: Any, anchor: str = "", **settings: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **settings})
        opened.append((context, Page(context, server.url, anchor), server.url))
        return opened[-1][1]

    yield start
    for context, page, url in opened:
        strangers = [address for address in page.requests if not address.startswith((url, "blob:", "data:"))]
        context.close()
        assert not page.errors
        assert not strangers


@pytest.fixture
def film(scene: Any, recorded: Path, tmp_path: Path) -> Path:
    """Three episodes of numbered pictures in one video file, large enough to be read from a canvas."""
    if not (recorded / "film").exists():
        scene("video", size=(96, 160)).record(recorded / "film", [20, 45, 30])
    return Path(shutil.copytree(recorded / "film", tmp_path / "set"))


def test_it_shows_the_first_episode(served: Start, show: Callable[..., Page], film: Path) -> None:
    """Name, facts, list, picture, plots and legend are there without anything having been clicked."""
    page = show(served(film))
    page.at_frame(0, CAMERA)
    assert page.text("#name") == "lab/set"
    assert page.text("#facts") == "fake · 3 episodes · 95 frames · 30 fps"
    assert page.text("#episode-title").startswith("Episode 0")
    assert page.text("#episode-task") == "task 0"
    assert page.page.locator(".episode").count() == 3
    assert page.page.locator(".plot").count() == 2
    assert page.page.locator(".plot").first.locator(".entry").count() == 6
    assert page.number() == 0
    shown = "() => [...document.querySelectorAll('.plot canvas')].every(c => c.width > 100)"
    assert page.page.evaluate(shown)


def test_another_episode_of_the_same_file(served: Start, show: Callable[..., Page], film: Path) -> None:
    """A click opens it at its own first frame, though it begins in the middle of the video."""
    page = show(served(film))
    page.page.click("#episode-1")
    page.at_episode(1)
    page.at_frame(0, CAMERA)
    assert page.number() == 64
    assert page.text("#episode-task") == "task 1"
    page.page.click("#episode-2")
    page.at_episode(2)
    page.at_frame(0, CAMERA)
    assert page.number() == 128


def test_scrubbing_shows_the_very_frame(served: Start, show: Callable[..., Page], film: Path) -> None:
    """The picture on the canvas carries the number of the frame, near both ends of the episode too."""
    page = show(served(film), "#episode=1")
    page.at_episode(1)
    for frame in (31, 0, 44, 43, 7, 1):
        page.page.evaluate(
            "frame => { const bar = document.querySelector('#scrub'); bar.value = frame;"
            " bar.dispatchEvent(new Event('input')); }",
            frame,
        )
        page.at_frame(frame, CAMERA)
        assert page.number() == 64 + frame
        assert f"frame {frame}" in page.text("#position")
    box = page.page.locator(".plot .area").first.bounding_box()
    page.page.mouse.click(box["x"] + box["width"] - 12, box["y"] + 50)
    page.at_frame(44, CAMERA)
    assert page.number() == 64 + 44


def test_values_at_the_cursor(served: Start, show: Callable[..., Page], film: Path) -> None:
    """The legend tells the values of the frame, those under the pointer while it is in a plot; a line can be hidden."""
    page = show(served(film), "#episode=1&frame=30")
    page.at_episode(1)
    value = page.page.locator(".plot").nth(1).locator(".entry .value").nth(2)
    sync_api.expect(value).to_have_text("1032")
    page.page.hover(".plot .area >> nth=0", position={"x": 53, "y": 60})
    sync_api.expect(value).to_have_text("1002")
    assert page.text("#cursor-time") == "at 0.00 s, frame 0"
    entry = page.page.locator(".plot").nth(1).locator(".entry").nth(2)
    entry.click()
    sync_api.expect(entry).to_have_attribute("aria-pressed", "false")
    page.page.click("text=By joint")
    assert page.page.locator(".plot").count() == 6
    assert page.page.locator(".plot h4").first.inner_text() == "joint_0.pos"


def test_keyboard(served: Start, show: Callable[..., Page], film: Path) -> None:
    """Frames, seconds, ends, speed, episodes, play, help and search are reached without a mouse."""
    page = show(served(film))
    page.at_frame(0, CAMERA)
    page.key("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft")
    page.at_frame(2, CAMERA)
    assert page.number() == 2
    page.key("j")
    page.at_episode(1)
    page.key("Shift+ArrowRight")
    page.at_frame(30, CAMERA)
    assert page.number() == 64 + 30
    page.key("End")
    page.at_frame(44, CAMERA)
    assert page.number() == 64 + 44
    page.key("Home", "k")
    page.at_episode(0)
    page.key("]", "]", "[")
    assert page.page.input_value("#speed") == "2"
    page.key("?")
    assert page.page.is_visible("#help")
    page.key("Escape")
    assert not page.page.is_visible("#help")
    page.key("/")
    assert page.page.evaluate("document.activeElement.id") == "search"
    page.page.keyboard.type("task 1")
    assert page.page.locator(".episode").count() == 1
    assert page.text("#count").startswith("1 of 3")
    page.key("Enter")
    page.at_episode(1)


def test_playing_ends_at_the_last_frame(served: Start, show: Callable[..., Page], film: Path) -> None:
    """Pictures pass in order and belong to this episode only, though the video goes on; then it stops."""
    page = show(served(film))
    page.at_frame(0, CAMERA)
    page.page.evaluate(
        "() => { window.seen = []; new MutationObserver(() => window.seen.push("
        "Number(document.querySelector('.tile').dataset.frame)))"
        ".observe(document.querySelector('.tile'), { attributes: true, attributeFilter: ['data-frame'] }); }"
    )
    page.page.select_option("#speed", "0.25")
    page.key(" ")
    page.until("() => document.querySelector('#play').classList.contains('playing')")
    page.until("() => !document.querySelector('#play').classList.contains('playing')")
    page.at_frame(19, CAMERA)
    assert page.number() == 19
    seen = page.page.evaluate("window.seen")
    assert len(set(seen)) > 5
    assert set(seen) <= set(range(20))
    page.page.wait_for_timeout(150)
    assert page.number() == 19


@pytest.mark.parametrize("playing", [False, True])
def test_pictures_of_the_table_go_in_step(
    served: Start, show: Callable[..., Page], scene: Any, tmp_path: Path, playing: bool
) -> None:
    """A camera whose pictures lie in the table shows them at the same frame as a video does."""
    s = scene("video", size=(96, 160))
    features = {**s.features(), "observation.images.table": {**s.features()[CAMERA], "dtype": "image"}}
    with LeRobotDataset.create("lab/two", 30, features, tmp_path / "set", rgb_encoder=H264) as dataset:
        for episode in range(2):
            for frame in range(24):
                values = s.frame(episode, frame)
                dataset.add_frame({**values, "observation.images.table": values[CAMERA]})
            dataset.save_episode()
    page = show(served(tmp_path / "set"), "#episode=1&frame=10")
    cameras = (CAMERA, "observation.images.table")
    page.at_frame(10, *cameras)
    assert [page.number(camera) for camera in cameras] == [74, 74]
    if playing:
        page.key(" ")
        page.until("() => !document.querySelector('#play').classList.contains('playing')")
        page.at_frame(23, *cameras)
        assert [page.number(camera) for camera in cameras] == [87, 87]
    else:
        page.key("k")
        page.at_episode(0)
        page.at_frame(0, *cameras)
        assert [page.number(camera) for camera in cameras] == [0, 0]


def test_a_codec_the_browser_lacks(served: Start, show: Callable[..., Page], film: Path) -> None:
    """The server decodes then, and the page says so. Here the video is replaced by one in MPEG-4 part 2."""
    import av

    path = next((film / "videos").rglob("*.mp4"))
    with av.open(str(path)) as source, av.open(str(film / "new.mp4"), "w") as target:
        stream = target.add_stream("mpeg4", rate=30, options={"qscale": "2"})
        stream.width, stream.height = 160, 96
        for frame in source.decode(video=0):
            target.mux(stream.encode(frame.reformat(format="yuv420p")))
        target.mux(stream.encode(None))
    (film / "new.mp4").replace(path)
    page = show(served(film), "#episode=1&frame=8")
    page.page.wait_for_selector(".tile[data-fallback]")
    page.at_frame(8, CAMERA)
    assert page.number() == 64 + 8
    assert page.text(".tile .note") == "decoded by the server"


def test_marks_survive_a_reload(served: Start, show: Callable[..., Page], film: Path) -> None:
    """D marks an episode for deletion, a task gets a new text; both are stored, and the command is shown."""
    server = served(film)
    page = show(server, "#episode=2")
    page.at_episode(2)
    page.key("d")
    page.page.wait_for_selector("#mark[aria-pressed=true]")
    assert read_marks(film).delete == (2,)
    page.page.click("#show-tasks")
    page.page.fill("#task-list input >> nth=1", "Pick up the cube.")
    page.page.click("#task-list button:text('Rename') >> nth=1")
    page.page.wait_for_selector(".renamed")
    assert read_marks(film).tasks == {"task 1": "Pick up the cube."}
    page.key("Escape")
    page.page.reload()
    page.page.wait_for_selector("body[data-ready]")
    page.at_episode(2)
    assert page.page.get_attribute("#mark", "aria-pressed") == "true"
    assert page.text("#marks-text") == "1 episode to delete, 1 task to rename"
    assert page.text("#marks-command") == f"ulna dataset edit apply {film}"
    page.page.click("text=Marked >> nth=0")
    assert page.page.locator(".episode").count() == 2
    page.key("d")
    page.page.wait_for_selector("#mark[aria-pressed=false]")
    assert read_marks(film).delete == ()


def test_the_address_keeps_episode_and_frame(served: Start, show: Callable[..., Page], film: Path) -> None:
    """A reload, or a link that was sent, leads to the same picture; an episode too far leads to the last."""
    server = served(film)
    page = show(server, "#episode=1&frame=12")
    page.at_frame(12, CAMERA)
    page.key("ArrowRight")
    page.until("() => location.hash === '#episode=1&frame=13'")
    page.page.reload()
    page.at_frame(13, CAMERA)
    assert page.number() == 64 + 13
    page.page.evaluate("location.hash = '#episode=2&frame=5'")
    page.at_episode(2)
    page.at_frame(5, CAMERA)
    beyond = show(server, "#episode=77")
    beyond.at_episode(2)
    assert "There is no episode 77" in beyond.text("#notices")


def test_a_narrow_window(served: Start, show: Callable[..., Page], film: Path) -> None:
    """On a phone nothing is wider than the screen; the list comes when asked and goes when an episode is chosen."""
    page = show(served(film), viewport={"width": 390, "height": 844}, has_touch=True)
    page.at_frame(0, CAMERA)
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.page.evaluate("document.querySelector('#player').scrollWidth") <= 390
    assert not page.page.is_visible("#search")
    transport = page.page.locator("#transport").bounding_box()
    assert transport["y"] + transport["height"] <= 844
    page.page.click("#open-list")
    page.page.wait_for_selector("#search", state="visible")
    assert page.page.get_attribute("#open-list", "aria-expanded") == "true"
    page.page.click("#episode-2")
    page.at_episode(2)
    page.page.wait_for_selector("#search", state="hidden")
    page.page.tap("#forward")
    page.at_frame(1, CAMERA)


def test_dark_and_light(served: Start, show: Callable[..., Page], film: Path) -> None:
    """The system's choice is followed; the button changes it for good."""
    server = served(film)
    ground = "Number(/\\d+/.exec(getComputedStyle(document.body).backgroundColor)[0])"
    light = show(server, color_scheme="light")
    assert light.page.evaluate(ground) > 200
    dark = show(server, color_scheme="dark")
    assert dark.page.evaluate(ground) < 50
    dark.page.click("#theme")
    assert dark.page.evaluate(ground) > 200
    dark.page.reload()
    dark.page.wait_for_selector("body[data-ready]")
    assert dark.page.evaluate(ground) > 200


def test_ten_thousand_episodes(served: Start, show: Callable[..., Page], many: tuple[Path, list[int]]) -> None:
    """The list holds them all with a few rows drawn; search, order and the keyboard work on all."""
    root, lengths = many
    page = show(served(root), "#episode=7000")
    page.at_episode(7000)
    assert page.text("#count").startswith("10,000 episodes")
    assert page.page.locator(".episode").count() < 60
    assert page.page.is_visible("#episode-7000")
    page.page.focus("#list")
    page.key("ArrowDown")
    page.at_episode(7001)
    page.page.fill("#search", "9990-9994")
    assert page.page.locator(".episode").count() == 5
    page.page.fill("#search", "drawer")
    assert page.text("#count").startswith("3,333 of 10,000 episodes")
    page.page.fill("#search", "")
    page.page.select_option("#order", "long")
    longest = max(lengths)
    first = page.page.locator(".episode").first
    assert lengths[int(first.get_attribute("data-episode"))] == longest
    page.page.select_option("#filter-task", label="Close the drawer.")
    assert re.match("3,333 of", page.text("#count"))
    assert page.page.locator(".tile").count() == 0


def test_controls_have_names(served: Start, show: Callable[..., Page], film: Path) -> None:
    """Everything that can be operated says what it is, and the page has one heading of the first rank."""
    page = show(served(film))
    page.at_frame(0, CAMERA)
    nameless = page.page.evaluate(
        "() => [...document.querySelectorAll('button, input, select, [role]')].filter(e => e.role !== 'presentation' &&"
        " !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.textContent.trim() ||"
        " e.labels?.length || e.id === 'count')).map(e => e.outerHTML.slice(0, 80))"
    )
    assert nameless == []
    assert page.page.locator("h1").count() == 1
    assert page.page.get_attribute("html", "lang") == "en"
    assert "Episode 0" in page.page.title()


def test_a_long_episode(served: Start, show: Callable[..., Page], tmp_path: Path) -> None:
    """Lines of thousands of frames show stretches, and the exact value comes where the cursor rests."""
    feature = {"dtype": "float32", "shape": (1,), "names": ["height"]}
    with LeRobotDataset.create("lab/long", 30, {"observation.state": feature}, tmp_path / "set") as dataset:
        for frame in range(5000):
            value = 50.0 if frame == 2500 else np.sin(frame / 300)
            dataset.add_frame({"observation.state": np.array([value], np.float32), "task": "wait"})
        dataset.save_episode()
    page = show(served(tmp_path / "set"), "#frame=2500")
    page.at_frame(2500)
    value = page.page.locator(".entry .value")
    sync_api.expect(value).to_have_text("50.0")
    page.key("ArrowRight")
    sync_api.expect(value).to_have_text(re.compile(r"^0\.\d+$"))
    assert "between" in page.page.get_attribute(".plot canvas", "aria-label")


def test_a_server_that_has_ended(served: Start, show: Callable[..., Page], film: Path) -> None:
    """The page says so, and what to do."""
    server = served(film)
    page = show(server)
    page.at_frame(0, CAMERA)
    server.server.should_exit = True
    server.thread.join(LONG_MS / 1e3)
    page.key("j")
    page.page.wait_for_selector("[role=alert]")
    assert "The server does not answer." in page.text("#notices")
