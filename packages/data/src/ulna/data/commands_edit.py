# SPDX-License-Identifier: Apache-2.0
"""`ulna dataset edit`: commands that change episodes, features and tasks.

The folders of results go to stdout, everything else to stderr. Commands that encode pictures or compute statistics anew
are in `commands_convert`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ulna.core.commands import message, output, reporting
from ulna.data.commands_convert import add_edit_commands
from ulna.data.commands_edit_options import (
    EPISODES_HELP,
    Dataset,
    DryRun,
    InPlace,
    carry_out,
    edit_places,
    episode_numbers,
    output_option,
)

__all__ = ["edit_app"]

ModifiedFolder = Annotated[Path | None, output_option("beside the dataset, as NAME_modified")]

edit_app = typer.Typer(
    name="edit",
    help="Change episodes, tasks, features, cameras and statistics of datasets.\n\n"
    "The original stays, or is replaced in one step when everything is written.",
    no_args_is_help=True,
)


@edit_app.command()
def delete(
    dataset: Dataset,
    episodes: Annotated[list[str], typer.Argument(help=EPISODES_HELP)],
    output_dir: ModifiedFolder = None,
    in_place: InPlace = False,
    dry_run: DryRun = False,
) -> None:
    """Delete episodes; those behind them move up.

    Pictures that stay are not encoded again. Example: ulna dataset edit delete lab/pick 3 7-9
    """
    from ulna.data.editing.episodes import plan_deletion

    with reporting():
        meta, target = edit_places(dataset, output_dir, in_place, "modified")
        carry_out(plan_deletion(meta, episode_numbers(episodes), target), dry_run)


@edit_app.command()
def split(
    dataset: Dataset,
    part: Annotated[
        list[str],
        typer.Option("--part", help="NAME=FRACTION or NAME=EPISODES (train=0.8, val=0-3,7); once for each part."),
    ],
    output_dir: Annotated[
        Path | None, output_option("beside the dataset, as NAME_PART", "Folder for the parts")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Write parts of a dataset as datasets of their own. The original stays.

    Example: ulna dataset edit split lab/pick --part train=0.8 --part val=0.2
    Fractions are taken in order and rounded down; when they add up to 1, the last part takes what is left over.
    """
    from ulna.data.editing.episodes import carry_out_split, plan_split
    from ulna.data.editing.places import open_source

    with reporting():
        plans = plan_split(open_source(dataset), _parts(part), output_dir)
        for plan in plans.values():
            message(str(plan))
        if not dry_run:
            for result in carry_out_split(plans).values():
                output(str(result.root))


@edit_app.command()
def merge(
    datasets: Annotated[list[str], typer.Argument(help="user/name, or folders, in the order of the result.")],
    output_dir: Annotated[Path, output_option(None)],
    repo_id: Annotated[str | None, typer.Option(help="Name of the result; default: that of its folder.")] = None,
    keep_video_files: Annotated[
        bool, typer.Option("--keep-video-files", help="Keep every video file as it is, however small.")
    ] = False,
    keep_data_files: Annotated[
        bool, typer.Option("--keep-data-files", help="Keep the rows of every table file in a file of their own.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Write one dataset with the episodes of several. The originals stay.

    Frame rate, robot and features must be equal; every difference is listed. Tasks are joined by their texts.
    """
    from ulna.data.editing.merging import plan_merge

    with reporting():
        name = repo_id or output_dir.name
        carry_out(plan_merge(datasets, name, output_dir, not keep_video_files, not keep_data_files), dry_run)


@edit_app.command()
def remove_feature(
    dataset: Dataset,
    features: Annotated[list[str], typer.Argument(help="Names of columns or cameras.")],
    output_dir: ModifiedFolder = None,
    in_place: InPlace = False,
    dry_run: DryRun = False,
) -> None:
    """Remove columns or cameras, with their statistics and videos."""
    from ulna.data.editing.features import plan_features

    with reporting():
        meta, target = edit_places(dataset, output_dir, in_place, "modified")
        carry_out(plan_features(meta, remove_features=features, output_dir=target), dry_run)


@edit_app.command()
def rename_task(
    dataset: Dataset,
    old: Annotated[str, typer.Argument(help="Text of a task.")],
    new: Annotated[str, typer.Argument(help="Its new text; may be that of another task, which it becomes then.")],
    output_dir: ModifiedFolder = None,
    in_place: InPlace = False,
    dry_run: DryRun = False,
) -> None:
    """Change the text of a task wherever it stands."""
    from ulna.data.editing.tasks import plan_tasks

    with reporting():
        meta, target = edit_places(dataset, output_dir, in_place, "modified")
        carry_out(plan_tasks(meta, task_replacements={old: new}, output_dir=target), dry_run)


@edit_app.command()
def set_task(
    dataset: Dataset,
    task: Annotated[str, typer.Argument(help="What the robot does.")],
    episodes: Annotated[
        list[str] | None, typer.Option("--episodes", help=f"{EPISODES_HELP} Default: all; may be given several times.")
    ] = None,
    output_dir: ModifiedFolder = None,
    in_place: InPlace = False,
    dry_run: DryRun = False,
) -> None:
    """Give all frames of some or all episodes one task."""
    from ulna.data.editing.tasks import plan_tasks

    with reporting():
        meta, target = edit_places(dataset, output_dir, in_place, "modified")
        named = episode_numbers(episodes) if episodes else range(meta.total_episodes)
        carry_out(plan_tasks(meta, episode_tasks=dict.fromkeys(named, task), output_dir=target), dry_run)


@edit_app.command()
def apply(
    dataset: Dataset,
    output_dir: Annotated[Path | None, output_option("in place")] = None,
    dry_run: DryRun = False,
) -> None:
    """Carry out what was marked in `ulna dataset view`.

    Episodes are deleted and tasks renamed in one pass, in the place of the dataset unless --output is given.
    """
    from ulna.data.editing.applying import plan_marks

    with reporting():
        carry_out(plan_marks(dataset, output_dir), dry_run)


def _parts(texts: Sequence[str]) -> dict[str, float | Sequence[int]]:
    from ulna.core.errors import DatasetError

    parts: dict[str, float | Sequence[int]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise DatasetError(f"--part {text}: expected was NAME=FRACTION or NAME=EPISODES, such as train=0.8.")
        if name in parts:
            raise DatasetError(f"--part {text}: there are two parts of the name {name!r}.")
        parts[name] = _fraction(value) if "." in value else episode_numbers([value])
    return parts


def _fraction(text: str) -> float:
    from ulna.core.errors import DatasetError

    try:
        return float(text)
    except ValueError as error:
        raise DatasetError(f"{text!r} is no fraction, such as 0.8.") from error


add_edit_commands(edit_app)
