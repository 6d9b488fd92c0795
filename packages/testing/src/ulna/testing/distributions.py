# SPDX-License-Identifier: Apache-2.0
"""What an installed distribution ships, editable or not: its files, packages, modules and metadata."""

from __future__ import annotations

import json
from dataclasses import dataclass
from email.message import Message
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlparse

import importlib_metadata

__all__ = ["Installed"]


@dataclass(frozen=True)
class Installed:
    """An installed distribution.

    Attributes:
        name: Its name.
        base: Folder that its files are relative to; it is on `sys.path`.
        metadata: Its METADATA.
    """

    name: str
    base: Path
    metadata: Message
    _distribution: Any

    @classmethod
    def find(cls, name: str) -> Installed | None:
        """Find an installed distribution.

        Args:
            name: Its name.

        Returns:
            The copy that Python imports from; None when it is not installed.
        """
        try:
            found = importlib_metadata.distribution(name)
        except importlib_metadata.PackageNotFoundError:
            return None
        metadata: Any = found.metadata
        return cls(name, _base(found), metadata, found)

    def files(self) -> list[PurePosixPath]:
        """Return the files it ships, relative to `base`, metadata left out."""
        if self._is_editable():
            roots = self._editable_roots()
            found = [p for root in roots for p in (self.base / root).rglob("*") if p.is_file() or p.is_symlink()]
            found += [p for p in self.base.glob("ulna/*") if p.is_file()]
            found += [p for p in self.base.glob("ulna/*/__init__.py") if p.is_file()]
            paths = {PurePosixPath(p.relative_to(self.base).as_posix()) for p in found}
        else:
            paths = {PurePosixPath(str(p)) for p in self._distribution.files or ()}
        return sorted(
            p for p in paths if not p.parts[0].endswith((".dist-info", ".data")) and "__pycache__" not in p.parts
        )

    def _is_editable(self) -> bool:
        return bool(self._direct_url().get("dir_info", {}).get("editable"))

    def _direct_url(self) -> dict[str, Any]:
        text = self._distribution.read_text("direct_url.json")
        found: dict[str, Any] = json.loads(text) if text else {}
        return found

    def _editable_roots(self) -> list[Path]:
        """Return the top-level packages of an editable install, relative to `base`."""
        return [p.relative_to(self.base) for p in self.base.iterdir() if p.is_dir() and p.name.isidentifier()]

    def source_folder(self) -> Path | None:
        """Return the folder with pyproject.toml that it is installed from, if it is there."""
        parsed = urlparse(str(self._direct_url().get("url", "")))
        folder = Path(unquote(parsed.path)) if parsed.scheme == "file" else None
        return folder if folder is not None and (folder / "pyproject.toml").is_file() else None

    def packages(self) -> list[PurePosixPath]:
        """Return its outermost regular packages: folders with an `__init__.py` whose parent has none."""
        folders = {p.parent for p in self.files() if p.name == "__init__.py"}
        return sorted(f for f in folders if f.parent not in folders)

    def python_files(self) -> list[Path]:
        """Return its modules as files."""
        return [self.base / p for p in self.files() if p.suffix == ".py"]

    def modules(self) -> list[str]:
        """Return its modules by name."""
        return [self.module_of(p) for p in self.files() if p.suffix == ".py"]

    @staticmethod
    def module_of(path: PurePosixPath) -> str:
        """Return the name under which a file is imported.

        Args:
            path: Relative to `base`.
        """
        parts = list(path.with_suffix("").parts)
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _base(distribution: Any) -> Path:
    """Return the folder on `sys.path` that a distribution's modules come from."""
    text = distribution.read_text("direct_url.json")
    if text and json.loads(text).get("dir_info", {}).get("editable"):
        for path in distribution.files or ():
            if path.suffix == ".pth":
                lines = distribution.locate_file(path).read_text(encoding="utf-8").splitlines()
                folders = [Path(line) for line in lines if line and not line.startswith("import")]
                if folders and folders[0].is_dir():
                    return folders[0]
        source = Path(unquote(urlparse(json.loads(text)["url"]).path))
        return source / "src" if (source / "src").is_dir() else source
    return Path(str(distribution.locate_file("")))
