# SPDX-License-Identifier: Apache-2.0
"""`ulna dataset`: commands on datasets that lie on this machine. Results go to stdout, everything else to stderr."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ulna.core.commands import reporting
from ulna.data.commands_check import repair, validate
from ulna.data.commands_convert import convert
from ulna.data.commands_edit import edit_app
from ulna.data.commands_hub import pull, push
from ulna.data.commands_transforms import transforms
from ulna.data.commands_view import view

if TYPE_CHECKING:
    from ulna.data.metadata import LeRobotDatasetMetadata

__all__ = ["app"]

app = typer.Typer(name="dataset", no_args_is_help=True)


@app.callback()
def main() -> None:
    """Look at datasets of robot episodes, check and mend them, change, convert and share them."""


@app.command()
def info(
    dataset: Annotated[str, typer.Argument(help="user/name, or the folder of a dataset.")],
    root: Annotated[Path | None, typer.Option(help="Folder of the dataset, if it is not found by name.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what a dataset holds, and what is wrong at first sight."""
    from ulna.data.metadata import LeRobotDatasetMetadata

    folder = root if root is not None or not Path(dataset).is_dir() else Path(dataset)
    with reporting():
        meta = LeRobotDatasetMetadata(dataset, folder)
    facts = _facts(meta)
    typer.echo(json.dumps(facts, indent=2, ensure_ascii=False) if as_json else _text(facts))


app.command()(view)
app.command()(validate)
app.command()(repair)
app.add_typer(edit_app, name="edit")
app.command()(convert)
app.command()(transforms)
app.command()(push)
app.command()(pull)


def _facts(meta: LeRobotDatasetMetadata) -> dict[str, Any]:
    from ulna.data.timing import read_timings, summary

    lengths = meta.episodes.lengths
    timings = {e: t for e, t in read_timings(meta.root).items() if e < meta.total_episodes}
    files = [path for path in meta.root.rglob("*") if path.is_file()]
    return {
        "repo_id": meta.repo_id,
        "root": str(meta.root),
        "robot_type": meta.robot_type,
        "codebase_version": meta.info.codebase_version,
        "fps": meta.fps,
        "episodes": meta.total_episodes,
        "frames": meta.total_frames,
        "measured": summary(timings, meta.fps),
        "seconds": round(meta.total_frames / meta.fps, 3),
        "episode_length": {"shortest": int(lengths.min()), "longest": int(lengths.max())} if len(lengths) else None,
        "tasks": list(meta.tasks),
        "features": {
            name: {"dtype": f.dtype, "shape": list(f.shape), "names": f.names}
            for name, f in meta.parsed_features.items()
            if not f.is_default
        },
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        "findings": [finding.message for finding in meta.findings] + list(meta.broken.values()),
    }


def _text(facts: dict[str, Any]) -> str:
    length = facts["episode_length"]
    span = f" ({_span(length['shortest'], length['longest'])})" if length else ""
    rows = [
        ("folder", facts["root"]),
        ("robot", facts["robot_type"] or "unknown"),
        ("format", facts["codebase_version"]),
        ("episodes", f"{facts['episodes']}{span}"),
        ("frames", f"{facts['frames']} at {facts['fps']} fps, {facts['seconds']:.1f} s"),
        *_rates(facts["measured"]),
        ("size", f"{facts['bytes'] / 1e6:.1f} MB in {facts['files']} files"),
        *_numbered("task", facts["tasks"]),
        *[(name, _feature(feature)) for name, feature in facts["features"].items()],
        *_numbered("problem", facts["findings"]),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join([facts["repo_id"], *(f"  {name:<{width}}  {value}" for name, value in rows)])


def _span(shortest: int, longest: int) -> str:
    return f"{shortest} frames each" if shortest == longest else f"{shortest} to {longest} frames"


def _rates(measured: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Tell how fast the episodes were really recorded."""
    if measured is None:
        return []
    rate = (
        f"{measured['mean_fps']:.2f} fps measured, slowest {measured['slowest_fps']:.2f} in episode "
        f"{measured['slowest']}, longest gap {measured['worst_gap_s']:.3f} s in episode {measured['worst_gap_episode']}"
    )
    wrong = f"{len(measured['differ'])} episodes differ from the declared rate: {measured['differ'][:10]}"
    return [("rate", rate), *([("rate", wrong)] if measured["differ"] else [])]


def _numbered(name: str, values: Sequence[str]) -> list[tuple[str, str]]:
    return [(f"{name} {number}", value) for number, value in enumerate(values)]


def _feature(feature: dict[str, Any]) -> str:
    shape = "x".join(map(str, feature["shape"])) or "scalar"
    names = f": {', '.join(map(str, feature['names']))}" if isinstance(feature["names"], list) else ""
    return f"{feature['dtype']} {shape}{names}"
