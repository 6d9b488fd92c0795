# SPDX-License-Identifier: Apache-2.0
"""Finds the folder of a dataset by its name: local folders, then what was pulled before, then, if allowed, the Hub."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ulna.core.errors import DatasetError
from ulna.core.paths import dataset_roots, ulna_home
from ulna.data.editing.replacement import finish_replacement
from ulna.data.layout import INFO_PATH

__all__ = ["DEFAULT_REVISION", "cached_snapshot", "find_root", "hub_cache", "is_repo_id", "new_root", "snapshot_commit"]

DEFAULT_REVISION: Final = "ulna-default"
"""Name under which the cache notes the commit that was pulled without a revision."""

_HUB_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")


def is_repo_id(name: str) -> bool:
    """Say whether a name could be a dataset on the Hub.

    Args:
        name: The name.
    """
    return _HUB_NAME.fullmatch(name) is not None


def find_root(
    repo_id: str, root: str | Path | None, revision: str | None = None, *, fetch: Callable[[], Path] | None = None
) -> Path:
    """Return the folder of an existing dataset. A folder that is named, or found by name, never leads to the network.

    Args:
        repo_id: `user/name`.
        root: The folder, if it is known; nowhere else is looked then.
        revision: Of the Hub. A folder that was recorded here has none, so only what was pulled is looked at then.
        fetch: Called when a dataset is not here and its name could be one of the Hub's; returns its folder.

    Returns:
        The folder that holds `meta/info.json`.

    Raises:
        DatasetError: No such dataset on this machine, and nothing to fetch it with.
    """
    if root is None:
        _check_name(repo_id)
    roots = dataset_roots() if revision is None else ()
    named = [Path(root)] if root is not None else [folder / repo_id for folder in roots]
    candidates = [folder.absolute() for folder in named]  # the program may change its directory
    for folder in candidates:
        with _usable(folder):
            finish_replacement(folder)
            if (folder / INFO_PATH).is_file():
                return folder
    if root is not None and candidates[0].exists():
        raise DatasetError(f"{candidates[0]} is not a dataset: it has no {INFO_PATH}.")
    if root is None and is_repo_id(repo_id):
        pulled = cached_snapshot(repo_id, revision)
        if pulled is not None:
            return pulled
        if fetch is not None and os.environ.get("HF_HUB_OFFLINE", "0").lower() in {"", "0", "false", "no"}:
            return fetch()
    looked = ", ".join(dict.fromkeys(str(c) for c in candidates)) or hub_cache()
    pull = f" From the Hub: ulna dataset pull {repo_id}{'' if revision is None else f' --revision {revision}'}"
    raise DatasetError(
        f"The dataset {repo_id!r}{'' if revision is None else f' at revision {revision!r}'} is not on this machine; "
        f"looked in {looked}.",
        hint=f"Give its folder (root=<folder>) if it lies elsewhere.{pull if is_repo_id(repo_id) else ''}",
    )


def _check_name(repo_id: str) -> None:
    """Refuse names that lead out of the folder of datasets, or nowhere."""
    given: object = repo_id
    if not isinstance(given, str) or not given.strip() or ".." in Path(given).parts:
        raise DatasetError(f"A dataset is called user/name, not {repo_id!r}.", hint="Give its folder as root.")


@contextmanager
def _usable(folder: Path) -> Iterator[None]:
    """Say which folder it was when the system refuses its name or denies access."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise DatasetError(f"The folder {str(folder)[:1000]!r} cannot be used: {error}") from error


def hub_cache() -> Path:
    """Return the folder of what was pulled from the Hub: a folder for each dataset, and in it one for each commit."""
    return ulna_home() / "hub"


def snapshot_commit(root: Path) -> str | None:
    """Return the commit that a folder of the Hub's cache holds; None for any other folder.

    Args:
        root: Folder of a dataset.
    """
    is_snapshot = root.parent.name == "snapshots" and root.parent.parent.parent == hub_cache()
    return root.name if is_snapshot else None


def cached_snapshot(repo_id: str, revision: str | None = None) -> Path | None:
    """Return the folder of a dataset that was pulled before; never connects.

    Args:
        repo_id: `user/name`.
        revision: Branch, tag or commit; default: what was pulled last without one.

    Returns:
        The folder, None when that revision is not here.
    """
    folder = hub_cache() / f"datasets--{repo_id.replace('/', '--')}"
    name = revision or DEFAULT_REVISION
    pinned = folder / "refs" / name
    commit = pinned.read_text(encoding="utf-8").strip() if pinned.is_file() else name
    snapshot = folder / "snapshots" / commit
    return snapshot if (snapshot / INFO_PATH).is_file() else None


def new_root(repo_id: str, root: str | Path | None, *, edited: bool = False) -> Path:
    """Return the folder for a new dataset, which must not exist or be empty.

    Args:
        repo_id: `user/name`.
        root: The folder, if chosen.
        edited: Whether it is for the result of an edit, not for a recording.

    Returns:
        The folder; it is not created.

    Raises:
        DatasetError: The folder holds something already.
    """
    if root is None:
        _check_name(repo_id)
        if Path(repo_id).is_absolute():
            raise DatasetError(f"{repo_id!r} is a folder, not the name of a dataset.", hint="Give it as root.")
    folder = (Path(root) if root is not None else dataset_roots()[0] / repo_id).absolute()
    with _usable(folder):
        is_taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if is_taken:
        is_dataset = (folder / INFO_PATH).is_file()
        raise DatasetError(
            f"{folder} exists already{' and holds a dataset' if is_dataset else ''}; a new dataset needs a new folder.",
            hint="Choose another folder (output_dir, or --output on the command line), or remove that one."
            if edited
            else f"Continue it with LeRobotDataset.resume({repo_id!r}, root={str(folder)!r}), or choose another root."
            if is_dataset
            else "Choose another root, or empty the folder yourself.",
        )
    return folder
