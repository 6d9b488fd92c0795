# SPDX-License-Identifier: Apache-2.0
"""What the registry knows about a plugin without importing it: the entry point found, and the judged record."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

__all__ = ["STATUSES", "FoundEntryPoint", "PluginRecord", "normalize"]

STATUSES = ("ok", "incompatible", "conflict", "disabled", "invalid")


def normalize(distribution: str) -> str:
    """Return the distribution name as package indexes compare it: `Ulna_Robots.SO` is `ulna-robots-so`.

    Args:
        distribution: A name as somebody wrote it.
    """
    return re.sub(r"[-_.]+", "-", distribution).lower()


@dataclass(frozen=True)
class FoundEntryPoint:
    """One entry point as written in the metadata of an installed distribution.

    Attributes:
        group: Entry-point group, `ulna.robots`.
        name: The type string.
        value: `module:attribute`.
        distribution: Name of the distribution.
        version: Its version.
        requires: Its `Requires-Dist` lines.
        manifest: Text of its `ulna-plugin.json`, if it has one.
        location: Folder that holds its metadata.
        problem: Why the metadata cannot be read, if so.
    """

    group: str
    name: str
    value: str
    distribution: str = "unknown"
    version: str = "0"
    requires: tuple[str, ...] = ()
    manifest: str | None = None
    location: str = ""
    problem: str | None = None


@dataclass(frozen=True)
class PluginRecord:
    """One plugin, judged.

    Attributes:
        kind: `robots`, `policies`, ...
        type: Type string, `so101_follower`.
        value: `module:attribute` of its entry point.
        distribution: Who ships it.
        version: Version of the distribution.
        status: One of `STATUSES`.
        reason: Why it is not plainly `ok`; empty when it is.
        remedy: What to do about it; empty when there is nothing to do.
        api_level: API level it was written for.
        manifest: Its entry in the distribution's manifest, with the distribution's `links`; None without a manifest.
        location: Folder that holds the metadata.
        default: Whether the bare type means this record; others with the type need the qualified name.
    """

    kind: str
    type: str
    value: str
    distribution: str
    version: str
    status: str = "ok"
    reason: str = ""
    remedy: str = ""
    api_level: int = 1
    manifest: dict[str, Any] | None = None
    location: str = ""
    default: bool = True

    @property
    def qualified(self) -> str:
        """The name that means this plugin and no other: `distribution/type`."""
        return f"{self.distribution}/{self.type}"

    @property
    def label(self) -> str:
        """Kind and type, `robots/so101_follower`."""
        return f"{self.kind}/{self.type}"

    @property
    def summary(self) -> str:
        """One line about it from the manifest, or nothing."""
        return str((self.manifest or {}).get("summary", ""))

    @property
    def usable(self) -> bool:
        """Whether it loads when asked for by its qualified name."""
        return self.status in ("ok", "conflict")

    def to_dict(self) -> dict[str, Any]:
        """Return the public JSON form."""
        return {
            "kind": self.kind,
            "type": self.type,
            "value": self.value,
            "distribution": self.distribution,
            "version": self.version,
            "status": self.status,
            "reason": self.reason,
            "remedy": self.remedy,
            "api_level": self.api_level,
            "default": self.default,
            "summary": self.summary,
        }
