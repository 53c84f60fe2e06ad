"""`OwnPages`: the ASGI layer that refuses requests which the pages of other sites send.

A browser sends simple requests to any address without asking, and says in `Origin` whose page it
was; CORS only keeps such a page from reading the answer. Other clients send no `Origin` and pass.
"""

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from blockdraft.serving.errors import ApiError


class OwnPages:
    """Passes a request on that has no `Origin`, one of `origins`, or that of the server itself.

    With `local_only` the server's own name must be one of this machine's: a foreign name that its
    owner lets point here (DNS rebinding) would make a foreign page look like our own.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str], *, local_only: bool) -> None:
        self._app = app
        self._origins = frozenset(origin.rstrip("/") for origin in origins)
        self._local_only = local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        origin = headers.get("origin")
        if origin is None or self._may_ask(origin, headers.get("host", "")):
            await self._app(scope, receive, send)
            return
        refusal = ApiError(
            f"pages of {origin[:100]!r} may not call this server; start it with --cors-origin "
            "and that origin if they should",
            status=403,
            code="foreign_origin",
        )
        await refusal.response()(scope, receive, send)

    def _may_ask(self, origin: str, host: str) -> bool:
        if origin in self._origins:
            return True
        _, scheme_ended, place = origin.partition("://")
        is_own = bool(scheme_ended) and place.lower() == host.lower()
        return is_own and (not self._local_only or is_local_name(host))


def is_local_name(host: str) -> bool:
    """Whether the host of a `Host` header (a port may follow) can only be this machine."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
