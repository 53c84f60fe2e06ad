"""`ApiKeys`: the ASGI layer that wants a key for everything but health and the static page.

Keys are compared in constant time; it knows no users, quotas or scopes.
"""

import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from blockdraft.serving.errors import ApiError

OPEN_PATHS = frozenset({"/", "/health", "/ready", "/ping", "/version", "/metrics", "/openapi.json"})
"""What needs no key: probes, the scraper, the description, and the page that asks for a key."""

OPEN_PREFIX = "/playground/"


class ApiKeys:
    """Passes a request on when it carries one of `keys` as `Authorization: Bearer KEY`."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._keys = [key.encode("utf-8") for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_open(scope) or self._has_key(scope):
            await self._app(scope, receive, send)
            return
        refusal = ApiError(
            "no valid API key: send one as 'Authorization: Bearer KEY'",
            status=401,
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await refusal.response()(scope, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        path = str(scope["path"])
        # A browser asks with OPTIONS first, and never sends the key along with that.
        return path in OPEN_PATHS or path.startswith(OPEN_PREFIX) or scope["method"] == "OPTIONS"

    def _has_key(self, scope: Scope) -> bool:
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return False
        raw = given.strip().encode("latin-1")
        # No early exit: how long it takes must not tell which key was nearly right.
        found = [hmac.compare_digest(raw, key) for key in self._keys]
        return any(found)
