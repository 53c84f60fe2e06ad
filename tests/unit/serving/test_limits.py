"""What is read of a body, above all of one that is too large."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from starlette.requests import Request
from starlette.types import Message

from blockdraft.serving import limits
from blockdraft.serving.errors import ApiError
from blockdraft.serving.limits import read_body

LIMIT = 100


class Sender:
    """A client's body in parts; `num_left` of them were not asked for."""

    def __init__(self, parts: Sequence[bytes], *, hangs: bool = False) -> None:
        self._parts = list(parts)
        self._hangs = hangs

    @property
    def num_left(self) -> int:
        return len(self._parts)

    async def receive(self) -> Message:
        if not self._parts and self._hangs:
            await asyncio.sleep(60)
        part = self._parts.pop(0) if self._parts else b""
        has_more = bool(self._parts) or self._hangs
        return {"type": "http.request", "body": part, "more_body": has_more}


def read(sender: Sender, headers: Mapping[str, str], *, seconds: float = 30) -> bytes:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    request = Request({"type": "http", "headers": pairs}, sender.receive)
    return asyncio.run(read_body(request, max_bytes=LIMIT, seconds=seconds))


def status_of(sender: Sender, headers: Mapping[str, str], *, seconds: float = 30) -> int:
    with pytest.raises(ApiError) as refused:
        read(sender, headers, seconds=seconds)
    return refused.value.status


def test_a_body_of_just_the_limit() -> None:
    assert read(Sender([b"x" * 60, b"y" * 40]), {"content-length": "100"}) == b"x" * 60 + b"y" * 40


@pytest.mark.parametrize("headers", [{"content-length": "600"}, {}])
def test_a_body_that_is_too_large_is_read_to_its_end(headers: dict[str, str]) -> None:
    """Else the connection is reset while the client sends, and it never sees the 413."""
    sender = Sender([b"x" * 60] * 10)
    assert (status_of(sender, headers), sender.num_left) == (413, 0)


@pytest.mark.parametrize(
    "headers",
    [{"content-length": "600", "expect": "100-continue"}, {"content-length": str(10**30)}],
)
def test_what_need_not_be_sent_is_not_asked_for(headers: dict[str, str]) -> None:
    sender = Sender([b"x" * 60] * 10)
    assert (status_of(sender, headers), sender.num_left) == (413, 10)


def test_no_end_of_bytes_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DISCARDED_BYTES", 200)
    sender = Sender([b"x" * 60] * 10)
    assert (status_of(sender, {}), sender.num_left) == (413, 4)


@pytest.mark.parametrize(("parts", "status"), [(1, 408), (3, 413)])
def test_a_body_that_does_not_end(parts: int, status: int) -> None:
    assert status_of(Sender([b"x" * 60] * parts, hangs=True), {}, seconds=0.05) == status
