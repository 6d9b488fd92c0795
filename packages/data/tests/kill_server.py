# SPDX-License-Identifier: Apache-2.0
"""Forks recorders and kills them: one line of JSON a recorder comes in, one line with what it reported goes out.

Everything is imported once, before the forks, and this process starts no thread itself.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ulna.data import LeRobotDataset, RGBEncoderConfig
from ulna.data.recovery import finalize_interrupted, recover_episodes

FEATURES: dict[str, dict[str, Any]] = {
    "state": {"dtype": "float32", "shape": (3,), "names": None},
    "cam": {"dtype": "video", "shape": (32, 32, 3), "names": ["height", "width", "channels"]},
    "still": {"dtype": "image", "shape": (8, 8, 3), "names": ["height", "width", "channels"]},
}


def frame_of(number: int, frame: int) -> dict[str, Any]:
    return {
        "state": np.full(3, 100 * number + frame, np.float32),
        "cam": np.full((32, 32, 3), 20 * (number % 12), np.uint8),
        "still": np.full((8, 8, 3), number % 256, np.uint8),
        "task": "go",
    }


def record(root: Path, episodes: int, *, recover: bool, say: Any) -> None:
    encoder = RGBEncoderConfig(vcodec="h264", preset="ultrafast")
    if (root / "meta/info.json").exists():
        dataset = LeRobotDataset.resume("lab/killed", root, rgb_encoder=encoder, recover=recover)
    else:
        dataset = LeRobotDataset.create("lab/killed", 30, FEATURES, root, rgb_encoder=encoder)
    say("ready", dataset.num_episodes)
    for _ in range(episodes):
        number = dataset.num_episodes
        for frame in range(2 + number % 7):
            dataset.add_frame(frame_of(number, frame))
        dataset.save_episode()
        say("stored", number)
    dataset.finalize()
    say("finalized", dataset.num_episodes)


def repair(root: Path, say: Any) -> None:
    say("ready", 0)
    recover_episodes(root)
    finalize_interrupted(root)
    say("finalized", 0)


def run(order: dict[str, Any], pipe: int) -> None:
    """What a forked recorder does; it never returns."""

    def say(word: str, number: int) -> None:
        os.write(pipe, f"{word} {number}\n".encode())

    logging.disable(logging.CRITICAL)
    root = Path(order["root"])
    try:
        if order["repair"]:
            repair(root, say)
        else:
            record(root, order["episodes"], recover=order["recover"], say=say)
    except BaseException as error:  # noqa: BLE001 - told to the test, which fails
        os.write(pipe, f"failed {type(error).__name__}: {error}".replace("\n", " ").encode() + b"\n")
    os._exit(0)


def watched(order: dict[str, Any]) -> list[str]:
    """Fork a recorder, kill it after a while, and return its lines."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(readable)
        run(order, writable)
    os.close(writable)
    # A closed pipe means that the child has ended by itself.
    first = os.read(readable, 65536)
    if order["delay_s"] is not None:
        signal.setitimer(signal.ITIMER_REAL, order["delay_s"])
        signal.sigwait({signal.SIGALRM})
        os.kill(child, signal.SIGKILL)
    select.select([readable], [], [])
    parts = [first]
    while part := os.read(readable, 65536):
        parts.append(part)
    os.close(readable)
    os.waitpid(child, 0)
    return b"".join(parts).decode().splitlines()


def main() -> None:
    for name in ("av", "numpy.ma", "PIL.Image", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet"):
        importlib.import_module(name)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    for line in sys.stdin:
        sys.stdout.write(json.dumps(watched(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
