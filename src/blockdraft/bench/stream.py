"""Sends one request and times what comes back.

It decides neither what is sent (`wire.py`) nor when (`closed_loop.py`, `arrivals.py`).
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from blockdraft.bench.chunks import Chunk, Usage, error_text, read_chunk
from blockdraft.bench.documents import parse_object
from blockdraft.bench.records import Failure, RequestRecord
from blockdraft.bench.response_fields import ResponseCounts
from blockdraft.bench.workload import Job

if TYPE_CHECKING:
    import httpx

TOO_LONG = re.compile(
    r"context.?(length|size|window)|too long|maximum (context|model|sequence|prompt|input)"
    r"|(longer|larger) than the (maximum|model)|exceed\w* .*(length|context|max_)",
    re.IGNORECASE,
)
ENDS_RUN = (401, 403, 404)
"""Statuses that every further request would get too."""
NO_USAGE = Usage(None, None, None)


@dataclass(slots=True)
class _Heard:
    """What has come of one answer so far. Times are of the clock."""

    first: float | None = None
    times: list[float] = field(default_factory=list[float])
    usage: Usage = NO_USAGE
    counts: ResponseCounts | None = None
    finish_reason: str | None = None
    is_done: bool = False
    failure: Failure | None = None

    def take(self, chunk: Chunk, now: float) -> None:
        if chunk.error is not None:
            self.failure = Failure("broken off", chunk.error)
            return
        self.finish_reason = chunk.finish_reason or self.finish_reason
        # A stop token alone has no text; then its end is the first that comes.
        if chunk.has_text or (chunk.finish_reason is not None and not self.times):
            self.times.append(now)
            self.first = now if self.first is None else self.first
        self.usage = chunk.usage or self.usage
        self.counts = chunk.counts or self.counts


async def send_request(
    client: "httpx.AsyncClient",
    url: str,
    body: Mapping[str, object],
    job: Job,
    *,
    timeout: float,
    clock: Callable[[], float],
) -> RequestRecord:
    """The record of one request, failed or not; `clock` tells seconds since the level began."""
    import httpx

    heard = _Heard()
    sent = clock()
    try:
        async with asyncio.timeout(timeout):
            await _converse(client, url, body, heard, clock)
    except (TimeoutError, httpx.TimeoutException):
        heard.failure = Failure("timeout", f"no whole answer within {timeout:g} s (--timeout)")
    except httpx.ConnectError as error:
        heard.failure = Failure("no connection", named(error), ends_run=True)
    except httpx.HTTPError as error:
        heard.failure = Failure("broken off", f"the connection was lost ({named(error)})")
    return RequestRecord(
        number=job.number,
        id=job.prompt.id,
        category=job.prompt.category,
        sent_s=sent,
        first_s=heard.first,
        end_s=clock(),
        chunks_s=tuple(heard.times),
        usage=heard.usage,
        finish_reason=heard.finish_reason,
        counts=heard.counts,
        failure=heard.failure,
    )


def read_refusal(status: int, text: str) -> Failure:
    """Why a request was answered with another status than 200."""
    document = parse_object(text)
    message = " ".join(text.split())[:200] if document is None else error_text(document)
    said = f"status {status}: {message or 'no text'}"
    if status in (400, 413, 422, 500) and TOO_LONG.search(text):
        return Failure("prompt too long", said)
    return Failure("refused", said, ends_run=status in ENDS_RUN)


def named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


async def _converse(
    client: "httpx.AsyncClient",
    url: str,
    body: Mapping[str, object],
    heard: _Heard,
    clock: Callable[[], float],
) -> None:
    async with client.stream("POST", url, json=body) as response:
        if response.status_code != 200:
            raw = await response.aread()
            heard.failure = read_refusal(response.status_code, raw.decode("utf-8", "replace"))
            return
        if "event-stream" in response.headers.get("content-type", ""):
            async for line in _lines(response):
                _take_line(line, heard, clock())
        else:
            _take_whole((await response.aread()).decode("utf-8", "replace"), heard)
    if heard.failure is None and heard.finish_reason is None and not heard.is_done:
        heard.failure = Failure("broken off", "the stream ended before the answer did")


async def _lines(response: "httpx.Response") -> AsyncIterator[str]:
    """Ended by a line feed alone: httpx would end them at U+2028 inside an event too."""
    rest = b""
    async for data in response.aiter_bytes():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace").removesuffix("\r")
    yield rest.decode("utf-8", "replace")


def _take_line(line: str, heard: _Heard, now: float) -> None:
    name, _, value = line.partition(":")
    value = value.strip()
    if name == "error":  # llama.cpp sends errors in a field of their own
        heard.failure = Failure("broken off", " ".join(value.split())[:300])
    elif name != "data":
        return
    elif value == "[DONE]":
        heard.is_done = True
    elif (document := parse_object(value)) is None:
        heard.failure = Failure("broken off", f"an event is not a JSON object: {value[:100]}")
    else:
        heard.take(read_chunk(document), now)


def _take_whole(text: str, heard: _Heard) -> None:
    """An answer in one piece: there is no first token to time."""
    document = parse_object(text)
    if document is None or "choices" not in document:
        start = " ".join(text.split())[:100]
        heard.failure = Failure("refused", f"the reply is no completion: {start}", ends_run=True)
        return
    chunk = read_chunk(document)
    heard.finish_reason = chunk.finish_reason
    heard.is_done = True
    heard.usage = chunk.usage or heard.usage
    heard.counts = chunk.counts
