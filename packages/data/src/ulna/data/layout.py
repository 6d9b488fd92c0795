# SPDX-License-Identifier: Apache-2.0
"""Where the files of a v3.0 dataset lie inside its folder. Pure path arithmetic: nothing here opens a file."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

__all__ = [
    "CODEBASE_VERSION",
    "DATA_TEMPLATE",
    "EPISODES_TEMPLATE",
    "INFO_PATH",
    "STATS_PATH",
    "TASKS_PATH",
    "VIDEO_TEMPLATE",
    "WORK_FOLDER",
    "FileId",
]

CODEBASE_VERSION: Final = "v3.0"
INFO_PATH: Final = "meta/info.json"
STATS_PATH: Final = "meta/stats.json"
TASKS_PATH: Final = "meta/tasks.parquet"
EPISODES_TEMPLATE: Final = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
DATA_TEMPLATE: Final = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_TEMPLATE: Final = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"

WORK_FOLDER: Final = ".ulna"
"""Everything unfinished lives in this sub-folder of a dataset; it exists only while a recording is open."""


class FileId(NamedTuple):
    """Number of a file: the chunk folder and the file inside it. Ordered."""

    chunk: int
    file: int

    def next(self, chunks_size: int) -> FileId:
        """Return the number that follows.

        Args:
            chunks_size: Files per chunk folder.
        """
        return FileId(self.chunk + 1, 0) if self.file + 1 >= chunks_size else FileId(self.chunk, self.file + 1)

    def path(self, root: Path, template: str, video_key: str = "") -> Path:
        """Return the file's path.

        Args:
            root: Folder of the dataset.
            template: Path template of the dataset.
            video_key: Camera, for a video.
        """
        return root / template.format(chunk_index=self.chunk, file_index=self.file, video_key=video_key)
