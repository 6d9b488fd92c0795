# SPDX-License-Identifier: Apache-2.0
"""Datasets on the Hugging Face Hub: pushing whole ones, pulling them by revision. Only what is called here connects.

A push goes in batches, each a commit of its own, and skips what is there already: repeating it after a failure goes on
where it stopped, and repeating it after success does nothing. What makes a dataset one, `meta/info.json`, goes last.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from ulna.core.errors import DatasetError, DatasetNotFinishedError, MissingDependencyError
from ulna.core.files import write_text
from ulna.data.dataset_card import dataset_card
from ulna.data.layout import CODEBASE_VERSION, INFO_PATH, WORK_FOLDER
from ulna.data.location import DEFAULT_REVISION, hub_cache, is_repo_id
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.workspace import Workspace

__all__ = ["Push", "network_errors", "pull_dataset", "push_dataset", "resolve_revision"]

logger = logging.getLogger(__name__)

_NEVER: Final = (f"{WORK_FOLDER}/*", "images/*", ".cache/*", ".*", "*/.*", "*.tmp", "meta/ulna_marks.json")
_BATCH_FILES, _BATCH_BYTES = 64, 2**30
_VERSION: Final = re.compile(r"v(\d+)\.(\d+)")


@dataclass(frozen=True)
class Push:
    """What a push did.

    Attributes:
        repo_id: `user/name`.
        revision: Branch that was written.
        commit: Its commit now.
        url: Where the dataset can be looked at.
        uploaded: Paths of the files that were sent.
        kept: Number of files that were there already.
    """

    repo_id: str
    revision: str
    commit: str
    url: str
    uploaded: tuple[str, ...]
    kept: int


def _endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT") or None


def _library(purpose: str) -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors  # nothing else loads it before the first request
    except ImportError as error:
        raise MissingDependencyError("huggingface_hub", purpose, "pip install 'ulna-data[hub]'") from error
    return huggingface_hub


@contextlib.contextmanager
def _explained(what: str, hint: str) -> Iterator[None]:
    """Turn failures of the Hub and the network into errors that say what is safe and how to go on."""
    library = _library(what)
    failures = (library.errors.HfHubHTTPError, *network_errors())
    try:
        yield
    except (*failures, RuntimeError) as error:
        # The client wraps a failed upload of one file in a plain RuntimeError.
        if not isinstance(error, failures) and not isinstance(error.__cause__, failures):
            raise
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DatasetError(f"{what} failed: {reason}", hint=hint) from error


def network_errors() -> tuple[type[Exception], ...]:
    """Return what the client of the Hub raises when the network or a server fails.

    Raises:
        MissingDependencyError: huggingface_hub is not installed.
    """
    client = _library("Reading the Hub")
    # Versions of the client use different HTTP libraries; its own error derives from that of the one it uses.
    bases = [kind for kind in client.errors.HfHubHTTPError.__mro__ if kind.__name__ == "HTTPError"]
    return (OSError, *bases)


def push_dataset(
    dataset: str | Path,
    repo_id: str | None = None,
    *,
    root: str | Path | None = None,
    branch: str | None = None,
    tags: Sequence[str] | None = None,
    license: str | None = "apache-2.0",
    tag_version: bool = True,
    push_videos: bool = True,
    private: bool | None = None,
    allow_patterns: Sequence[str] | str | None = None,
    token: str | bool | None = None,
) -> Push:
    """Upload a finished dataset. The files here are only read; repeating a failed push goes on where it stopped.

    Args:
        dataset: `user/name`, or the folder of a dataset.
        repo_id: Name on the Hub; by default the dataset's own.
        root: Folder of the dataset, if it is not found by name.
        branch: Branch to write; created when missing. Default: `main`.
        tags: Tags of the dataset card, besides `LeRobot`.
        license: License of the dataset card.
        tag_version: Whether the tag of the format (`v3.0`), by which readers find the dataset, is moved to the result.
        push_videos: Whether videos are uploaded.
        private: Whether a new repository is private; None leaves it to the account.
        allow_patterns: Upload only files that match one of these.
        token: Token of the Hub, if it is not the one that is logged in.

    Returns:
        What was done.

    Raises:
        DatasetNotFinishedError: A recording is open or was interrupted, or episodes are not whole.
        DatasetError: It is not on this machine, the name is not `user/name`, or the Hub refused; what it has got
            already stays there, and the error tells the command that goes on.
        MissingDependencyError: huggingface_hub is not installed.
    """
    folder = Path(dataset) if root is None and Path(dataset).is_dir() else root
    name = str(repo_id or dataset)
    if not is_repo_id(name):
        raise DatasetError(
            f"{name!r} is not a name on the Hub; expected user/name.", hint="Give it: repo_id='user/name'."
        )
    meta = LeRobotDatasetMetadata(str(dataset), folder, local_only=True)
    _refuse_unfinished(meta)
    library = _library(f"Pushing {name}")
    again = f"Nothing is lost: the dataset lies whole in {meta.root}. Go on with: ulna dataset push {meta.root} {name}"
    with _explained(f"Pushing {name}", again):
        api = library.HfApi(endpoint=_endpoint(), token=token)
        api.create_repo(name, repo_type="dataset", private=private, exist_ok=True)
        revision = branch or "main"
        if branch is not None:
            api.create_branch(name, branch=branch, repo_type="dataset", exist_ok=True)
        patterns = [allow_patterns] if isinstance(allow_patterns, str) else allow_patterns
        files = _files(meta.root, push_videos=push_videos, allow_patterns=patterns)
        uploader = _Uploader(library, api, name, revision, meta.root)
        uploader.send(
            files, dataset_card(meta, name, license=license, tags=tags or ()), whole=push_videos and patterns is None
        )
        if tag_version:
            _move_tag(library, api, name, uploader.commit)
    url = f"{_endpoint() or 'https://huggingface.co'}/datasets/{name}"
    return Push(name, revision, uploader.commit, url, tuple(uploader.uploaded), uploader.kept)


def _refuse_unfinished(meta: LeRobotDatasetMetadata) -> None:
    problem = None
    if Workspace(meta.root).exists:
        problem = "its recording is open, or was interrupted"
    elif meta.left_out or meta.broken:
        episodes = sorted([*meta.left_out, *meta.broken])
        problem = f"episodes {episodes[:10]} are not whole"
    if problem is not None:
        raise DatasetNotFinishedError(
            f"The dataset {meta.root} is not finished: {problem}. Nothing was uploaded.",
            hint=f"End the recording with finalize(), or mend it: ulna dataset repair {meta.root}",
        )


def _files(root: Path, *, push_videos: bool, allow_patterns: Sequence[str] | None) -> list[str]:
    """Return the files to upload, those last that make the others visible."""
    found = [path.relative_to(root).as_posix() for path in sorted(root.rglob("*")) if path.is_file()]
    chosen = [name for name in found if not any(fnmatch(name, pattern) for pattern in _NEVER)]
    if not push_videos:
        chosen = [name for name in chosen if not name.startswith("videos/")]
    if allow_patterns is not None:
        chosen = [name for name in chosen if any(fnmatch(name, pattern) for pattern in allow_patterns)]
    return sorted(chosen, key=lambda name: (name == INFO_PATH, name.startswith("meta/"), name))


class _Uploader:
    """Sends files to one branch in batches. Lives for one push.

    When the whole dataset is sent, files that it does not have any more are deleted with the last batch; what is not a
    dataset's (a card, pictures for it) stays.
    """

    def __init__(self, library: Any, api: Any, repo_id: str, revision: str, root: Path) -> None:
        self._library, self._api, self._repo_id, self._revision, self._root = library, api, repo_id, revision, root
        self.uploaded: list[str] = []
        self.kept = 0
        self.commit = str(api.dataset_info(repo_id, revision=revision).sha)

    def send(self, files: Sequence[str], card: str, *, whole: bool) -> None:
        there = {
            entry.path: entry
            for entry in self._api.list_repo_tree(
                self._repo_id, recursive=True, revision=self._revision, repo_type="dataset"
            )
            if hasattr(entry, "size")
        }
        wanted = [name for name in files if not _same(self._root / name, there.get(name))]
        self.kept = len(files) - len(wanted)
        mine = {"data", "meta", "videos"} if whole else set()
        strangers = [n for n in there if n.split("/")[0] in mine and n not in set(files)]
        batches = list(_batches(self._root, wanted)) or [[]] * bool(strangers)
        for number, batch in enumerate(batches, start=1):
            operations = [self._library.CommitOperationAdd(name, str(self._root / name)) for name in batch]
            if number == len(batches):
                operations += [self._library.CommitOperationDelete(name) for name in strangers]
            self._send(operations, f"Upload dataset, part {number} of {len(batches)}")
            self.uploaded += batch
        if "README.md" not in there and "README.md" not in files:
            self._send([self._library.CommitOperationAdd("README.md", card.encode())], "Add a dataset card")
            self.uploaded.append("README.md")

    def _send(self, operations: list[Any], message: str) -> None:
        done = self._api.create_commit(
            self._repo_id, operations, commit_message=message, repo_type="dataset", revision=self._revision
        )
        self.commit = str(done.oid)
        logger.info("%s: %s (%d files)", self._repo_id, message, len(operations))


def _batches(root: Path, names: Sequence[str]) -> Iterator[list[str]]:
    """Group files; those of `meta` come in the last group only, so that readers never see rows without their files."""
    batch: list[str] = []
    size = 0
    for name in names:
        more = (root / name).stat().st_size
        ends = name.startswith("meta/") and batch and not batch[-1].startswith("meta/")
        if batch and (
            ends or (not name.startswith("meta/") and (len(batch) >= _BATCH_FILES or size + more > _BATCH_BYTES))
        ):
            yield batch
            batch, size = [], 0
        batch.append(name)
        size += more
    if batch:
        yield batch


def _same(path: Path, entry: Any) -> bool:
    """Whether the Hub has this content already."""
    if entry is None or entry.size != path.stat().st_size:
        return False
    lfs = getattr(entry, "lfs", None)
    if lfs is not None:
        return bool(_digest(path, hashlib.sha256()) == lfs.sha256)
    git = hashlib.sha1(b"blob %d\0" % entry.size, usedforsecurity=False)
    return bool(_digest(path, git) == entry.blob_id)


def _digest(path: Path, digest: Any) -> str:
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return str(digest.hexdigest())


def _move_tag(library: Any, api: Any, repo_id: str, commit: str) -> None:
    refs = api.list_repo_refs(repo_id, repo_type="dataset")
    old = {tag.name: tag.target_commit for tag in refs.tags}
    if old.get(CODEBASE_VERSION) == commit:
        return
    if CODEBASE_VERSION in old:
        with contextlib.suppress(library.errors.RevisionNotFoundError):
            api.delete_tag(repo_id, tag=CODEBASE_VERSION, repo_type="dataset")
    api.create_tag(repo_id, tag=CODEBASE_VERSION, revision=commit, repo_type="dataset", exist_ok=True)


def resolve_revision(repo_id: str, revision: str | None = None, *, token: str | bool | None = None) -> str:
    """Return the commit that a revision names now.

    Args:
        repo_id: `user/name`.
        revision: Branch, tag or commit. Default: the tag of this format, else its highest tag of the same major
            version, else `main` when the repository has no version tags at all.
        token: Token of the Hub, if it is not the one that is logged in.

    Returns:
        The commit.

    Raises:
        DatasetError: It is not there, the Hub does not answer, or all versions are of another format.
    """
    library = _library(f"Reading {repo_id}")
    hint = "Check the name, the connection and, for a private dataset, `hf auth whoami`."
    with _explained(f"Finding {repo_id} on the Hub", hint):
        api = library.HfApi(endpoint=_endpoint(), token=token)
        wanted = revision
        if wanted is None:
            tags = [tag.name for tag in api.list_repo_refs(repo_id, repo_type="dataset").tags]
            wanted = _best_tag(repo_id, tags)
        return str(api.dataset_info(repo_id, revision=wanted).sha)


def _best_tag(repo_id: str, tags: Iterable[str]) -> str:
    versions = {tuple(map(int, match.groups())): tag for tag in tags if (match := _VERSION.fullmatch(tag))}
    if not versions:
        logger.info("%s has no version tags; its main branch is used.", repo_id)
        return "main"
    major, minor = (int(part) for part in CODEBASE_VERSION.removeprefix("v").split("."))
    fitting = [version for version in versions if version[0] == major and version[1] <= minor]
    if not fitting:
        found = ", ".join(sorted(versions.values()))
        raise DatasetError(
            f"The dataset {repo_id!r} has the versions {found}; this reads {CODEBASE_VERSION}.",
            hint=f"Pull one: ulna dataset pull {repo_id} --revision {versions[max(versions)]} --root FOLDER; "
            "and convert it: ulna dataset convert FOLDER",
        )
    return versions[max(fitting)]


def pull_dataset(
    repo_id: str,
    root: str | Path | None = None,
    *,
    revision: str | None = None,
    episodes: Iterable[int] | None = None,
    download_videos: bool = True,
    force: bool = False,
    token: str | bool | None = None,
) -> Path:
    """Download a dataset. What is here already is not sent again; an interrupted download goes on.

    Without `root` every revision gets a folder of its own, so that two programs can use two revisions at once.

    Args:
        repo_id: `user/name`.
        root: Folder for the files, instead of the cache.
        revision: Branch, tag or commit, see `resolve_revision`.
        episodes: Only the files that hold these episodes; default: all.
        download_videos: Whether videos are downloaded.
        force: Whether everything is downloaded again.
        token: Token of the Hub, if it is not the one that is logged in.

    Returns:
        Folder of the dataset.

    Raises:
        DatasetError: It is not there, the Hub does not answer, an episode does not exist, or `root` holds a recording
            that is not finished.
        MissingDependencyError: huggingface_hub is not installed.
    """
    library = _library(f"Pulling {repo_id}")
    if not is_repo_id(repo_id):
        raise DatasetError(f"{repo_id!r} is not a name on the Hub; expected user/name.")
    target = None if root is None else Path(root)
    if target is not None and Workspace(target).exists:
        raise DatasetNotFinishedError(
            f"A recording in {target} is open or was interrupted; nothing was downloaded over it."
        )
    commit = resolve_revision(repo_id, revision, token=token)
    options: dict[str, Any] = {"revision": commit, "token": token, "force_download": force, "endpoint": _endpoint()}
    options |= {"local_dir": str(target)} if target is not None else {"cache_dir": str(hub_cache())}

    def fetch(patterns: Sequence[str] | None, ignore: Sequence[str] | None) -> Path:
        again = (
            f"What has arrived is kept. Go on with: ulna dataset pull {repo_id}{f' --root {target}' if target else ''}"
        )
        with _explained(f"Pulling {repo_id}", again):
            return Path(
                library.snapshot_download(
                    repo_id, repo_type="dataset", allow_patterns=patterns, ignore_patterns=ignore, **options
                )
            )

    no_videos = [] if download_videos else ["videos/*"]
    if episodes is None:
        folder = fetch(None, no_videos or None)
    else:
        folder = fetch(["meta/*", "README.md"], None)
        if needed := _needed(repo_id, folder, episodes, videos=download_videos):
            folder = fetch(needed, None)
    if target is None:
        _remember(repo_id, revision, commit)
    return folder


def _remember(repo_id: str, revision: str | None, commit: str) -> None:
    """Note which commit a name means here, so that the next opening needs no connection."""
    refs = hub_cache() / f"datasets--{repo_id.replace('/', '--')}" / "refs"
    name = revision or DEFAULT_REVISION
    if name != commit:
        write_text(refs / name, commit)


def _needed(repo_id: str, folder: Path, episodes: Iterable[int], *, videos: bool) -> list[str]:
    meta = LeRobotDatasetMetadata(repo_id, folder, check_files=False)
    wanted = sorted({int(episode) for episode in episodes})
    wrong = [episode for episode in wanted if not 0 <= episode < meta.total_episodes]
    if wrong:
        raise DatasetError(f"Episodes {wrong} do not exist: {repo_id} has {meta.total_episodes}, numbered from 0.")
    paths = {meta.get_data_file_path(episode) for episode in wanted}
    if videos:
        paths |= {meta.get_video_file_path(episode, key) for episode in wanted for key in meta.video_keys}
    return sorted(path.relative_to(folder).as_posix() for path in paths)
