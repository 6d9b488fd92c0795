# SPDX-License-Identifier: Apache-2.0
"""The web application: files of the page, data of the dataset, pictures and videos, and the marks. Needs starlette."""

from __future__ import annotations

import json
import secrets
import shlex
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from ulna.core.errors import DatasetError, UlnaError, nearest
from ulna.data.editing.marks import Marks, read_marks, write_marks
from ulna.data.layout import FileId
from ulna.data.viewer.content import OpenDataset
from ulna.data.viewer.guarding import App, Guard
from ulna.data.viewer.pictures import picture

__all__ = ["make_app"]

_STATIC = Path(__file__).parent / "static"
_MOST_BYTES = 64_000
_KEEP = {"cache-control": "private, max-age=600"}
_ASK = {"cache-control": "no-cache"}
_FRESH = {"cache-control": "no-store"}


def make_app(dataset: OpenDataset, host: str, token: str | None = None) -> App:
    """Make the application.

    Args:
        dataset: What it shows.
        host: The address that the server will listen on.
        token: What a change has to bring; random when not given.

    Returns:
        An ASGI application.
    """
    token = token or secrets.token_urlsafe(24)
    pages = _Pages(dataset, token)
    routes = [
        Route("/", pages.index),
        Route("/api/dataset", _answer(pages.facts)),
        Route("/api/episodes", _answer(pages.episodes)),
        Route("/api/episodes/{episode:int}", _answer(pages.episode)),
        Route("/api/episodes/{episode:int}/values/{frame:int}", _answer(pages.values)),
        Route("/api/episodes/{episode:int}/frames/{camera}/{frame:int}", _answer(pages.picture)),
        Route("/api/videos/{camera}/{chunk:int}/{file:int}", _answer(pages.video)),
        Route("/api/marks", _answer(pages.marks), methods=["GET"]),
        Route("/api/marks", pages.change_marks, methods=["POST"]),
        Route("/static/{name}", _answer(pages.static)),
    ]
    return Guard(Starlette(routes=routes), host, token)


Values = Mapping[str, Any]


def _answer(work: Callable[[Values], Any]) -> Callable[[Request], Awaitable[Response]]:
    """Run a blocking answer in a thread; turn Ulna's errors into one that the page can show."""

    async def endpoint(request: Request) -> Response:
        try:
            result = await run_in_threadpool(work, request.path_params)
        except UlnaError as error:
            return _problem(error)
        return result if isinstance(result, Response) else JSONResponse(result, headers=_FRESH)

    return endpoint


def _problem(error: UlnaError, status: int = 422) -> JSONResponse:
    return JSONResponse({"error": error.message, "hint": error.hint}, status, headers=_FRESH)


class _Pages:
    """The answers.

    Args:
        dataset: What is shown.
        token: What a change has to bring.
    """

    def __init__(self, dataset: OpenDataset, token: str) -> None:
        self._dataset, self._token = dataset, token
        self._lock = threading.Lock()

    async def index(self, request: Request) -> Response:
        return FileResponse(_STATIC / "index.html", headers=_ASK)

    def static(self, values: Values) -> Response:
        files = {path.name: path for path in _STATIC.iterdir()}
        if values["name"] not in files:
            return JSONResponse({"error": f"The page has no file {values['name']!r}.", "hint": None}, 404)
        return FileResponse(files[values["name"]], headers=_ASK)

    def facts(self, values: Values) -> dict[str, Any]:
        content, state = self._dataset.refreshed()
        return {**content.facts(), "state": state, "token": self._token, "marks": self.marks({})}

    def episodes(self, values: Values) -> dict[str, Any]:
        return self._dataset.content.episodes()

    def episode(self, values: Values) -> dict[str, Any]:
        return self._dataset.content.episode(values["episode"])

    def values(self, values: Values) -> dict[str, Any]:
        return self._dataset.content.values(values["episode"], values["frame"])

    def picture(self, values: Values) -> Response:
        encoded = picture(self._dataset.content, values["episode"], values["camera"], values["frame"])
        return Response(encoded.data, media_type=encoded.media_type, headers=_KEEP)

    def video(self, values: Values) -> Response:
        path = self._dataset.content.video(values["camera"], FileId(values["chunk"], values["file"]))
        if not path.is_file():
            raise DatasetError(f"The video {path} does not exist.")
        return FileResponse(path, media_type="video/mp4", headers=_KEEP)

    def marks(self, values: Values) -> dict[str, Any]:
        root = self._dataset.root
        return {**read_marks(root).to_json(), "command": f"ulna dataset edit apply {shlex.quote(str(root))}"}

    async def change_marks(self, request: Request) -> Response:
        try:
            change = _read_change(await _body(request))
            return JSONResponse(await run_in_threadpool(self._change, change), headers=_FRESH)
        except UlnaError as error:
            return _problem(error)

    def _change(self, change: Values) -> dict[str, Any]:
        root, meta = self._dataset.root, self._dataset.content.meta
        with self._lock:
            marks = read_marks(root)
            delete, tasks = set(marks.delete), dict(marks.tasks)
            if "episode" in change:
                meta.episodes.row(change["episode"])
                (delete.add if change["delete"] else delete.discard)(change["episode"])
            else:
                _rename(tasks, list(meta.tasks), change["task"], change["rename"])
            write_marks(root, Marks(tuple(delete), tasks))
        return self.marks({})


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BYTES:
            raise DatasetError(f"A change has at most {_MOST_BYTES} bytes.")
    return body


def _read_change(body: bytes) -> dict[str, Any]:
    """Return a change: `episode` and `delete` (yes or no), or `task` and `rename` (its text; null takes it back)."""
    try:
        change = json.loads(body)
    except ValueError as error:
        raise DatasetError(f"A change must be a JSON object: {error}.") from error
    if isinstance(change, dict):
        if set(change) == {"episode", "delete"} and type(change["episode"]) is int and type(change["delete"]) is bool:
            return change
        if set(change) == {"task", "rename"} and isinstance(change["task"], str):
            text = change["rename"]
            if text is None or (isinstance(text, str) and text.strip()):
                return {**change, "rename": text if text is None else text.strip()}
            raise DatasetError("The new text of a task must not be empty.")
    raise DatasetError(f"A change must be {{episode, delete}} or {{task, rename}}, got {body[:200]!r}.")


def _rename(tasks: dict[str, str], known: list[str], task: str, text: str | None) -> None:
    if task not in known:
        near = nearest(task, known)
        raise DatasetError(f"There is no task {task!r}.", hint=f"Did you mean {near!r}?" if near else None)
    if text is None or text == task:
        tasks.pop(task, None)
    else:
        tasks[task] = text
