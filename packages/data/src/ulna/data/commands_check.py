# SPDX-License-Identifier: Apache-2.0
"""`ulna dataset validate` and `repair`. Exit code 0: sound; 1: errors were found, or it could not be done."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ulna.core.commands import reporting

if TYPE_CHECKING:
    from ulna.data.checks.report import Problem, Report

__all__ = ["repair", "validate"]

_DATASET = typer.Argument(help="user/name, or the folder of a dataset.")
_ROOT = typer.Option(help="Folder of the dataset, if it is not found by name.")
_JSON = typer.Option("--json", help="Print one JSON object.")


def validate(
    dataset: Annotated[str, _DATASET],
    root: Annotated[Path | None, _ROOT] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Decode every picture and every frame of the videos.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings too.")] = False,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Check everything that can be wrong with a dataset; change nothing.

    Each finding says where it is and which command mends it. Exit code 1 when there is an error.
    """
    from ulna.data.checks.validation import validate as check

    with reporting():
        report = check(dataset, root, deep=deep, progress=_progress)
    _progress("")
    typer.echo(json.dumps(report.to_json(), indent=2, ensure_ascii=False) if as_json else _text(report))
    if not report.is_sound or (strict and report.severities["warning"]):
        raise typer.Exit(1)


def repair(
    dataset: Annotated[str, _DATASET],
    root: Annotated[Path | None, _ROOT] = None,
    recover: Annotated[
        bool, typer.Option("--recover", help="Keep the episode that was being recorded, up to its last whole frame.")
    ] = False,
    drop_broken: Annotated[
        bool, typer.Option("--drop-broken", help="Delete episodes whose files are missing or damaged.")
    ] = False,
    renumber: Annotated[
        bool, typer.Option("--renumber", help="Close gaps in the episode numbers; later episodes get smaller numbers.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Mend a dataset: counters, indices, times, statistics, an interrupted recording.

    Nothing is lost without one of the options that say so. Exit code 1 when an error is left.
    """
    from ulna.data.checks.mending import repair as mend

    with reporting():
        result = mend(
            dataset,
            root,
            recover=recover,
            drop_broken=drop_broken,
            renumber=renumber,
            dry_run=dry_run,
            progress=_progress,
        )
    _progress("")
    if as_json:
        typer.echo(json.dumps(result.to_json(), indent=2, ensure_ascii=False))
    else:
        verb = "would " if dry_run else ""
        done = [f"  {verb}{step}" for step in result.steps] or ["  nothing to do"]
        typer.echo("\n".join([str(result.root), *done]))
        if not dry_run:
            typer.echo(_text(result.after))
    if not dry_run and not result.after.is_sound:
        raise typer.Exit(1)


def _progress(name: str) -> None:
    """Show the file being read, on a terminal only; an empty name clears the line."""
    if sys.stderr.isatty():
        typer.echo(f"\r\033[K{name[-100:]}", err=True, nl=False)


def _text(report: Report) -> str:
    lines = [_line(problem) for problem in report.problems]
    lines += [f"  ... and {number} more of the kind {code}" for code, number in report.left_out.items()]
    found = [
        f"{report.severities[kind]} {kind}{'' if report.severities[kind] == 1 else 's'}"
        for kind in ("error", "warning", "note")
        if report.severities[kind]
    ]
    looked = f"{report.episodes} episodes, {report.frames} frames, {report.files} files"
    verdict = ("sound" if report.is_sound else "not sound") + (f" ({', '.join(found)})" if found else "")
    return "\n".join([*lines, f"{report.root}: {looked}: {verdict}"])


def _line(problem: Problem) -> str:
    where = [str(problem.path)] if problem.path is not None else []
    if problem.episode is not None:
        frame = "" if problem.frame is None else f", frame {problem.frame}"
        where.insert(0, f"episode {problem.episode}{frame}")
    place = f"{'; '.join(where)}: " if where else ""
    remedy = f"\n      -> {problem.remedy}" if problem.remedy else ""
    return f"{problem.severity:7}  {place}{problem.message} [{problem.code}]{remedy}"
