# SPDX-License-Identifier: Apache-2.0
"""Writes a dataset whose cameras are stored in another way, or show something else.

Every picture is decoded, changed and encoded again, one episode after the other. How is up to the caller.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy.typing as npt
import pyarrow as pa

from ulna.core.errors import DatasetError
from ulna.data.depth import DepthCodec, DepthUnit
from ulna.data.depth_recording import begin_camera, recorded_depth_config, try_cameras, with_depth_unit
from ulna.data.editing.blocks import EpisodeBlock, VideoPiece
from ulna.data.editing.builder import DatasetBuilder
from ulna.data.editing.marks import read_marks, write_marks
from ulna.data.editing.pictures import consume, table_pictures, video_pictures
from ulna.data.editing.places import Place
from ulna.data.editing.plans import EditPlan, Progress
from ulna.data.editing.replacement import building_folder, flush_tree
from ulna.data.editing.sources import blocks
from ulna.data.editing.stats_columns import stats_table
from ulna.data.features import Feature
from ulna.data.images import SpooledPictures
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.moments import FeatureStats
from ulna.data.picture_worker import PictureWorker
from ulna.data.quantiles import FeatureSketch
from ulna.data.video_codecs import RGBEncoderConfig, VideoEncoderConfig
from ulna.data.video_encoding import EncodedVideo, probe_video

__all__ = ["CameraChange", "encoding_text", "plan_cameras", "recorded_encoder", "try_encoders"]

Picture = npt.NDArray[Any]

_QUEUE: Final = 8
_MM_PER_M: Final = 1000.0
_ENCODERS: Final = {"av1": "libsvtav1", "h264": "h264", "hevc": "hevc"}


@dataclass(frozen=True)
class CameraChange:
    """What becomes of one camera.

    Attributes:
        feature: What it shall be; how its video is encoded is filled in.
        encoder: Settings, where it shall be a video.
        change: Takes a picture (H, W, C) and returns the new one; None leaves pictures as they are.
    """

    feature: Feature
    encoder: VideoEncoderConfig | None = None
    change: Callable[[Picture], Picture] | None = None


def recorded_encoder(feature: Feature) -> VideoEncoderConfig:
    """Return the settings with which a video was encoded, defaults where the dataset does not say.

    Args:
        feature: A camera stored as video.
    """
    if feature.is_depth:
        return recorded_depth_config(feature, None)
    info = feature.camera_info
    names = ("pix_fmt", "g", "crf", "preset", "fast_decode", "extra_options")
    given = {name: info[f"video.{name}"] for name in names if info.get(f"video.{name}") is not None}
    codec = _ENCODERS.get(str(info.get("video.codec")))
    return RGBEncoderConfig.build({**given, **({"vcodec": codec} if codec else {})}, title=f"video of {feature.name}")


def encoding_text(configs: Mapping[str, VideoEncoderConfig]) -> str:
    """Say which cameras are encoded with what.

    Args:
        configs: Camera to settings.
    """
    cameras: dict[str, list[str]] = {}
    for key, config in configs.items():
        given = {"crf": config.crf, "g": config.g, "preset": config.preset}
        said = [f"{n} {v:g}" if isinstance(v, float) else f"{n} {v}" for n, v in given.items() if v is not None]
        cameras.setdefault(", ".join([config.encoder, *said]), []).append(key)
    return "; ".join(f"{', '.join(keys)} ({settings})" for settings, keys in cameras.items())


def try_encoders(features: Mapping[str, Feature], fps: int, configs: Mapping[str, VideoEncoderConfig]) -> None:
    """Encode one frame of every camera in a temporary folder, so that what cannot work is refused before writing.

    Args:
        features: All features.
        fps: Frames per second.
        configs: Camera that is encoded to settings.

    Raises:
        DatasetError: An encoder refuses the size or the settings, or there is no temporary folder.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="ulna-try-") as folder:
            try_cameras(Path(folder), features, fps, configs)
    except OSError as error:
        raise DatasetError(
            f"There is no temporary folder in which the encoders could be tried: {error}",
            hint="Set TMPDIR to a folder that can be written.",
        ) from error


def plan_cameras(
    meta: LeRobotDatasetMetadata,
    episodes: Sequence[int],
    place: Place,
    changes: Mapping[str, CameraChange],
    what: str,
    *,
    finishing: Callable[[Path], None] | None = None,
) -> EditPlan:
    """Plan to write some episodes of a dataset with changed cameras.

    Args:
        meta: The dataset.
        episodes: Their numbers, ascending.
        place: Where to.
        changes: Camera to what becomes of it; others stay as they are.
        what: What is done, for people.
        finishing: Called with the new folder before it gets its name.

    Returns:
        The plan.

    Raises:
        DatasetError: An encoder refuses its settings, or the size of the pictures.
    """
    features = {name: changes[name].feature if name in changes else f for name, f in meta.parsed_features.items()}
    configs = {key: c.encoder.shared(1) for key, c in changes.items() if c.encoder is not None}
    try_encoders(features, meta.fps, configs)
    everything = len(episodes) == meta.total_episodes
    whole = {name: stats for name, stats in (meta.recorded_stats or {}).items() if everything and name not in changes}

    def write(progress: Progress | None) -> None:
        with (
            place.writing() as target,
            DatasetBuilder(target, replace(meta.info, features=features), whole_stats=whole) as builder,
            _scratch(target) as scratch,
        ):
            rewriter = _Rewriter(meta, builder, scratch, changes, configs)
            for block in blocks(meta, episodes):
                rewriter.add(block)
                if progress is not None:
                    progress(rewriter.done, len(episodes))
            if place.in_place:
                builder.take_over(meta.root, renumbered=False)
                write_marks(builder.folder, read_marks(meta.root))
            if finishing is not None:
                finishing(builder.folder)
            flush_tree(scratch)  # files that become part of the dataset by a link are on disk before it gets its name
            builder.finish()

    return EditPlan(str(meta.root), place, what, write)


@contextmanager
def _scratch(target: Path) -> Iterator[Path]:
    folder = building_folder(target)
    try:
        yield folder.path
    finally:
        folder.remove()


class _Rewriter:
    """Carries one dataset over, block by block."""

    def __init__(
        self,
        meta: LeRobotDatasetMetadata,
        builder: DatasetBuilder,
        scratch: Path,
        changes: Mapping[str, CameraChange],
        configs: Mapping[str, VideoEncoderConfig],
    ) -> None:
        self._meta, self._builder, self._scratch = meta, builder, scratch
        self._changes, self._configs = changes, configs
        self._described: set[str] = set()
        self.done = 0

    def add(self, block: EpisodeBlock) -> None:
        """Rewrite the episodes of a block."""
        new = block
        for key in self._changes:
            new = self._with_camera(new, block, key)
        self._builder.add_block(new)
        for path in self._scratch.rglob("*.pictures*"):
            path.unlink()
        self.done += len(block)

    def _with_camera(self, new: EpisodeBlock, old: EpisodeBlock, key: str) -> EpisodeBlock:
        encoded = [self._encoded(old, i, key) for i in range(len(old))]
        parts = [(e.stats, e.sketch) for e in encoded]
        feature = self._meta.parsed_features[key]
        if feature.is_depth and feature.dtype == "video" and DepthCodec.from_feature(feature).unit == "mm":
            parts = [_in_millimetres(*part) for part in parts]
        new = _with_stats(new, key, self._changes[key].feature, parts)
        videos = [VideoPiece(e.path, 0.0, e.frames) for e in encoded if isinstance(e, EncodedVideo)]
        if videos:
            table = new.table.drop_columns([key]) if key in new.table.column_names else new.table
            return replace(new, table=table, videos={**new.videos, key: videos})
        chunks = [chunk for e in encoded if isinstance(e, SpooledPictures) for chunk in e.column().chunks]
        column = pa.chunked_array(chunks)
        return replace(new, table=new.table.set_column(new.table.column_names.index(key), key, column))

    def _encoded(self, block: EpisodeBlock, i: int, key: str) -> EncodedVideo | SpooledPictures:
        episode, length = block.episodes[i], int(block.lengths[i])
        change, where = self._changes[key], f"Episode {episode}, camera {key!r}"
        pictures = self._pictures(block, i, key, where)
        if change.change is not None:
            pictures = map(change.change, pictures)
        folder = self._scratch / f"{episode:06d}"
        folder.mkdir(exist_ok=True)
        worker: PictureWorker[Any] = begin_camera(folder, key, change.feature, self._meta.fps, self._configs, _QUEUE)
        result: EncodedVideo | SpooledPictures = consume(worker, self._noting_unit(key, pictures))
        if result.frames != length:
            raise DatasetError(f"{where}: {length} frames gave {result.frames} pictures. Nothing was changed.")
        if isinstance(result, EncodedVideo) and key not in self._described:
            self._described.add(key)
            self._describe(key, result.path)
        return result

    def _pictures(self, block: EpisodeBlock, i: int, key: str, where: str) -> Iterator[Picture]:
        feature, start = self._meta.parsed_features[key], int(block.starts[i])
        if feature.dtype == "image":
            column = block.table[key].slice(start, int(block.lengths[i]))
            return table_pictures(column, feature, where)
        pictures = video_pictures(block.videos[key][i], feature, self._meta.fps, where)
        if not feature.is_depth:
            return pictures
        codec = DepthCodec.from_feature(feature)
        return (codec.decode(codes, "m") for codes in pictures)

    def _noting_unit(self, key: str, pictures: Iterator[Picture]) -> Iterator[Picture]:
        """Pass pictures on; of a depth camera that does not say its unit, take it from the first."""
        features = self._builder.info.features
        for picture in pictures:
            feature = features[key]
            if feature.is_depth and DepthCodec.from_feature(feature).unit is None:
                unit: DepthUnit = "m" if picture.dtype.kind == "f" else "mm"
                features[key] = with_depth_unit(feature, unit)
            yield picture

    def _describe(self, key: str, path: Path) -> None:
        """Tell in `info.json` how the videos of a camera are encoded."""
        features = self._builder.info.features
        info = {**features[key].camera_info, **probe_video(path, self._configs[key])}
        if "video.is_depth_map" in info:
            info["video.is_depth_map"] = features[key].is_depth
        extra = {name: value for name, value in features[key].extra.items() if name not in {"fps", "video_info"}}
        features[key] = replace(features[key], extra={**extra, "info": info})


Summary = tuple[FeatureStats, FeatureSketch | None]


def _in_millimetres(stats: FeatureStats, sketch: FeatureSketch | None) -> Summary:
    scaled = {name: value if name == "count" else value * _MM_PER_M for name, value in stats.items()}
    return scaled, None if sketch is None else sketch.scaled(_MM_PER_M)


def _with_stats(block: EpisodeBlock, key: str, feature: Feature, parts: Sequence[Summary]) -> EpisodeBlock:
    """Return a block with other statistics of one camera."""
    fresh = stats_table([{key: stats} for stats, _ in parts], {key: feature})
    stale = [name for name in block.rows.column_names if name.startswith(f"stats/{key}/")]
    rows = block.rows.drop_columns(stale) if stale else block.rows
    for name in fresh.column_names:
        rows = rows.append_column(name, fresh[name])
    known = block.sketches or [None] * len(block)
    sketches = [
        {**{n: s for n, s in (old or {}).items() if n != key}, **({} if sketch is None else {key: sketch})}
        for old, (_, sketch) in zip(known, parts, strict=True)
    ]
    return replace(block, rows=rows, sketches=sketches)
