# SPDX-License-Identifier: Apache-2.0
"""`ulna dataset edit`: commands that change episodes, features and tasks.

The folders of results go to stdout, everything else to stderr. Commands that encode pictures or compute statistics anew
are in `commands_convert`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ulna.core.commands import message, output, reporting
from ulna.data.commands_convert import add_edit_commands, edit_places, episode_numbers, report_result

if TYPE_CHECKING:
    from ulna.data.dataset import LeRobotDataset
    from ulna.data.metadata import LeRobotDatasetMetadata

__all__ = ["edit_app"]

_DATASET = typer.Argument(help="user/name, or the folder of a dataset.")
_OUTPUT = typer.Option("--output", "-o", help="Folder of the result; default: beside the dataset, as NAME_modified.")
_IN_PLACE = typer.Option("--in-place", help="Let the result take the place of the dataset, in one step.")
_DRY_RUN = typer.Option("--dry-run", help="Check the request and say what would be done, and do nothing.")
_EPISODES = "Episodes: numbers and ranges, such as 3 7-9 12,14."

edit_app = typer.Typer(
    name="edit",
    help="Change episodes, tasks, features, cameras and statistics of datasets.\n\n"
    "The original stays, or is replaced in one step when everything is written.",
    no_args_is_help=True,
)


@edit_app.command()
def delete(
    dataset: Annotated[str, _DATASET],
    episodes: Annotated[list[str], typer.Argument(help=_EPISODES)],
    output_dir: Annotated[Path | None, _OUTPUT] = None,
    in_place: Annotated[bool, _IN_PLACE] = False,
    dry_run: Annotated[bool, _DRY_RUN] = False,
) -> None:
    """Delete episodes; those behind them move up.

    Pictures that stay are not encoded again. Example: ulna dataset edit delete lab/pick 3 7-9
    """
    from ulna.data.editing.episodes import delete_episodes
    from ulna.data.editing.selection import check_episodes, check_readable, kept

    with reporting():
        meta, target = edit_places(dataset, output_dir, in_place, "modified")
        gone = check_episodes(meta, episode_numbers(episodes))
        left = kept(meta, gone)
        check_readable(meta, left)
        frames = int(meta.episodes.lengths[gone].sum())
        plan = f"deletes {len(gone)} of {meta.total_episodes} episodes ({frames} of {meta.total_frames} frames)"
        _carry_out(meta, target, plan, dry_run, lambda: delete_episodes(meta, gone, target))


@edit_app.command()
def split(
    dataset: Annotated[str, _DATASET],
    part: Annotated[
        list[str],
        typer.Option("--part", help="NAME=FRACTION or NAME=EPISODES (train=0.8, val=0-3,7); once for each part."),
    ],
    output_dir: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for the parts; default: beside the dataset.")
    ] = None,
    dry_run: Annotated[bool, _DRY_RUN] = False,
) -> None:
    """Write parts of a dataset as datasets of their own. The original stays.

    Example: ulna dataset edit split lab/pick --part train=0.8 --part val=0.2
    Fractions are taken in order and rounded down; when they add up to 1, the last part takes what is left over.
    """
    from ulna.data.editing.episodes import split_dataset
    from ulna.data.editing.places import open_source
    from ulna.data.editing.selection import check_readable, episodes_of_splits

    with reporting():
        splits = _parts(part)
        meta = open_source(dataset)
        chosen = episodes_of_splits(meta, splits)
        check_readable(meta, (episode for episodes in chosen.values() for episode in episodes))
        for name, episodes in chosen.items():
            message(f"{name}: {len(episodes)} episodes, {int(meta.episodes.lengths[episodes].sum())} frames")
        if not dry_run:
            for result in split_dataset(meta, splits, output_dir).values():
                output(str(result.root))


@edit_app.command()
def merge(
    datasets: Annotated[list[str], typer.Argument(help="user/name, or folders, in the order of the result.")],
    output_dir: Annotated[Path, typer.Option("--output", "-o", help="Folder of the result.")],
    repo_id: Annotated[str | None, typer.Option(help="Name of the result; default: that of its folder.")] = None,
    keep_video_files: Annotated[
        bool, typer.Option("--keep-video-files", help="Keep every video file as it is, however small.")
    ] = False,
    keep_data_files: Annotated[
        bool, typer.Option("--keep-data-files", help="Keep the rows of every table file in a file of their own.")
    ] = False,
    dry_run: Annotated[bool, _DRY_RUN] = False,
) -> None:
    """Write one dataset with the episodes of several. The originals stay.

    Frame rate, robot and features must be equal; every difference is listed. Tasks are joined by their texts.
    """
    from ulna.data.editing.merging import merge_datasets, merged_info
    from ulna.data.editing.places import open_source
    from ulna.data.location import new_root

    with reporting():
        metas = [open_source(dataset) for dataset in datasets]
        merged_info(metas)
        episodes, frames = (sum(getattr(m, f"total_{what}") for m in metas) for what in ("episodes", "frames"))
        name = repo_id or output_dir.name
        target = new_root(name, output_dir, edited=True)
        message(f"{len(metas)} datasets -> {target.absolute()}: {episodes} episodes, {frames} frames")
        if not dry_run:
            report_result(merge_datasets(metas, name, output_dir, not keep_video_files, not keep_data_files))


@edit_app.command()
def remove_feature(
    dataset: Annotated[str, _DATASET],
    features: Annotated[list[str], typer.Argument(help="Names of columns or cameras.")],
    output_dir: Annotated[Path | None, _OUTPUT] = None,
    in_place: Annotated[bool, _IN_PLACE] = False,
    dry_run: Annotated[bool, _DRY_RUN] = False,
) -> None:
    """Remove columns or cameras, with their statistics and videos."""
    from ulna.data.editing.features import remove_feature as remove
    from ulna.data.editing.selection import check_names

    with reporting():
        meta, target = edit_places(dataset, output_dir, in_place, "modified")
        names = check_names(meta.parsed_features, features)
        _carry_out(meta, target, f"removes {', '.join(names)}", dry_run, lambda: remove(meta, names, target))


@edit_app.command()
def rename_task(
    dataset: Annotated[str, _DATASET],
    old: Annotated[str, typer.Argument(help="Text of a task.")],
    new: Annotated[str, typer.Argument(help="Its new text; may be that of another task, which it becomes then.")],
    output_dir: Annotated[Path | None, _OUTPUT] = None,
    in_place: Annotated[bool, _IN_PLACE] = False,
    dry_run: Annotated[bool, _DRY_RUN] = False,
) -> None:
    """Change the text of a task wherever it stands."""
    from ulna.data.editing.selection import check_task, check_text
    from ulna.data.editing.tasks import modify_tasks

    with reporting():
        meta, target = edit_places(dataset, output_dir, in_place, "modified")
        texts = {check_task(meta, old): check_text(new)}
        plan = f"renames the task {old!r} to {new!r}"
        _carry_out(meta, target, plan, dry_run, lambda: modify_tasks(meta, task_replacements=texts, output_dir=target))


@edit_app.command()
def set_task(
    dataset: Annotated[str, _DATASET],
    task: Annotated[str, typer.Argument(help="What the robot does.")],
    episodes: Annotated[
        list[str] | None, typer.Option("--episodes", help=f"{_EPISODES} Default: all; may be given several times.")
    ] = None,
    output_dir: Annotated[Path | None, _OUTPUT] = None,
    in_place: Annotated[bool, _IN_PLACE] = False,
    dry_run: Annotated[bool, _DRY_RUN] = False,
) -> None:
    """Give all frames of some or all episodes one task."""
    from ulna.data.editing.selection import check_episodes, check_text
    from ulna.data.editing.tasks import modify_tasks

    with reporting():
        meta, target = edit_places(dataset, output_dir, in_place, "modified")
        named = episode_numbers(episodes) if episodes else range(meta.total_episodes)
        tasks = dict.fromkeys(check_episodes(meta, named), check_text(task))
        plan = f"gives {len(tasks)} of {meta.total_episodes} episodes the task {task!r}"
        _carry_out(meta, target, plan, dry_run, lambda: modify_tasks(meta, episode_tasks=tasks, output_dir=target))


@edit_app.command()
def apply(
    dataset: Annotated[str, _DATASET],
    output_dir: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of the result; default: in place.")
    ] = None,
    dry_run: Annotated[bool, _DRY_RUN] = False,
) -> None:
    """Carry out what was marked in `ulna dataset view`.

    Episodes are deleted and tasks renamed in one pass, in the place of the dataset unless --output is given.
    """
    from ulna.data.editing.applying import apply_marks, check_marks
    from ulna.data.editing.places import open_source

    with reporting():
        meta = open_source(dataset)
        marks = check_marks(meta)
        renamed = "".join(f"; renames the task {old!r} to {new!r}" for old, new in marks.tasks.items())
        gone = f" {' '.join(map(str, marks.delete))}" if marks.delete else ""
        plan = f"deletes {len(marks.delete)} of {meta.total_episodes} episodes{gone}{renamed}"
        _carry_out(meta, output_dir, plan, dry_run, lambda: apply_marks(meta, output_dir))


def _carry_out(
    meta: LeRobotDatasetMetadata, target: Path | None, plan: str, dry_run: bool, edit: Callable[[], LeRobotDataset]
) -> None:
    from ulna.data.editing.places import place_for

    place = place_for(meta, target, None)
    where = f"{place.root}, in place" if place.in_place else f"{meta.root} -> {place.root}"
    message(f"{where}: {plan}")
    if not dry_run:
        report_result(edit())


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
