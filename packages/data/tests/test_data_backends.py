# SPDX-License-Identifier: Apache-2.0
"""Decoders: two libraries with the same pictures, chosen by a probe, and bounded however many files there are."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ulna.data.video_backends as backends
from ulna.core.errors import DatasetError, DatasetFormatError, FrameTimestampError
from ulna.data import LeRobotDataset
from ulna.data.video_backends import backend_or_fallback, choose_backend, torchcodec_problem
from ulna.data.video_decoding import DecoderPool, VideoDecoder, decoder_pool, pool_limits

CAMERA = "observation.images.cam"
LENGTHS = [5, 1, 7]

needs_torchcodec = pytest.mark.skipif(
    torchcodec_problem() is not None, reason=f"torchcodec does not work here: {torchcodec_problem()}"
)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backends")


@pytest.fixture(params=["h264", "libsvtav1"])
def root(request: pytest.FixtureRequest, scene: Any, recordings: Path) -> Path:
    folder: Path = recordings / request.param
    if not folder.exists():
        scene("video", request.param, (80, 96)).record(folder, LENGTHS)
    return folder


@needs_torchcodec
@pytest.mark.parametrize("as_uint8", [True, False])
def test_both_backends_give_the_same_pictures(root: Path, as_uint8: bool) -> None:
    """Single items, batches and windows, in bytes and in floats, to within one step of 255."""
    deltas = {CAMERA: [-2 / 30, 0.0, -1 / 30, -1 / 30]}
    for windows in (None, deltas):
        one, other = (
            LeRobotDataset("lab/scene", root, delta_timestamps=windows, return_uint8=as_uint8, video_backend=name)
            for name in ("pyav", "torchcodec")
        )
        step = 1.0 if as_uint8 else 1 / 255 + 1e-6
        for position in (12, 0, 5, 6, 5):
            first, second = one.numpy_item(position)[CAMERA], other.numpy_item(position)[CAMERA]
            assert first.dtype == second.dtype
            assert np.abs(first.astype(np.float64) - second).max() <= step
        batches = [d.reader.batch([12, 0, 5, 12, 7, *range(13)], as_float=not as_uint8)[CAMERA] for d in (one, other)]
        assert np.abs(batches[0].astype(np.float64) - batches[1]).max() <= step


@needs_torchcodec
def test_torchcodec_says_what_is_missing(root: Path, tmp_path: Path) -> None:
    """A time without a frame and a file that is no video are told apart, as with the other backend."""
    video = next((root / "videos").rglob("*.mp4"))
    pool = DecoderPool(4)
    for time_s in (2.0, -1.0, 0.05):
        with pytest.raises(FrameTimestampError, match="no frame at"):
            pool.read(video, [0.0, time_s], 1e-4, backend="torchcodec")
    assert pool.read(video, [3 / 30], 1e-4, backend="torchcodec").shape == (1, 3, 80, 96)
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video" * 100)
    with pytest.raises(DatasetFormatError, match=r"broken\.mp4 cannot be opened"):
        pool.read(broken, [0.0], 1e-4, backend="torchcodec")
    assert pool.opened == 1
    pool.close()


@needs_torchcodec
def test_times_that_the_header_does_not_tell(tmp_path: Path) -> None:
    """A file with a gap, whose frames are not where the mean rate puts them, still gives the right frames."""
    path = tmp_path / "gap.mp4"
    _video(path, [0, 1, 2, 10, 11, 12])
    pool = DecoderPool(2)
    for backend in ("pyav", "torchcodec"):
        pictures = pool.read(path, [12 / 30, 2 / 30, 10 / 30, 0.0], 1e-4, backend=backend)
        levels = pictures.reshape(4, -1).mean(axis=1)
        np.testing.assert_allclose(levels, [20 + 15 * n for n in (12, 2, 10, 0)], atol=4)
        with pytest.raises(FrameTimestampError):
            pool.read(path, [5 / 30], 1e-4, backend=backend)
    pool.close()


def _video(path: Path, ticks: list[int], level: int = 0) -> None:
    """Write frames whose grey level tells their tick."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30, options={"bf": "0", "g": "2", "crf": "1"})
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        stream.codec_context.time_base = Fraction(1, 30)
        for tick in ticks:
            frame = av.VideoFrame.from_ndarray(np.full((32, 32, 3), 20 + 15 * (tick + level), np.uint8), format="rgb24")
            frame.pts, frame.time_base = tick, Fraction(1, 30)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def test_names_of_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default is PyAV, an old name still works with a warning, an unknown one is refused with the nearest."""
    monkeypatch.delenv("ULNA_VIDEO_BACKEND", raising=False)
    assert choose_backend() == choose_backend("pyav") == "pyav"
    with pytest.warns(DeprecationWarning, match="video_reader"):
        assert choose_backend("video_reader") == "pyav"
    with pytest.raises(DatasetError, match="torchcodek") as caught:
        choose_backend("torchcodek")
    assert "torchcodec" in str(caught.value.hint)
    monkeypatch.setenv("ULNA_VIDEO_BACKEND", "cuda")
    with pytest.raises(DatasetError, match="cuda"):
        choose_backend()


def test_installed_but_not_loadable(tmp_path: Path, root: Path) -> None:
    """A package that is found but whose library is missing: refused when asked for, else one warning and PyAV."""
    stub = tmp_path / "stub/torchcodec"
    stub.mkdir(parents=True)
    (stub / "__init__.py").write_text("")
    (stub / "decoders.py").write_text("raise OSError('libavutil.so.99: cannot open shared object file')")
    code = f"""
        import logging
        logging.basicConfig(format="%(levelname)s %(message)s")
        from ulna.core.errors import DatasetError
        from ulna.data import LeRobotDataset
        try:
            LeRobotDataset("lab/scene", {str(root)!r}, video_backend="torchcodec")
        except DatasetError as error:
            print("refused:", error)
        for _ in range(3):
            dataset = LeRobotDataset("lab/scene", {str(root)!r})
        print(dataset.numpy_item(3)[{CAMERA!r}].shape)
    """
    environment = {**os.environ, "PYTHONPATH": str(stub.parent), "ULNA_VIDEO_BACKEND": "torchcodec"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=environment, check=True
    )
    assert "refused: Videos cannot be decoded with torchcodec here: OSError: libavutil.so.99" in done.stdout
    assert "pip install 'ulna-data[torchcodec]'" in done.stdout
    assert "(3, 80, 96)" in done.stdout
    warnings = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    assert len(warnings) == 1
    assert "libavutil.so.99" in warnings[0]
    assert "decoded with PyAV" in warnings[0]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModuleNotFoundError("No module named 'torchcodec'", name="torchcodec"), "'torchcodec' is not installed"),
        (RuntimeError("\n  Could not load libtorchcodec.\nmore lines"), "RuntimeError: Could not load libtorchcodec"),
        (OSError(), "OSError: no reason was given"),
    ],
)
def test_why_a_backend_does_not_work(error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> Any:
        raise error

    monkeypatch.setattr(backends.importlib, "import_module", fail)
    assert torchcodec_problem.__wrapped__() is not None
    assert reason in str(torchcodec_problem.__wrapped__())


def test_probe_looks_at_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that loads but gives wrong pictures is not used."""

    class Wrong:
        def __init__(self, *args: Any, **options: Any) -> None: ...

        def __getitem__(self, n: int) -> Any:
            import torch

            return torch.zeros(3, 16, 16)

    monkeypatch.setattr(backends.importlib, "import_module", lambda name: type("M", (), {"VideoDecoder": Wrong}))
    assert torchcodec_problem.__wrapped__() == "it decodes wrong pictures"
    monkeypatch.setattr(backends, "torchcodec_problem", torchcodec_problem.__wrapped__)
    assert backend_or_fallback("torchcodec") == "pyav"


def test_limits_of_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default 100 decoders in 512 MiB; a number or `none` is honoured; open files are a limit in any case."""
    import ulna.data.video_decoding as decoding

    monkeypatch.setattr(decoding, "open_files_limit", lambda: 1024)
    assert pool_limits() == (100, 2**29)
    assert pool_limits("7") == (7, 2**29)
    assert pool_limits(" None ") == (256, None)
    monkeypatch.setattr(decoding, "open_files_limit", lambda: 40)
    assert pool_limits("none") == (10, None)
    assert pool_limits() == (10, 2**29)
    monkeypatch.setattr(decoding, "_pools", {})
    monkeypatch.setenv("LEROBOT_VIDEO_DECODER_CACHE_SIZE", "3")
    assert decoder_pool()._max_open == 3


def test_decoders_are_bounded_by_bytes(tmp_path: Path) -> None:
    """The pool closes what was used longest ago until its bytes fit; the last one stays."""
    paths = [tmp_path / f"{n}.mp4" for n in range(4)]
    for path in paths:
        _video(path, [0, 1])
    each = DecoderPool(9)
    each.read(paths[0], [0.0], 1e-4)
    size = each.nbytes
    assert size > 2**20
    each.close()
    pool = DecoderPool(9, max_bytes=2 * size)
    for path in paths:
        pool.read(path, [0.0], 1e-4)
    assert (len(pool), pool.nbytes, pool.opened) == (2, 2 * size, 4)
    pool.read(paths[3], [1 / 30], 1e-4)
    assert pool.opened == 4
    pool.close()
    small = DecoderPool(9, max_bytes=1)
    small.read(paths[0], [0.0], 1e-4)
    assert len(small) == 1
    small.close()


def test_the_decoder_that_was_used_longest_ago_is_closed(tmp_path: Path) -> None:
    """Used, not opened: a file that is read again and again stays open whatever comes between."""
    paths = [tmp_path / f"{n}.mp4" for n in range(3)]
    for path in paths:
        _video(path, [0])
    pool = DecoderPool(2)
    for n, opened in ((0, 1), (1, 2), (0, 2), (2, 3), (0, 3), (1, 4), (2, 5)):
        pool.read(paths[n], [0.0], 1e-4)
        assert (len(pool), pool.opened) == (min(opened, 2), opened)
    pool.close()


def test_a_decoder_is_used_by_one_thread_at_a_time_and_never_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may close it between finding it and using it; then the file is opened again."""
    path, pool = tmp_path / "video.mp4", DecoderPool(2)
    _video(path, [0, 1], 2)
    read, get, locked = VideoDecoder.read, DecoderPool._get, []

    def watched(self: VideoDecoder, *args: Any, **kwargs: Any) -> Any:
        locked.append(self.lock.locked())
        return read(self, *args, **kwargs)

    def closed_by_another(self: DecoderPool, key: Any) -> Any:
        decoder = get(self, key)
        if self.opened == 1:
            self.forget(path)
        return decoder

    monkeypatch.setattr(VideoDecoder, "read", watched)
    monkeypatch.setattr(DecoderPool, "_get", closed_by_another)
    assert float(pool.read(path, [0.0], 1e-4).mean()) == pytest.approx(50, abs=4)
    assert (locked, pool.opened, len(pool)) == ([True], 2, 1)
    pool.close()


def test_a_file_that_was_replaced_is_opened_again(tmp_path: Path) -> None:
    """Finalizing and editing put other videos under names that are open."""
    for level in (1, 3):
        _video(tmp_path / f"{level}.mp4", [0], level)
    path, pool = tmp_path / "video.mp4", DecoderPool(2)
    levels = []
    for level in (1, 3):
        (tmp_path / f"{level}.mp4").replace(path)
        levels.append(float(pool.read(path, [0.0], 1e-4).mean()))
    assert levels == pytest.approx([35, 65], abs=4)
    assert (len(pool), pool.opened) == (1, 2)
    pool.close()


@pytest.mark.skipif(sys.platform != "linux", reason="counts open files in /proc")
def test_thousands_of_files_in_a_process_that_may_open_few(tmp_path: Path) -> None:
    """2,000 videos, 64 open files allowed: handles and memory stay flat, and every frame is right."""
    for level in range(4):
        _video(tmp_path / f"source-{level}.mp4", [0], level)
    for n in range(2000):
        os.link(tmp_path / f"source-{n % 4}.mp4", tmp_path / f"{n}.mp4")
    code = f"""
        import os, resource
        from pathlib import Path
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        from ulna.data.video_decoding import decoder_pool
        resident = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        folder, handles, memory = Path({str(tmp_path)!r}), [], []
        for n in range(2000):
            level = decoder_pool().read(folder / f"{{n}}.mp4", [0.0], 1e-4).mean()
            assert abs(level - 20 - 15 * (n % 4)) < 4, (n, level)
            if n % 100 == 99:
                handles.append(len(os.listdir("/proc/self/fd")))
                memory.append(resident())
        print(max(handles), decoder_pool().opened, len(decoder_pool()), memory[-1] - memory[1])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    handles, opened, kept, growth = map(int, done.stdout.split())
    assert opened == 2000
    assert kept == 16
    assert handles < 40
    assert growth < 16 * 2**20
