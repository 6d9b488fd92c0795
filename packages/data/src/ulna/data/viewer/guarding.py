# SPDX-License-Identifier: Apache-2.0
"""Who may talk to the server: browsers that asked for this machine by name, and for changes only the page itself.

A page of another site can make a browser send requests to a local server. It cannot read the answers, unless its own
name was made to point here (DNS rebinding), which the check of the Host header stops. A change also needs the token
that only the page was given, and an Origin that is this server.
"""

from __future__ import annotations

import ipaddress
import json
import secrets
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import urlsplit

__all__ = ["Guard", "allowed_host", "is_local"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TOKEN_HEADER: Final = b"x-ulna-token"
_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
_HEADERS: Final = [
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]


def is_local(host: str) -> bool:
    """Tell whether an address that a server listens on is reached from this machine only.

    Args:
        host: A name or an address.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def allowed_host(header: str, listening: str) -> bool:
    """Tell whether a Host header can belong to an honest request. The port may differ, behind a tunnel for example.

    Args:
        header: Its value.
        listening: The address that the server listens on.
    """
    name = _name(header)
    if is_local(name) or name == listening.lower():
        return True
    if is_local(listening):
        return False
    try:
        ipaddress.ip_address(name)  # nobody can make an address point elsewhere
    except ValueError:
        return name in {socket.gethostname().lower(), socket.getfqdn().lower()}
    return True


def _name(header: str) -> str:
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


class Guard:
    """Refuses requests that do not come from the page, and tells browsers what the page may load.

    Args:
        app: What answers the others.
        host: The address that the server listens on.
        token: What a change has to bring.
    """

    def __init__(self, app: App, host: str, token: str) -> None:
        self._app, self._host, self._token = app, host, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Args:
            scope: The request.
            receive: Gives its body.
            send: Takes the answer.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await _refuse(send, refusal)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        await self._app(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> str | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if not allowed_host(host, self._host):
            return f"This server is not called {host!r}. Open the address that the command printed."
        if scope["method"] in _SAFE_METHODS:
            return None
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin not in {f"http://{host}", f"https://{host}"}:
            return "Changes are taken from the page of this server only."
        if not secrets.compare_digest(headers.get(TOKEN_HEADER, b""), self._token):
            return "The page is from an earlier start of this server. Reload it."
        return None


async def _refuse(send: Send, reason: str) -> None:
    body = json.dumps({"error": reason, "hint": None}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *_HEADERS]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
