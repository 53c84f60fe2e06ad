"""The HTTP server: a socket that is bound early, and uvicorn on it without uvicorn's own signals.

When it ends is decided in `lifecycle.py`.
"""

import asyncio
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from blockdraft.errors import ConfigError

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 75
"""Longer than reverse proxies keep idle connections, so that they never use one just closed."""


def bind_socket(host: str, port: int) -> socket.socket:
    """A TCP socket bound to an address, not listening yet: clients are refused until it does.

    Raises ConfigError for an address that is not of this machine, or taken.
    """
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_ADDRCONFIG
        )
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no host name"
        raise ConfigError(f"--host {host} is no address: {reason}") from error
    family, kind, protocol, _, address = found[0]
    bound = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            # A server that was killed leaves connections behind that would block the port.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise _cannot_listen(host, port, error) from error
    return bound


def listen(bound: socket.socket) -> None:
    """Let clients connect. Raises ConfigError where another server came first."""
    host, port = bound.getsockname()[:2]
    try:
        bound.listen(BACKLOG)
    except OSError as error:
        raise _cannot_listen(str(host), int(port), error) from error


def url_of(bound: socket.socket) -> str:
    """The address that clients on this machine use."""
    host, port = bound.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(bound: socket.socket) -> bool:
    """Whether only this machine can reach it."""
    host = str(bound.getsockname()[0])
    return host == "::1" or host.startswith("127.")


def _cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(
        f"can't listen on {host} port {port}: {error.strerror}; stop what uses it, or choose "
        "another --host or --port (0 = any free port)"
    )


class HttpServer(uvicorn.Server):
    """Serves `app` until `end`; signals are somebody else's."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                ws="none",
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
            )
        )
        self._is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._is_up.set()

    async def up(self) -> None:
        """Returns when requests are answered."""
        await self._is_up.wait()

    def end(self, seconds: float) -> None:
        """Take no more connections and end once responses are out, after `seconds` in any case."""
        self.config.timeout_graceful_shutdown = max(1, round(seconds))
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leaves them alone."""
        yield
