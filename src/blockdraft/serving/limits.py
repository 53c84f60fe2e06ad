"""Limits of one HTTP request: the size and the arrival of its body, and a client who leaves.

It parses nothing.
"""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from blockdraft.serving.errors import ApiError

Result = TypeVar("Result")

DISCARDED_BYTES = 1 << 26
"""How much is read of a body beyond its limit. A server that answers and closes while its client
still sends resets the connection, and many clients then report that instead of the answer."""


async def read_body(request: Request, *, max_bytes: int, seconds: float) -> bytes:
    """The whole body. Raises ApiError 413 when too large, 408 when it comes too slowly.

    What is too large is read and forgotten, up to `DISCARDED_BYTES` of it.
    """
    stated = _stated_size(request)
    is_held_back = request.headers.get("expect", "").lower() == "100-continue"
    if stated > max_bytes and (is_held_back or stated > max_bytes + DISCARDED_BYTES):
        raise _too_large(max_bytes)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= max_bytes:
                    chunks.append(chunk)
                    continue
                chunks.clear()
                if size > max_bytes + DISCARDED_BYTES:
                    break
    except TimeoutError as error:
        if max(size, stated) > max_bytes:
            raise _too_large(max_bytes) from error
        raise ApiError(
            f"the body did not arrive within {seconds:g} seconds; send it faster, or less of it",
            status=408,
            code="body_timeout",
        ) from error
    except ClientDisconnect as error:
        raise ApiError("the client left before its request was complete") from error
    if size > max_bytes:
        raise _too_large(max_bytes)
    return b"".join(chunks)


def _stated_size(request: Request) -> int:
    stated = request.headers.get("content-length", "")
    return int(stated[:20]) if stated.isascii() and stated.isdigit() else 0


def _too_large(max_bytes: int) -> ApiError:
    return ApiError(
        f"the body is larger than the {max_bytes} bytes allowed here; shorten the prompt, "
        "or raise the server's limit",
        status=413,
        code="request_too_large",
    )


async def while_connected(receive: Receive, work: Coroutine[object, object, Result]) -> Result:
    """The result of `work`; ClientDisconnect when the client leaves first, `work` then canceled.

    `receive` belongs to a request whose body has been read.
    """
    doing = asyncio.create_task(work)
    watching = asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait({doing, watching}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise ClientDisconnect
    finally:
        for task in (doing, watching):
            task.cancel()
        await asyncio.gather(doing, watching, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
