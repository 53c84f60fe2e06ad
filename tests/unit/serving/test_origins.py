"""Pages of other sites can't ask; the server's own page, named origins and other clients can."""

import asyncio

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from blockdraft.serving.origins import OwnPages, is_local_name


async def answer(request: Request) -> PlainTextResponse:
    return PlainTextResponse("answered")


def status(*, local_only: bool, host: str, origin: str | None) -> int:
    app = Starlette(routes=[Route("/v1/completions", answer, methods=["POST"])])
    guarded = OwnPages(app, ["https://chat.example.com/"], local_only=local_only)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(guarded)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            headers = {} if origin is None else {"Origin": origin}
            return await client.post("/v1/completions", headers=headers, content=b"{}")

    response = asyncio.run(ask())
    if response.status_code == 403:
        assert response.json()["error"]["code"] == "foreign_origin"
    return response.status_code


@pytest.mark.parametrize(
    ("origin", "host", "local", "elsewhere"),
    [
        (None, "127.0.0.1:8000", 200, 200),
        (None, "gpu-box:8000", 200, 200),
        ("http://127.0.0.1:8000", "127.0.0.1:8000", 200, 200),
        ("http://localhost:8000", "localhost:8000", 200, 200),
        ("http://localhost:9999", "localhost:8000", 403, 403),
        ("https://chat.example.com", "127.0.0.1:8000", 200, 200),
        ("http://evil.example", "127.0.0.1:8000", 403, 403),
        ("null", "127.0.0.1:8000", 403, 403),
        ("", "127.0.0.1:8000", 403, 403),
        # A name whose owner lets it point here (DNS rebinding).
        ("http://evil.example:8000", "evil.example:8000", 403, 200),
    ],
)
def test_who_may_ask(origin: str | None, host: str, local: int, elsewhere: int) -> None:
    assert status(local_only=True, host=host, origin=origin) == local
    assert status(local_only=False, host=host, origin=origin) == elsewhere


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("localhost", True),
        ("LOCALHOST:80", True),
        ("app.localhost", True),
        ("127.3.2.1:8000", True),
        ("[::1]:8000", True),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("10.0.0.1", False),
        ("", False),
        ("[", False),
    ],
)
def test_names_of_this_machine(host: str, is_local: bool) -> None:
    assert is_local_name(host) is is_local
