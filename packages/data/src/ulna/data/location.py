# SPDX-License-Identifier: Apache-2.0
"""Finds the folder of a dataset by its name. Looks at local folders only; nothing here reaches the network."""

from __future__ import annotations

from pathlib import Path

from ulna.core.errors import DatasetError
from ulna.core.paths import dataset_roots
from ulna.data.layout import INFO_PATH

__all__ = ["find_root", "new_root"]


def find_root(repo_id: str, root: str | Path | None) -> Path:
    """Return the folder of an existing dataset.

    Args:
        repo_id: `user/name`.
        root: The folder, if it is known; nowhere else is looked then.

    Returns:
        The folder that holds `meta/info.json`.

    Raises:
        DatasetError: No such dataset on this machine.
    """
    candidates = [Path(root)] if root is not None else [folder / repo_id for folder in dataset_roots()]
    for folder in candidates:
        if (folder / INFO_PATH).is_file():
            return folder
    if root is not None and candidates[0].exists():
        raise DatasetError(f"{candidates[0]} is not a dataset: it has no {INFO_PATH}.")
    looked = ", ".join(str(c) for c in candidates)
    raise DatasetError(
        f"The dataset {repo_id!r} is not on this machine; looked in {looked}.",
        hint="Give its folder (root=<folder>) if it lies elsewhere. "
        f"From the Hub: hf download {repo_id} --repo-type=dataset --local-dir={dataset_roots()[0] / repo_id}",
    )


def new_root(repo_id: str, root: str | Path | None) -> Path:
    """Return the folder for a new dataset, which must not exist or be empty.

    Args:
        repo_id: `user/name`.
        root: The folder, if chosen.

    Returns:
        The folder; it is not created.

    Raises:
        DatasetError: The folder holds something already.
    """
    folder = Path(root) if root is not None else dataset_roots()[0] / repo_id
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        is_dataset = (folder / INFO_PATH).is_file()
        raise DatasetError(
            f"{folder} exists already{' and holds a dataset' if is_dataset else ''}; a new dataset needs a new folder.",
            hint=f"Continue it with LeRobotDataset.resume({repo_id!r}, root={str(folder)!r}), or choose another root."
            if is_dataset
            else "Choose another root, or empty the folder yourself.",
        )
    return folder
