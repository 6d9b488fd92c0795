# SPDX-License-Identifier: Apache-2.0
"""`ulna dataset view`: look at episodes in the browser, or give one to a tracker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ulna.core.commands import message, output, reporting

__all__ = ["view"]


def view(
    dataset: Annotated[str, typer.Argument(help="user/name, or the folder of a dataset.")],
    root: Annotated[Path | None, typer.Option(help="Folder of the dataset, if it is not found by name.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; the default is seen from this machine only.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 0,
    episode: Annotated[int, typer.Option(help="The episode to begin with, or to export.", min=0)] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    rerun: Annotated[bool, typer.Option("--rerun", help="Show one episode in Rerun instead.")] = False,
    save: Annotated[Path | None, typer.Option(help="With --rerun: write this .rrd file instead.")] = None,
) -> None:
    """Look at episodes in the browser, and mark what should be deleted or renamed."""
    folder = root if root is not None or not Path(dataset).is_dir() else Path(dataset)
    with reporting():
        if save is not None and not rerun:
            raise typer.BadParameter("--save belongs to --rerun", param_hint="--save")
        if rerun:
            _export(dataset, folder, episode, save)
        else:
            _serve(dataset, folder, host, port, episode, browser)


def _serve(dataset: str, root: Path | None, host: str, port: int, episode: int, browser: bool) -> None:
    from ulna.data.viewer.content import OpenDataset
    from ulna.data.viewer.guarding import is_local
    from ulna.data.viewer.serving import can_open_browser, listen, open_browser, require_server, serve

    require_server()
    opened = OpenDataset(dataset if root is None else root.resolve().name, root)
    if episode:
        opened.content.meta.episodes.row(episode)  # refuses one that is not there
    sock = listen(host, port)
    name = "127.0.0.1" if host == "0.0.0.0" else f"[{host}]" if ":" in host else host
    url = f"http://{name}:{sock.getsockname()[1]}/" + (f"#episode={episode}" if episode else "")

    def ready() -> None:
        output(url)
        if not is_local(host):
            message("Everybody who reaches this machine can look at the dataset and mark episodes.")
        message("Ctrl-C ends it.")
        if browser and can_open_browser():
            open_browser(url)

    serve(opened, sock, host, ready)


def _export(dataset: str, root: Path | None, episode: int, save: Path | None) -> None:
    from ulna.core.trackers import TrackerConfig, make_tracker
    from ulna.data.metadata import LeRobotDatasetMetadata
    from ulna.data.viewer.export import export_episode

    meta = LeRobotDatasetMetadata(dataset, root)
    meta.episodes.row(episode)
    settings = {} if save is None else {"file": save}
    config = TrackerConfig.choose({"type": "rerun", **settings})
    with make_tracker(config, f"{meta.repo_id} episode {episode}") as tracker:
        frames = export_episode(meta, episode, tracker)
    message(f"Episode {episode}: {frames} frames" + (f" in {save}" if save else " shown in Rerun"))
