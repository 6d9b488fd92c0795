# SPDX-License-Identifier: Apache-2.0
"""`ulna dataset transforms`: shows what the random changes of pictures look like on a picture of a dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ulna.core.commands import reporting

__all__ = ["transforms"]


def transforms(
    dataset: Annotated[str, typer.Argument(help="user/name, or the folder of a dataset.")],
    root: Annotated[Path | None, typer.Option(help="Folder of the dataset, if it is not found by name.")] = None,
    settings: Annotated[
        Path | None,
        typer.Option(
            "--config", help="JSON file with max_num_transforms, random_order and tfs; default: the usual six."
        ),
    ] = None,
    camera: Annotated[str | None, typer.Option(help="Camera; default: the first.")] = None,
    frame: Annotated[int, typer.Option(help="Frame, counted over the whole dataset.")] = 0,
    examples: Annotated[int, typer.Option(min=1, max=20, help="Examples of each transform.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
    output: Annotated[Path, typer.Option("--output", "-o", help="The PNG to write.")] = Path("transforms.png"),
) -> None:
    """Draw what the random changes of pictures do that training can make.

    One row for each change and one for all together, the original in front.
    """
    with reporting():
        from ulna.data.image_transforms_config import ImageTransformsConfig
        from ulna.data.transforms_sheet import draw_sheet

        raw = {} if settings is None else json.loads(settings.read_text(encoding="utf-8"))
        folder = root if root is not None or not Path(dataset).is_dir() else Path(dataset)
        config = ImageTransformsConfig.build({**raw, "enable": True}, title="image transforms")
        rows = draw_sheet(dataset, folder, config, output, camera=camera, frame=frame, examples=examples, seed=seed)
    typer.echo(f"{output}: {examples} examples of {', '.join(rows)}")
