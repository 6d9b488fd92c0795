# SPDX-License-Identifier: Apache-2.0
"""Runs the server of the page: binds a port, opens the browser, ends on Ctrl-C. Needs uvicorn and starlette."""

from __future__ import annotations

import errno
import logging
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ulna.core.errors import ConfigError, ConfigProblem, MissingDependencyError
from ulna.data.viewer.content import OpenDataset

if TYPE_CHECKING:
    import uvicorn

__all__ = ["can_open_browser", "listen", "make_server", "open_browser", "require_server", "serve"]

logger = logging.getLogger(__name__)

_LAST_ANSWERS_S = 1


def require_server() -> None:
    """Check that the libraries of the server are installed.

    Raises:
        MissingDependencyError: One is not; the command that installs both is named.
    """
    for library in ("starlette", "uvicorn"):
        if find_spec(library) is None:
            raise MissingDependencyError(library, "ulna dataset view", "pip install 'ulna-data[view]'")


def listen(host: str, port: int) -> socket.socket:
    """Bind the address of the server.

    Args:
        host: Address or name of this machine.
        port: Port; 0 takes a free one.

    Returns:
        A socket that listens.

    Raises:
        ConfigError: The port is taken, or the address is not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(128)
    except (OSError, OverflowError) as error:
        sock.close()
        taken = isinstance(error, OSError) and error.errno in {errno.EADDRINUSE, errno.EACCES}
        problem = (
            ConfigProblem("port", port, f"needs a port that is free, or none at all, which takes one ({error})")
            if taken or isinstance(error, OverflowError)
            else ConfigProblem("host", host, f"needs an address of this machine ({error})")
        )
        raise ConfigError([problem], title="server's settings") from error
    return sock


def make_server(dataset: OpenDataset, host: str, ready: Callable[[], object] | None = None) -> uvicorn.Server:
    """Make the server; its `run(sockets=[...])` answers until its `should_exit` is set.

    Args:
        dataset: What is shown.
        host: The address it will listen on.
        ready: Called when requests are answered.

    Returns:
        The server.
    """
    import uvicorn

    from ulna.data.viewer.app import make_app

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if ready is not None:
                ready()

    return Server(
        uvicorn.Config(
            make_app(dataset, host),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=_LAST_ANSWERS_S,
            ws="none",
        )
    )


def serve(dataset: OpenDataset, sock: socket.socket, host: str, ready: Callable[[], object] | None = None) -> None:
    """Answer requests until Ctrl-C, or until the process is asked to end. Closes the socket.

    Args:
        dataset: What is shown.
        sock: A socket that listens.
        host: The address it was bound to.
        ready: Called when requests are answered.
    """
    try:
        make_server(dataset, host, ready).run(sockets=[sock])
    except KeyboardInterrupt:
        logger.debug("Ended by Ctrl-C.")
    finally:
        sock.close()


def can_open_browser() -> bool:
    """Tell whether a window can appear in front of the person: not over ssh, and not without a display."""
    if "SSH_CONNECTION" in os.environ:
        return False
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_browser(url: str) -> None:
    """Show an address in the browser, without waiting for it.

    Args:
        url: The address.
    """

    def show() -> None:
        try:
            webbrowser.open(url)
        except webbrowser.Error as error:
            logger.warning("No browser could be started (%s); open %s yourself.", error, url)

    threading.Thread(target=show, name="open browser", daemon=True).start()
