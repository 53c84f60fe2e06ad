"""Serves the files of the playground page from the package, with strict headers.

It runs no template, reads no path from a request and knows nothing of the API that the page calls.
"""

import hashlib
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blockdraft.errors import ConfigError

INDEX = "index.html"
PAGE_FILES: dict[str, str] = {
    INDEX: "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "controls.css": "text/css; charset=utf-8",
    "parts.css": "text/css; charset=utf-8",
    "race.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "app.js": "text/javascript; charset=utf-8",
    "answer.js": "text/javascript; charset=utf-8",
    "chart.js": "text/javascript; charset=utf-8",
    "panel.js": "text/javascript; charset=utf-8",
    "race.js": "text/javascript; charset=utf-8",
    "settings.js": "text/javascript; charset=utf-8",
    "stream.js": "text/javascript; charset=utf-8",
    "tally.js": "text/javascript; charset=utf-8",
}
"""Every file of the page and its media type; nothing else is ever served."""

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # The browser itself refuses code that would turn text into markup.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)

HEADERS: dict[str, str] = {
    # The names carry no version, so a browser asks each time and mostly gets a 304.
    "Cache-Control": "no-cache",
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class PageFile:
    """One file of the page, held in memory: the endpoint that answers with it, or with a 304."""

    def __init__(self, content: bytes, media_type: str) -> None:
        self._content = content
        self._media_type = media_type
        self._headers = {**HEADERS, "ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"'}

    async def answer(self, request: Request) -> Response:
        if is_known(self._headers["ETag"], request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=self._headers)
        return Response(self._content, headers=self._headers, media_type=self._media_type)


def is_known(etag: str, if_none_match: str) -> bool:
    """Whether an If-None-Match header names this entity tag (RFC 9110, weak comparison)."""
    known = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in known or "*" in known


def playground_routes() -> list[Route]:
    """The page at `/` and its files under `/playground/`, read once, here.

    Raises ConfigError where the installed package lacks one of them.
    """
    return [
        Route(
            "/" if name == INDEX else f"/playground/{name}",
            PageFile(read_page_file(name), media_type).answer,
            methods=["GET"],
            name=f"playground {name}",
            include_in_schema=False,
        )
        for name, media_type in PAGE_FILES.items()
    ]


def read_page_file(name: str) -> bytes:
    """The bytes of a file of the page; ConfigError where the package was installed without it."""
    try:
        return (files("blockdraft.serving.playground") / "page" / name).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"the playground's {name} can't be read ({error}); install blockdraft again"
        ) from error
