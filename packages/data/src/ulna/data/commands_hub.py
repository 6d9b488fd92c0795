# SPDX-License-Identifier: Apache-2.0
"""`ulna dataset push` and `pull`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ulna.core.commands import message, reporting
from ulna.data.commands_edit_options import episode_numbers

__all__ = ["pull", "push"]


def push(
    dataset: Annotated[str, typer.Argument(help="user/name, or the folder of a dataset.")],
    repo_id: Annotated[
        str | None, typer.Argument(help="Name on the Hub, user/name; default: the dataset's own.")
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder of the dataset, if it is not found by name.")] = None,
    branch: Annotated[str | None, typer.Option(help="Branch to write; default: main.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Tag of the dataset card; may be given several times.")] = None,
    license: Annotated[str, typer.Option(help="License of the dataset card.")] = "apache-2.0",
    private: Annotated[
        bool | None, typer.Option("--private/--public", help="Of a new repository; default: as your account says.")
    ] = None,
    videos: Annotated[bool, typer.Option("--videos/--no-videos", help="Whether videos are uploaded.")] = True,
) -> None:
    """Upload a finished dataset to the Hugging Face Hub.

    Repeating it after a failure goes on where it stopped; files that are there already are not sent again.
    """
    from ulna.data.hub import push_dataset

    with reporting():
        done = push_dataset(
            dataset,
            repo_id,
            root=root,
            branch=branch,
            tags=tag,
            license=license,
            private=private,
            push_videos=videos,
        )
    message(f"{len(done.uploaded)} files uploaded, {done.kept} were there already; commit {done.commit[:12]}")
    typer.echo(done.url)


def pull(
    repo_id: Annotated[str, typer.Argument(help="Name on the Hub, user/name.")],
    root: Annotated[Path | None, typer.Option(help="Folder for it; default: a folder for each revision.")] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit; default: the newest that fits.")] = None,
    episodes: Annotated[str | None, typer.Option(help="Only these, such as 0,3,10-19.")] = None,
    videos: Annotated[bool, typer.Option("--videos/--no-videos", help="Whether videos are downloaded.")] = True,
    force: Annotated[bool, typer.Option("--force", help="Download again what is here.")] = False,
) -> None:
    """Download a dataset from the Hugging Face Hub and print its folder.

    An interrupted download goes on where it stopped.
    """
    from ulna.data.hub import pull_dataset

    with reporting():
        chosen = None if episodes is None else episode_numbers([episodes])
        folder = pull_dataset(repo_id, root, revision=revision, episodes=chosen, download_videos=videos, force=force)
    typer.echo(str(folder))
