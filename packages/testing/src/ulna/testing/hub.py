# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the Hugging Face Hub on this machine: enough of its HTTP interface for pushing and pulling.

It speaks to the real `huggingface_hub` client, keeps everything in memory and can be told to fail, so that tests
exercise the code that users run. Transfers are plain LFS; the client must have HF_HUB_DISABLE_XET=1.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

__all__ = ["LocalHub", "Repository"]

_REPO = r"(?P<kind>models|datasets|spaces)/(?P<repo>[^/]+/[^/]+)"
_LFS_SUFFIXES = (".parquet", ".mp4", ".safetensors", ".png")


@dataclass
class Repository:
    """One repository.

    Attributes:
        private: Whether it was created private.
        commits: Commit to path to content; the first has no files.
        branches: Name to commit.
        tags: Name to commit.
        messages: Messages of the commits, in order.
    """

    private: bool | None = None
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.commit("main", {}, "initial commit")

    def commit(self, branch: str, files: dict[str, bytes], message: str) -> str:
        """Set the files of a branch.

        Args:
            branch: The branch.
            files: All of its files.
            message: Message of the commit.

        Returns:
            The commit.
        """
        name = hashlib.sha1(f"{len(self.messages)} {message}".encode(), usedforsecurity=False).hexdigest()
        self.commits[name] = dict(files)
        self.branches[branch] = name
        self.messages.append(message)
        return name

    def resolve(self, revision: str) -> str | None:
        """Return the commit that a branch, tag or commit names; None without one.

        Args:
            revision: The name.
        """
        known = {**{commit: commit for commit in self.commits}, **self.branches, **self.tags}
        return known.get(revision.removeprefix("refs/heads/"))

    def files(self, revision: str = "main") -> dict[str, bytes]:
        """Return path to content.

        Args:
            revision: Branch, tag or commit.

        Raises:
            KeyError: There is no such revision.
        """
        commit = self.resolve(revision)
        if commit is None:
            raise KeyError(revision)
        return dict(self.commits[commit])


class LocalHub:
    """A Hub on a free port of this machine; a context manager.

    Attributes:
        repositories: `datasets/user/name` to repository.
        requests: Method and kind of request to how often it was made, such as `PUT lfs` or `GET resolve`.
        fail: Called with `METHOD kind` and the path before a request is answered; a status it returns is the answer.
    """

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: Counter[str] = Counter()
        self.fail: Callable[[str, str], int | None] = lambda what, path: None
        self.objects: dict[str, bytes] = {}
        self.lock = threading.RLock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="local hub", daemon=True)

    @property
    def url(self) -> str:
        """Its address, for HF_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def dataset(self, repo_id: str) -> Repository:
        """Return the repository of a dataset.

        Args:
            repo_id: `user/name`.

        Raises:
            KeyError: There is none.
        """
        return self.repositories[f"datasets/{repo_id}"]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass(frozen=True)
class _Answer:
    """What is sent back."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


def _json(value: Any, status: int = 200, **headers: str) -> _Answer:
    return _Answer(json.dumps(value).encode(), status, {"Content-Type": "application/json", **headers})


def _missing(code: str) -> _Answer:
    return _json({"error": code}, 404, **{"X-Error-Code": code, "X-Error-Message": code})


class _Request:
    """One request, answered by the route that fits."""

    def __init__(self, hub: LocalHub, method: str, target: str, body: bytes) -> None:
        self.hub, self.method, self.body = hub, method, body
        parts = urlsplit(target)
        self.path, self.query = unquote(parts.path), parse_qs(parts.query)

    def answer(self) -> _Answer:
        for method, kind, pattern, route in _ROUTES:
            match = re.fullmatch(pattern, self.path)
            if method == self.method and match is not None:
                what = f"{method} {kind}"
                with self.hub.lock:
                    self.hub.requests[what] += 1
                    status = self.hub.fail(what, self.path)
                    return _json({"error": "told to fail"}, status) if status else route(self, **match.groupdict())
        return _missing("EntryNotFound")

    def json(self) -> Any:
        return json.loads(self.body or b"{}")

    def repository(self, kind: str, repo: str) -> Repository | None:
        return self.hub.repositories.get(f"{kind}/{repo.removesuffix('.git')}")

    def create(self) -> _Answer:
        wanted = self.json()
        kind = f"{wanted.get('type', 'model')}s"
        owner = wanted.get("organization") or "user"
        key = f"{kind}/{owner}/{wanted['name']}"
        url = {"url": f"{self.hub.url}/{key}", "name": f"{owner}/{wanted['name']}"}
        if key in self.hub.repositories:
            return _json({"error": "You already created this repo", **url}, 409)
        hidden = {None: wanted.get("private"), "private": True, "public": False}[wanted.get("visibility")]
        self.hub.repositories[key] = Repository(private=hidden)
        return _json(url)

    def info(self, kind: str, repo: str, revision: str = "main") -> _Answer:
        found = self.repository(kind, repo)
        if found is None:
            return _missing("RepoNotFound")
        commit = found.resolve(revision)
        if commit is None:
            return _missing("RevisionNotFound")
        siblings = [{"rfilename": path} for path in sorted(found.commits[commit])]
        common = {"private": bool(found.private), "tags": [], "downloads": 0, "likes": 0}
        return _json({"id": repo, "_id": "1", "sha": commit, "siblings": siblings, **common})

    def validate_card(self) -> _Answer:
        return _json({"errors": [], "warnings": []})

    def refs(self, kind: str, repo: str) -> _Answer:
        found = self.repository(kind, repo)
        if found is None:
            return _missing("RepoNotFound")

        def listed(names: dict[str, str], folder: str) -> list[dict[str, str]]:
            return [{"name": n, "ref": f"refs/{folder}/{n}", "targetCommit": c} for n, c in names.items()]

        return _json({"branches": listed(found.branches, "heads"), "tags": listed(found.tags, "tags"), "converts": []})

    def tree(self, kind: str, repo: str, revision: str, below: str = "") -> _Answer:
        found = self.repository(kind, repo)
        commit = None if found is None else found.resolve(revision)
        if found is None or commit is None:
            return _missing("RepoNotFound" if found is None else "RevisionNotFound")
        return _json([_entry(p, c) for p, c in sorted(found.commits[commit].items()) if p.startswith(below or "")])

    def paths_info(self, kind: str, repo: str, revision: str) -> _Answer:
        found = self.repository(kind, repo)
        files = {} if found is None or found.resolve(revision) is None else found.files(revision)
        wanted = parse_qs(self.body.decode()).get("paths") or []
        return _json([_entry(path, files[path]) for path in wanted if path in files])

    def branch(self, kind: str, repo: str, name: str) -> _Answer:
        found = self.repository(kind, repo)
        if found is None:
            return _missing("RepoNotFound")
        if name in found.branches:
            return _json({"error": "Reference already exists"}, 409)
        start = found.resolve(self.json().get("startingPoint") or "main")
        found.branches[name] = str(start)
        return _json({})

    def tag(self, kind: str, repo: str, name: str) -> _Answer:
        found = self.repository(kind, repo)
        if found is None:
            return _missing("RepoNotFound")
        if self.method == "DELETE":
            return _json({}) if found.tags.pop(name, None) else _missing("RevisionNotFound")
        wanted, commit = self.json()["tag"], found.resolve(name)
        if commit is None:
            return _missing("RevisionNotFound")
        if wanted in found.tags:
            return _json({"error": "Tag reference exists already"}, 409)
        found.tags[wanted] = commit
        return _json({})

    def preupload(self, kind: str, repo: str, revision: str) -> _Answer:
        if self.repository(kind, repo) is None:
            return _missing("RepoNotFound")
        return _json(
            {
                "files": [
                    {
                        "path": file["path"],
                        "uploadMode": "lfs" if file["path"].endswith(_LFS_SUFFIXES) else "regular",
                        "shouldIgnore": False,
                        "oid": None,
                    }
                    for file in self.json()["files"]
                ]
            }
        )

    def lfs(self, kind: str, repo: str) -> _Answer:
        objects = []
        for wanted in self.json()["objects"]:
            known = wanted["oid"] in self.hub.objects
            action = {"upload": {"href": f"{self.hub.url}/lfs/{wanted['oid']}"}}
            objects.append({**wanted, "authenticated": True, **({} if known else {"actions": action})})
        return _json({"transfer": "basic", "objects": objects})

    def put(self, oid: str) -> _Answer:
        if hashlib.sha256(self.body).hexdigest() != oid:
            return _json({"error": "the content has another digest"}, 400)
        self.hub.objects[oid] = self.body
        return _Answer(b"")

    def commit(self, kind: str, repo: str, revision: str) -> _Answer:
        found = self.repository(kind, repo)
        if found is None or revision not in found.branches:
            return _missing("RepoNotFound" if found is None else "RevisionNotFound")
        files, summary = dict(found.files(revision)), ""
        for line in self.body.splitlines():
            row = json.loads(line)
            value = row["value"]
            if row["key"] == "header":
                summary = value["summary"]
            elif row["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif row["key"] == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
            elif row["key"] == "deletedFile":
                files.pop(value["path"], None)
        commit = found.commit(revision, files, summary)
        url = f"{self.hub.url}/{kind}/{repo}/commit/{commit}"
        return _json({"success": True, "commitOid": commit, "commitUrl": url, "pullRequestUrl": None})

    def resolve(self, repo: str, revision: str, path: str, kind: str = "models") -> _Answer:
        found = self.repository(kind.strip("/") or "models", repo)
        commit = None if found is None else found.resolve(revision)
        if found is None or commit is None:
            return _missing("RepoNotFound" if found is None else "RevisionNotFound")
        content = found.commits[commit].get(path)
        if content is None:
            return _missing("EntryNotFound")
        entry = _entry(path, content)
        etag = entry["lfs"]["oid"] if "lfs" in entry else entry["oid"]
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        return _Answer(content, 200, headers)


def _entry(path: str, content: bytes) -> dict[str, Any]:
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": blob}
    if path.endswith(_LFS_SUFFIXES):
        entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
    return entry


_ROUTES: tuple[tuple[str, str, str, Callable[..., _Answer]], ...] = (
    ("POST", "create", r"/api/repos/create", _Request.create),
    ("POST", "validate-yaml", r"/api/validate-yaml", _Request.validate_card),
    ("GET", "refs", rf"/api/{_REPO}/refs", _Request.refs),
    ("GET", "info", rf"/api/{_REPO}", _Request.info),
    ("GET", "info", rf"/api/{_REPO}/revision/(?P<revision>.+)", _Request.info),
    ("GET", "tree", rf"/api/{_REPO}/tree/(?P<revision>[^/]+)(?:/(?P<below>.*))?", _Request.tree),
    ("POST", "paths-info", rf"/api/{_REPO}/paths-info/(?P<revision>.+)", _Request.paths_info),
    ("POST", "branch", rf"/api/{_REPO}/branch/(?P<name>.+)", _Request.branch),
    ("POST", "tag", rf"/api/{_REPO}/tag/(?P<name>.+)", _Request.tag),
    ("DELETE", "tag", rf"/api/{_REPO}/tag/(?P<name>.+)", _Request.tag),
    ("POST", "preupload", rf"/api/{_REPO}/preupload/(?P<revision>.+)", _Request.preupload),
    ("POST", "commit", rf"/api/{_REPO}/commit/(?P<revision>.+)", _Request.commit),
    ("POST", "lfs", rf"/{_REPO}\.git/info/lfs/objects/batch", _Request.lfs),
    ("PUT", "lfs", r"/lfs/(?P<oid>[0-9a-f]{64})", _Request.put),
    *(
        (
            method,
            "resolve",
            r"/(?P<kind>datasets/|)(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)",
            _Request.resolve,
        )
        for method in ("GET", "HEAD")
    ),
)


def _handler(hub: LocalHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing: what was asked is counted."""

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = _Request(hub, self.command, self.path, body).answer()
            content, status = answer.body, answer.status
            wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
            extra = dict(answer.headers)
            if wanted is not None and status == 200:
                first, last = int(wanted[1]), int(wanted[2] or len(content) - 1)
                extra["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
                content, status = content[first : last + 1], 206
            self.send_response(status)
            for name, value in {**extra, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    for method in ("GET", "HEAD", "POST", "PUT", "DELETE"):
        setattr(Handler, f"do_{method}", Handler._serve)
    return Handler
