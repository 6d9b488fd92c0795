# SPDX-License-Identifier: Apache-2.0
"""The Typer apps `ulna info` and `ulna plugins`: arguments in, tables or JSON out; the work is done beside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from ulna.core.commands.configured import command_group
from ulna.core.commands.terminal import message, output, output_json, output_table, reporting
from ulna.core.errors import PluginNotFoundError, nearest
from ulna.core.plugins import KINDS, PluginRecord, normalize, registry

__all__ = ["FORMAT", "info_app", "plugins_app"]

FORMAT = 1
"""Version of the JSON that `--json` writes."""

_JSON = typer.Option(False, "--json", help="Write JSON, for programs.")
_KIND = typer.Option(None, "--kind", help="Only this kind.", autocompletion=lambda: list(KINDS))

info_app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
plugins_app = command_group("plugins", "List, inspect, check and create plugins.")


@info_app.command("info")
def info(as_json: bool = _JSON) -> None:
    """Show what is installed here, and what of it is broken."""
    from ulna.cli.environment import collect, lines

    report = collect()
    if as_json:
        output_json({"format": FORMAT, **report})
    else:
        output("\n".join(lines(report)))


class _QuickList(TyperCommand):
    """Reads the usual lines itself: typer's own way imports pydantic, which is half the time of a list."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not set(args) <= {"--json"}:
            return super().parse_args(ctx, args)
        ctx.params, ctx.args = {"kind": None, "as_json": bool(args)}, []
        return []


@plugins_app.command("list", cls=_QuickList)
def list_plugins(kind: str = _KIND, as_json: bool = _JSON) -> None:
    """List what is installed, without importing any of it."""
    with reporting():
        records = _of_kind(kind)
    if as_json:
        output_json({"format": FORMAT, "plugins": [record.to_dict() for record in records]})
        return
    rows = [(r.kind, r.type, r.distribution, r.version, r.status, r.summary or r.reason) for r in records]
    output_table(("KIND", "TYPE", "DISTRIBUTION", "VERSION", "STATUS", "SUMMARY"), rows)
    bad = [record for record in records if record.status not in ("ok", "disabled")]
    if bad:
        message("")
    for record in bad:
        message(f"{record.kind}/{record.qualified} is {record.status}: {record.reason}. {record.remedy}".rstrip())


def _of_kind(kind: str | None) -> list[PluginRecord]:
    if kind is not None and kind not in KINDS:
        near = nearest(kind, list(KINDS))
        words = f"; did you mean {near!r}?" if near else "."
        raise PluginNotFoundError(
            f"There is no plugin kind {kind!r}{words}", kind=kind, hint=f"Kinds are {', '.join(KINDS)}."
        )
    return registry().records(kind)


def _named(names: list[str], kind: str | None = None) -> list[PluginRecord]:
    """Return the plugins meant by types, `distribution/type`, `kind/type` or distributions; all without names."""
    records = _of_kind(kind)
    found: list[PluginRecord] = []
    for name in names:
        hits = [
            r for r in records if name in (r.type, r.label, r.qualified) or normalize(name) == normalize(r.distribution)
        ]
        if not hits:
            known = sorted({r.type for r in records} | {r.distribution for r in records})
            near = nearest(name, known)
            words = f"; did you mean {near!r}?" if near else "."
            raise PluginNotFoundError(f"No plugin is called {name!r}{words}", type=name, hint="See: ulna plugins list")
        found += [r for r in hits if r not in found]
    return found if names else records


@plugins_app.command("show")
def show(
    names: list[str] = typer.Argument(
        ..., metavar="NAME...", help="Types, kind/type, distribution/type or distributions."
    ),
    kind: str = _KIND,
    as_json: bool = _JSON,
) -> None:
    """Show all that is known of plugins without importing them."""
    with reporting():
        records = _named(names, kind)
    if as_json:
        output_json({"format": FORMAT, "plugins": [_details(record) for record in records]})
        return
    for record in records:
        details = _details(record)
        output(f"{record.label}")
        for key in (key for key in details if key not in ("kind", "type") and details[key] not in ("", [], {})):
            value = details[key]
            text = ", ".join(map(str, value)) if isinstance(value, list) else value
            output(f"  {key.replace('_', ' ')}: {text}")
        output("")


def _details(record: PluginRecord) -> dict[str, Any]:
    said = record.manifest or {}
    levels = KINDS[record.kind].supported_levels if record.kind in KINDS else ()
    return {
        **record.to_dict(),
        "title": said.get("title", ""),
        "capabilities": said.get("capabilities", []),
        "hardware_ids": said.get("hardware_ids", []),
        "links": said.get("links", {}),
        "supported_api_levels": list(levels),
        "location": record.location,
    }


@plugins_app.command("doctor")
def doctor(as_json: bool = _JSON) -> None:
    """Look for what keeps plugins from working, and say what to do. Exits with 1 when something is wrong."""
    from ulna.cli.doctor import examine

    findings = examine()
    if as_json:
        output_json({"format": FORMAT, "findings": [finding.to_dict() for finding in findings]})
    else:
        for finding in findings:
            output(f"{finding.level:<8} {finding.title}")
            for line in (finding.detail, finding.remedy):
                if line:
                    output(f"{'':<8} {line}")
        if not findings:
            output("Everything is well.")
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)


@plugins_app.command("verify")
def verify(
    names: list[str] = typer.Argument(None, metavar="[NAME...]", help="Which; all without."),
    kind: str = _KIND,
    packaging: bool = typer.Option(True, help="Check the packaging of their distributions too, with ulna-testing."),
    as_json: bool = _JSON,
) -> None:
    """Import plugins and check them against their contract. Exits with 1 when one fails."""
    from ulna.cli.verifying import verify as check
    from ulna.cli.verifying import verify_packaging

    with reporting():
        records = _named(names or [], kind)
    distributions = sorted({record.distribution for record in records if record.status == "ok"}) if packaging else []
    reports = [*map(check, records), *map(verify_packaging, distributions)]
    if as_json:
        output_json({"format": FORMAT, "reports": [report.to_dict() for report in reports]})
    else:
        for report in reports:
            output(f"{'ok' if report.passed else 'FAILED':<8} {report.name}")
            for line in report.problems + report.notes:
                output(f"{'':<8} " + line.replace("\n", f"\n{'':<8} "))
    if not all(report.passed for report in reports):
        raise typer.Exit(1)


@plugins_app.command("new")
def new(
    kind: str = typer.Argument(..., help=f"One of {', '.join(KINDS)}.", autocompletion=lambda: list(KINDS)),
    name: str = typer.Argument(..., help="Its type string, such as my_arm."),
    folder: Path = typer.Option(None, "--folder", help="Where to write; default: ./DISTRIBUTION."),
    distribution: str = typer.Option(None, "--distribution", help="Its name; default: ulna-KIND-NAME."),
) -> None:
    """Write a new plugin. It builds, installs and passes its conformance suite at once."""
    from ulna.cli.scaffolding import create

    with reporting():
        made = create(kind, name, folder=folder, distribution=distribution)
    for path in made.files:
        output(str(path))
    steps = (
        f'pip install -e "{made.folder}[test]"',
        f"ulna plugins verify {made.distribution}",
        f"python -m pytest {made.folder}",
    )
    message("\nNext:\n" + "\n".join(f"  {step}" for step in steps))


@plugins_app.command("manifest")
def manifest(
    folder: Path = typer.Argument(Path(), help="Folder of the distribution's source, with its pyproject.toml."),
    write: bool = typer.Option(False, "--write", help="Write ulna-plugin.json there."),
    check: bool = typer.Option(False, "--check", help="Exit with 1 when the file there differs from the code."),
) -> None:
    """Generate the static manifest of a distribution from its code."""
    from ulna.cli.manifests import drift, from_source, write_manifest

    with reporting():
        document = from_source(folder)
        if write:
            message(f"Wrote {write_manifest(folder, document)}.")
        elif not check:
            output_json(document)
        differences = drift(folder, document) if check else []
    for line in differences:
        output(line)
    if differences:
        message("The manifest differs from the code. Write it anew with: ulna plugins manifest --write")
        raise typer.Exit(1)
