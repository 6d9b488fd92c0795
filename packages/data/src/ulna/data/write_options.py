# SPDX-License-Identifier: Apache-2.0
"""What `create` and `resume` check first: what can be recorded, and LeRobot's arguments that have nothing to tune here.

Those are accepted, so that programs run, and one warning explains what happens instead.
"""

from __future__ import annotations

import json
import warnings
from typing import Any, Final, TypedDict

from ulna.core.errors import DatasetError, FeatureError, nearest
from ulna.data.info import DatasetInfo
from ulna.data.language import LANGUAGE_COLUMNS
from ulna.data.video_codecs import DepthEncoderConfig, RGBEncoderConfig

__all__ = ["LegacyWriteOptions", "explain_write_options", "refuse_unrecordable", "with_threads"]

_NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "image_writer_processes": (0, None),
    "image_writer_threads": (0, None),
    "batch_encoding_size": (1, None),
    "streaming_encoding": (True, False, None),
    "metadata_buffer_size": (10, None),
}
_INSTEAD: Final[dict[str, str]] = {
    "image_writer_processes": "each camera has its own thread, and no picture is written to disk twice",
    "image_writer_threads": "each camera has its own thread, and no picture is written to disk twice",
    "batch_encoding_size": "videos are encoded while they are recorded, so nothing is left to encode in batches",
    "metadata_buffer_size": "the row of an episode is written when it is saved, so that nothing is lost",
}


class LegacyWriteOptions(TypedDict, total=False):
    """Arguments of LeRobot's `create`, `resume` and constructor that change nothing here.

    Attributes:
        image_writer_processes: Processes that write pictures.
        image_writer_threads: Threads that write pictures.
        batch_encoding_size: Episodes encoded together.
        streaming_encoding: Whether videos are encoded while they are recorded; they always are.
        metadata_buffer_size: Rows of the episode table held back.
    """

    image_writer_processes: int | None
    image_writer_threads: int | None
    batch_encoding_size: int | None
    streaming_encoding: bool | None
    metadata_buffer_size: int | None


def explain_write_options(given: dict[str, Any], *, stacklevel: int = 3) -> None:
    """Say once, for all of them together, what happens instead of what was asked for.

    Args:
        given: Argument to value.
        stacklevel: See `warnings.warn`; 3 points at who called the method that calls this.

    Raises:
        DatasetError: An argument is unknown, or not a whole number of 0 or more where that is expected.
    """
    for name, value in given.items():
        if name not in _NEUTRAL:
            near = nearest(name, list(_NEUTRAL))
            raise DatasetError(f"Unknown argument {name!r}.", hint=f"Did you mean {near!r}?" if near else None)
        if value is not None and not (isinstance(value, int) and value >= 0):
            raise DatasetError(f"{name} must be a whole number of 0 or more, got {value!r}.")
    asked = {name: value for name, value in given.items() if value not in _NEUTRAL[name]}
    if not asked:
        return
    reasons = dict.fromkeys(_INSTEAD[name] for name in asked)
    names = ", ".join(f"{name}={value}" for name, value in asked.items())
    warnings.warn(f"{names} changes nothing here: {'; '.join(reasons)}.", DeprecationWarning, stacklevel=stacklevel)


def with_threads(
    colour: RGBEncoderConfig | None, depth: DepthEncoderConfig | None, threads: int | None
) -> tuple[RGBEncoderConfig, DepthEncoderConfig | None]:
    """Return video settings with a number of threads where they name none.

    Args:
        colour: Settings for colour video; None takes the usual ones.
        depth: Settings for depth video, if any are asked for.
        threads: Threads of one encoder; None leaves them.

    Returns:
        Both settings.
    """
    colour = colour or RGBEncoderConfig()
    if threads is not None and colour.threads is None:
        colour = RGBEncoderConfig(**{**colour.model_dump(), "threads": threads})
    if threads is not None and depth is not None and depth.threads is None:
        depth = DepthEncoderConfig(**{**depth.model_dump(), "threads": threads})
    return colour, depth


def refuse_unrecordable(info: DatasetInfo) -> None:
    """Refuse features that cannot be recorded.

    Args:
        info: Of the dataset to record.

    Raises:
        FeatureError: A camera has another number of channels than its kind needs, a language column another name, or
            something is declared that JSON cannot hold.
    """
    for name, feature in info.features.items():
        try:
            json.dumps(feature.to_json())
        except (TypeError, ValueError) as error:
            raise FeatureError(
                f"Feature {name!r} is declared with values that info.json cannot hold: {error}.",
                hint="Use plain numbers, texts, lists and dictionaries: array.tolist(), array.item().",
            ) from error
        if feature.dtype == "language" and name not in LANGUAGE_COLUMNS:
            raise FeatureError(f"Feature {name!r}: language columns are called {' and '.join(LANGUAGE_COLUMNS)}.")
        if not feature.is_camera:
            continue
        channels = feature.hwc[2]
        if channels == 1 and not feature.is_depth:
            raise FeatureError(
                f"Camera {name!r} has 1 channel, but is not declared to hold depth maps.",
                hint='Declare "info": {"is_depth_map": True}, or record gray pictures with 3 channels.',
            )
        if channels != (1 if feature.is_depth else 3):
            what = "depth maps have 1" if feature.is_depth else "colour pictures have 3"
            raise FeatureError(f"Camera {name!r} with {channels} channels cannot be recorded; {what}.")
