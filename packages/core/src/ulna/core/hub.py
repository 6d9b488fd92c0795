# SPDX-License-Identifier: Apache-2.0
"""Folders on disk or on the Hugging Face Hub. A local path never leads to the network; pushing is its own step."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any, Self

from ulna.core.errors import CheckpointError, MissingDependencyError

__all__ = ["HubMixin", "Saveable", "local_folder", "push_folder"]

_REPO_ID = re.compile(r"[A-Za-z0-9._-]+/[A-Za-z0-9._-]+")


def _hub() -> Any:
    if importlib.util.find_spec("huggingface_hub") is None:
        raise MissingDependencyError(
            "huggingface_hub", "Reading from or writing to the Hub", "pip install huggingface_hub"
        )
    import huggingface_hub

    return huggingface_hub


def local_folder(source: Path | str, *, revision: str | None = None, needs: str, repo_type: str = "model") -> Path:
    """Return a local folder (or file) for `source`, downloading it when it is a Hub repository.

    Args:
        source: A local path, or `user/name`.
        revision: Hub revision.
        needs: A file that must be in it, for the message.
        repo_type: `model` or `dataset`.

    Returns:
        The local path.

    Raises:
        CheckpointError: Neither a local path nor downloadable.
        MissingDependencyError: A Hub repository is asked for and huggingface_hub is not installed.
    """
    path = Path(source).expanduser()
    if path.exists():
        return path
    if not _REPO_ID.fullmatch(str(source)):
        raise CheckpointError(
            f"{source} does not exist (expected a folder with {needs}, or a Hub repository `user/name`)."
        )
    hub = _hub()
    try:
        return Path(hub.snapshot_download(str(source), revision=revision, repo_type=repo_type))
    except (OSError, ValueError, hub.errors.HfHubHTTPError) as error:
        raise CheckpointError(
            f"{source} is no local folder, and the Hub did not give it: {error}",
            hint="Check the name and your connection; `hf auth login` for private repositories.",
        ) from error


def push_folder(
    folder: Path, repo_id: str, *, repo_type: str = "model", private: bool | None = None, **options: Any
) -> str:
    """Upload a folder; repeating it after a failure goes on where it stopped.

    Args:
        folder: A complete folder.
        repo_id: `user/name`.
        repo_type: `model` or `dataset`.
        private: Whether a new repository is private.
        **options: Passed to `huggingface_hub.HfApi.upload_folder`.

    Returns:
        Address of the commit.

    Raises:
        MissingDependencyError: huggingface_hub is not installed.
    """
    api = _hub().HfApi()
    api.create_repo(repo_id, repo_type=repo_type, private=private, exist_ok=True)
    return str(api.upload_folder(repo_id=repo_id, folder_path=str(folder), repo_type=repo_type, **options))


class Saveable:
    """Save to a folder, load from a folder or the Hub."""

    def _save_pretrained(self, folder: Path) -> None:
        """Write everything needed to load this object again."""
        raise NotImplementedError

    def save_pretrained(self, folder: Path | str) -> Path:
        """Write this object into a folder.

        Args:
            folder: Created when missing; other files in it stay.

        Returns:
            The folder.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._save_pretrained(folder)
        return folder

    @classmethod
    def from_pretrained(cls, source: Path | str, **options: Any) -> Self:
        """Load what `save_pretrained` wrote."""
        raise NotImplementedError


class HubMixin(Saveable):
    """Save to a folder, load from a folder or the Hub, push to the Hub."""

    def push_to_hub(self, repo_id: str, *, private: bool | None = None, **options: Any) -> str:
        """Write this object to a temporary folder and upload it.

        Args:
            repo_id: `user/name`.
            private: Whether a new repository is private.
            **options: Passed to the upload.

        Returns:
            Address of the commit.
        """
        import tempfile

        with tempfile.TemporaryDirectory() as name:
            return push_folder(self.save_pretrained(name), repo_id, private=private, **options)
