# SPDX-License-Identifier: Apache-2.0
"""Judging what was found: well-formed, allowed, compatible, unambiguous? Gives reasons and remedies; never raises."""

from __future__ import annotations

import json
import logging
import operator
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from ulna.core.__about__ import __version__ as core_version
from ulna.core.errors import nearest
from ulna.core.plugins.kinds import GROUP_PREFIX, KINDS
from ulna.core.plugins.manifest import Manifest, parse
from ulna.core.plugins.records import FoundEntryPoint, PluginRecord, normalize

__all__ = ["Settings", "judge", "read_settings", "settings_path"]

_log = logging.getLogger(__name__)
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")
_VALUE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)?")
_BOUND = re.compile(r"(>=|<=|<|>|==|!=)\s*(\d+(?:\.\d+)*)")
_COMPARE = {
    ">=": operator.ge,
    "<=": operator.le,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
    "!=": operator.ne,
}
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._\-]*)\s*(\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(;.*)?")


@dataclass(frozen=True)
class Settings:
    """The user's say about plugins.

    Attributes:
        allow: Only these (distribution, type, `kind/type` or `distribution/type`); None allows all.
        disable: Never these.
        prefer: `kind/type` to the distribution meant by the bare type.
        strict: Whether failures raise where a user's session would go on with a warning.
        trace: Whether each load is logged visibly.
        problem: What is wrong with the settings file, if anything.
    """

    allow: tuple[str, ...] | None = None
    disable: tuple[str, ...] = ()
    prefer: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False
    trace: bool = False
    problem: str | None = None


def settings_path(environ: Mapping[str, str]) -> Path:
    """Return the settings file, `$ULNA_HOME/settings.json`.

    Args:
        environ: Environment variables.
    """
    return Path(environ.get("ULNA_HOME") or "~/.cache/ulna").expanduser() / "settings.json"


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read switches from the environment and preferences from the settings file; never raises.

    Args:
        environ: Environment variables; None means those of this process.
    """
    environ = os.environ if environ is None else environ
    prefer, problem = _preferences(settings_path(environ))
    return Settings(
        allow=_names(environ, "ULNA_PLUGINS") or None,
        disable=_names(environ, "ULNA_DISABLE"),
        prefer=prefer,
        strict=environ.get("ULNA_STRICT", "") not in ("", "0"),
        trace=environ.get("ULNA_TRACE", "") not in ("", "0"),
        problem=problem,
    )


def _names(environ: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(name for name in re.split(r"[,\s]+", environ.get(key, "")) if name)


def _preferences(path: Path) -> tuple[dict[str, str], str | None]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}, None
    except (OSError, UnicodeDecodeError) as error:
        return {}, f"{path} cannot be read: {error}"
    try:
        prefer = json.loads(text).get("prefer", {})
        return {str(label): normalize(name) for label, name in prefer.items()}, None
    except (ValueError, AttributeError, TypeError) as error:
        return {}, f'{path} should look like {{"prefer": {{"robots/so101_follower": "ulna-robots-so"}}}}: {error}'


def judge(found: Iterable[FoundEntryPoint], settings: Settings, own: Sequence[PluginRecord] = ()) -> list[PluginRecord]:
    """Judge every entry point.

    Args:
        found: What the scan found.
        settings: The user's switches and preferences.
        own: Records of this process, taken as they are but for conflicts.

    Returns:
        One record each, sorted by kind, type and distribution.
    """
    records = [*(_judge_one(entry, settings) for entry in found), *own]
    return sorted(_settle_conflicts(records, settings), key=lambda r: (r.kind, r.type, r.distribution))


def _judge_one(entry: FoundEntryPoint, settings: Settings) -> PluginRecord:
    kind = entry.group.removeprefix(GROUP_PREFIX)
    manifest = parse(entry.manifest, entry.distribution) if entry.manifest is not None else None
    said = manifest.entry(kind, entry.name) if manifest is not None else None
    level = said.get("api_level", 1) if said is not None else (KINDS[kind].api_level if kind in KINDS else 1)
    record = PluginRecord(
        kind,
        entry.name,
        entry.value,
        entry.distribution,
        entry.version,
        api_level=level,
        manifest=said,
        location=entry.location,
    )
    status, verdict = "invalid", _invalid(record, entry, manifest)
    if verdict is None:
        status, verdict = "disabled", _disabled(record, settings)
    if verdict is None:
        status, verdict = "incompatible", _incompatible(record, entry)
    return record if verdict is None else replace(record, status=status, reason=verdict[0], remedy=verdict[1])


def _invalid(record: PluginRecord, entry: FoundEntryPoint, manifest: Manifest | None) -> tuple[str, str] | None:
    remedy = f"Report it to the authors of {record.distribution}, or uninstall it: pip uninstall {record.distribution}"
    if entry.problem is not None:
        return entry.problem, remedy
    if record.kind not in KINDS:
        near = nearest(record.kind, list(KINDS))
        hint = f" (nearest: {GROUP_PREFIX}{near})" if near else ""
        return f"there is no plugin kind {record.kind!r}{hint}; kinds are {', '.join(KINDS)}", remedy
    if not _TYPE.fullmatch(record.type):
        return f"the type {record.type!r} is not made of letters, digits, `_`, `-` and `.`", remedy
    if not _VALUE.fullmatch(record.value) or (record.kind != "hooks" and ":" not in record.value):
        return f"the entry point {record.value!r} is not `module:attribute`", remedy
    if manifest is not None and manifest.problem is not None:
        return manifest.problem, remedy
    return None


def _named(record: PluginRecord, names: Iterable[str]) -> str | None:
    """Return the name in `names` that means `record`."""
    distribution = normalize(record.distribution)
    own = {record.type, record.label, f"{distribution}/{record.type}"}
    return next((n for n in names if n in own or normalize(n) == distribution), None)


def _disabled(record: PluginRecord, settings: Settings) -> tuple[str, str] | None:
    hit = _named(record, settings.disable)
    if hit is not None:
        return f"ULNA_DISABLE names {hit}", f"Remove {hit} from ULNA_DISABLE."
    if settings.allow is not None and _named(record, settings.allow) is None:
        return "ULNA_PLUGINS does not name it", f"Add {record.distribution} to ULNA_PLUGINS, or unset it."
    return None


def _incompatible(record: PluginRecord, entry: FoundEntryPoint) -> tuple[str, str] | None:
    for line in entry.requires:
        reason = _core_range_problem(line)
        if reason is not None:
            return reason, f"Install versions that fit: pip install --upgrade {record.distribution} ulna-core"
    kind = KINDS[record.kind]
    if record.api_level in kind.supported_levels:
        return None
    levels = " and ".join(map(str, kind.supported_levels))
    stale = "ulna-core" if record.api_level > kind.api_level else record.distribution
    return (
        f"it is written for API level {record.api_level} of {kind.name}, ulna-core {core_version} supports {levels}",
        f"Upgrade {stale}: pip install --upgrade {stale}",
    )


@lru_cache(maxsize=256)
def _core_range_problem(requirement: str) -> str | None:
    """Check one `Requires-Dist` line that may be about ulna-core."""
    match = _REQUIREMENT.fullmatch(requirement)
    if match is None or normalize(match[1]) != "ulna-core" or (match[4] and "extra" in match[4]):
        return None
    wanted = match[3].strip()
    fits = _fits_plainly(wanted)
    if fits is None:
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        try:
            fits = SpecifierSet(wanted).contains(core_version, prereleases=True)
        except InvalidSpecifier:
            return f"its requirement {requirement!r} cannot be understood"
    return None if fits else f"it needs ulna-core {wanted}, installed is {core_version}"


def _fits_plainly(wanted: str) -> bool | None:
    """Compare with bounds such as `>=0.1,<0.2` without the 20 ms that importing packaging takes; None if it must."""
    clauses = [_BOUND.fullmatch(clause.strip()) for clause in wanted.split(",")] if wanted else []
    if not core_version.replace(".", "").isdigit():
        return None
    verdicts: list[bool] = []
    for clause in clauses:
        if clause is None:
            return None
        ours, theirs = ([int(n) for n in text.split(".")] for text in (core_version, clause[2]))
        width = max(len(ours), len(theirs))
        ours, theirs = (numbers + [0] * (width - len(numbers)) for numbers in (ours, theirs))
        verdicts.append(_COMPARE[clause[1]](ours, theirs))
    return all(verdicts)


def _settle_conflicts(records: Sequence[PluginRecord], settings: Settings) -> list[PluginRecord]:
    rivals: dict[tuple[str, str], list[PluginRecord]] = defaultdict(list)
    for record in records:
        if record.status == "ok":
            rivals[record.kind, record.type].append(record)
    settled = {id(r): new for group in rivals.values() if len(group) > 1 for r, new in _settle(group, settings)}
    return [settled.get(id(record), record) for record in records]


def _settle(group: list[PluginRecord], settings: Settings) -> list[tuple[PluginRecord, PluginRecord]]:
    label = group[0].label
    if len({r.qualified for r in group}) < len(group):
        reason = f"{group[0].distribution} declares {label} more than once"
        remedy = f"Report it to the authors of {group[0].distribution}."
        return [(r, replace(r, status="invalid", reason=reason, remedy=remedy)) for r in group]
    preferred = settings.prefer.get(label)
    if preferred in {normalize(r.distribution) for r in group}:
        others = [r for r in group if normalize(r.distribution) != preferred]
        reason = f"the settings prefer {preferred}"
        return [(r, replace(r, default=False, reason=reason, remedy=f"Write {r.qualified} to use it.")) for r in others]
    names = sorted(r.distribution for r in group)
    reason = f"{' and '.join(names)} {'all' if len(names) > 2 else 'both'} offer {label}"
    remedy = (
        f"Write {' or '.join(sorted(r.qualified for r in group))}, or prefer one in settings.json: "
        f'{{"prefer": {{"{label}": "{names[0]}"}}}}'
    )
    return [(r, replace(r, status="conflict", reason=reason, remedy=remedy, default=False)) for r in group]
