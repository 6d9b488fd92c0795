# SPDX-License-Identifier: Apache-2.0
"""Run as a process: begins one change of a dataset after the other, each in a fork that is killed at a call."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from ulna.data import RGBEncoderConfig
from ulna.data.editing.convert_images import convert_image_to_video_dataset
from ulna.data.editing.convert_v21 import convert_v21_dataset
from ulna.data.editing.crop import crop_dataset_roi
from ulna.data.editing.recompute import recompute_stats
from ulna.data.editing.reencode import reencode_dataset

CAMERA = "observation.images.cam"
H264 = RGBEncoderConfig(vcodec="h264")
CHANGES: dict[str, Callable[[Path], object]] = {
    "old": lambda root: convert_v21_dataset(root, picture_quantiles=False),
    "pictures": lambda root: convert_image_to_video_dataset(root, rgb_encoder=H264),
    "videos": lambda root: reencode_dataset(root, H264),
    "regions": lambda root: crop_dataset_roi(root, {CAMERA: (0, 0, 24, 32)}),
    "numbers": lambda root: recompute_stats(root),
}
INSTANTS = {
    "while pictures are encoded": "ulna.data.video_encoding.probe_video",
    "before files are flushed": "ulna.data.editing.replacement.flush_tree",
    "before the new takes the place of the old": "ulna.data.editing.replacement._swap",
}


def main() -> None:
    folder, name = Path(sys.argv[1]), sys.argv[2]
    module, _, function = INSTANTS.get(name, "").rpartition(".")
    for dataset in sys.argv[3:]:
        change = CHANGES[dataset]
        process = os.fork()
        if process == 0:
            if function:
                kill_at(importlib.import_module(module), function)
            change(folder / dataset)
            os._exit(0)
        _, status = os.waitpid(process, 0)
        sys.stdout.write(f"{dataset} {-os.waitstatus_to_exitcode(status)}\n")


def kill_at(module: object, function: str) -> None:
    """Let this process be killed when a function is called, wherever it was imported to."""

    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    original = getattr(module, function)
    for loaded in list(sys.modules.values()):
        if getattr(loaded, "__name__", "").startswith("ulna.data") and getattr(loaded, function, None) is original:
            setattr(loaded, function, die)


if __name__ == "__main__":
    main()
