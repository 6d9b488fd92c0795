# SPDX-License-Identifier: Apache-2.0
"""Files of a dataset that lies elsewhere: one door to them, and a bounded folder of local copies.

Anything that speaks fsspec will do: the Hub, a bucket, a web server. Nothing is imported for it before it is used.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from ulna.core.errors import DatasetError
from ulna.core.files import atomic_path

__all__ = ["LocalCopies", "RemoteFiles"]

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_ATTEMPTS: Final = 4


class RemoteFiles:
    """The files of one dataset in one state. Picklable if its file system is; safe to use from several threads.

    Args:
        filesystem: An fsspec file system.
        folder: Folder of the dataset there.
        name: What messages call the dataset.
        errors: Failures of the file system, besides OSError, after which another attempt may succeed.

    Attributes:
        name: What messages call the dataset.
        first_wait_s: Pause before the second attempt; it doubles from there on.
    """

    first_wait_s = 0.5

    def __init__(
        self,
        filesystem: Any,
        folder: str,
        name: str,
        *,
        errors: tuple[type[Exception], ...] = (),
    ) -> None:
        self.name = name
        self._filesystem, self._folder = filesystem, folder.strip("/") if "://" in folder else folder.rstrip("/")
        self._errors: tuple[type[Exception], ...] = (OSError, EOFError, *errors)
        self._sizes: dict[str, int] | None = None

    @classmethod
    def on_hub(
        cls, repo_id: str, *, revision: str | None = None, repo_type: str = "dataset", token: str | bool | None = None
    ) -> Self:
        """Return the files of a dataset on the Hub, held to the commit that the revision names now.

        Args:
            repo_id: `user/name`.
            revision: Branch, tag or commit; default: the newest that this version reads.
            repo_type: `dataset` or `bucket`.
            token: Token of the Hub, if it is not the one that is logged in.

        Raises:
            DatasetError: It is not there, or the Hub does not answer.
            MissingDependencyError: huggingface_hub is not installed.
        """
        from ulna.data.hub import network_errors, resolve_revision

        errors = network_errors()  # refuses when the client is missing
        import huggingface_hub

        filesystem = huggingface_hub.HfFileSystem(endpoint=os.environ.get("HF_ENDPOINT") or None, token=token)
        if repo_type == "bucket":
            return cls(filesystem, f"buckets/{repo_id}", repo_id, errors=errors)
        commit = resolve_revision(repo_id, revision, token=token)
        return cls(filesystem, f"datasets/{repo_id}@{commit}", repo_id, errors=errors)

    def __getstate__(self) -> dict[str, Any]:
        self.sizes()  # so that readers in other processes need not list it again
        return self.__dict__

    def sizes(self) -> dict[str, int]:
        """Return the path of every file below the folder, and its size in bytes; listed once.

        Raises:
            DatasetError: It cannot be listed.
        """
        if self._sizes is None:
            found = self._attempt("list the files", self._list)
            self._sizes = found
        return self._sizes

    def _list(self) -> dict[str, int]:
        found = self._filesystem.find(self._folder, detail=True)
        # File systems differ in how they spell a path they return: with a protocol or slash in front, or without.
        inside = f"{self._filesystem._strip_protocol(self._folder).strip('/')}/"
        listed = {}
        for path, entry in found.items():
            plain = path.lstrip("/")
            listed[plain[plain.index(inside) + len(inside) :] if inside in plain else plain] = int(entry["size"] or 0)
        return listed

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file here. It is whole or not there.

        Args:
            path: Path inside the dataset.
            target: Where it goes.

        Raises:
            DatasetError: It is not there, or could not be read in several attempts.
        """
        size = self.sizes().get(path)
        if size is None:
            raise DatasetError(f"The dataset {self.name!r} has no file {path}.")

        def copy() -> None:
            with atomic_path(target) as temporary:
                self._filesystem.get_file(f"{self._folder}/{path}", str(temporary))
                got = temporary.stat().st_size
                if got != size:
                    raise EOFError(f"{got} of {size} bytes arrived")

        self._attempt(f"read {path}", copy)

    def _attempt(self, what: str, action: Callable[[], Result]) -> Result:
        wait_s = self.first_wait_s
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return action()
            except self._errors as error:
                if attempt == _ATTEMPTS or isinstance(error, FileNotFoundError):
                    raise DatasetError(f"Could not {what} of the dataset {self.name!r}: {error}") from error
                logger.warning("Attempt %d to %s of %s failed: %s", attempt, what, self.name, error)
                time.sleep(wait_s)
                wait_s *= 2
        raise AssertionError("unreachable")


class LocalCopies:
    """Copies of the remote files that are needed now and soon. Made and closed by one reader; nothing is left behind.

    Args:
        files: Where they come from.
        folder: Where they go; it need not exist.
    """

    def __init__(self, files: RemoteFiles, folder: Path) -> None:
        self._files, self._folder = files, folder
        self._lock = threading.Lock()
        self._copies: dict[str, Future[None]] = {}
        self._thread = ThreadPoolExecutor(max_workers=2, thread_name_prefix="fetch")

    def prefetch(self, paths: Iterable[str]) -> None:
        """Begin to copy files; does not wait.

        Args:
            paths: Paths inside the dataset.
        """
        with self._lock:
            for path in paths:
                if path not in self._copies:
                    self._copies[path] = self._thread.submit(self._files.fetch, path, self._folder / path)

    def need(self, paths: Iterable[str]) -> None:
        """Return when files are there.

        Args:
            paths: Paths inside the dataset.

        Raises:
            DatasetError: One could not be copied.
        """
        wanted = list(paths)
        self.prefetch(wanted)
        for path in wanted:
            self._copies[path].result()

    def keep_only(self, paths: Iterable[str]) -> list[str]:
        """Remove all copies but some.

        Args:
            paths: Paths inside the dataset that stay.

        Returns:
            Paths of those that were removed.
        """
        stay = set(paths)
        with self._lock:
            going = [path for path in self._copies if path not in stay]
            futures = [(path, self._copies.pop(path)) for path in going]
        for path, future in futures:
            if not future.cancel():
                future.exception()  # waits; a failure of a file that nobody needs any more is of no interest
            (self._folder / path).unlink(missing_ok=True)
        return going

    def close(self) -> None:
        """Remove all copies and end the threads. Idempotent."""
        self.keep_only(())
        self._thread.shutdown(wait=True, cancel_futures=True)
