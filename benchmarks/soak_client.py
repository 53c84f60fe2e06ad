"""One client of the soak: sends an order as its manner says, and checks what comes back.

It keeps no statistics; `Outcome` is all it tells.
"""

import asyncio
import json
import random
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, cast
from urllib.parse import urlsplit

import httpx

from soak_orders import Order

ENDINGS = ("stop", "length", "tool_calls")
TIMEOUT_SECONDS = 120.0
SMALL_BUFFER = 4096
"""Bytes that the kernel keeps for a reader, so that a slow one is felt at the other end."""

Status = Literal["answered", "refused", "overloaded", "left", "wrong"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one order ended. `complaint` says what is wrong."""

    status: Status
    request_id: str | None = None
    complaint: str = ""


class Wrong(Exception):
    """The server did what it must not do."""


@dataclass(slots=True)
class _Choice:
    """One choice as it grows."""

    text: str = ""
    ids: list[int] = field(default_factory=list[int])
    endings: list[str] = field(default_factory=list[str])


def new_client(url: str) -> httpx.AsyncClient:
    """A client with its own connection."""
    options = [(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)]
    transport = httpx.AsyncHTTPTransport(socket_options=options)
    return httpx.AsyncClient(base_url=url, transport=transport, timeout=TIMEOUT_SECONDS)


async def carry_out(client: httpx.AsyncClient, order: Order, rng: random.Random) -> Outcome:
    """Send `order` and see it through."""
    try:
        if order.manner == "half a body":
            return await _half_a_body(client, order)
        if order.manner == "leave early":
            return await _leave_early(client, order, rng)
        headers = {"Content-Type": "application/json"}
        async with client.stream(
            "POST", order.path, content=order.body, headers=headers
        ) as response:
            return await _read(response, order, rng)
    except Wrong as error:
        return Outcome(status="wrong", complaint=f"{order.kind} {order.manner}: {error}")
    except (httpx.HTTPError, OSError) as error:
        name = type(error).__name__
        return Outcome(status="wrong", complaint=f"{order.kind} {order.manner}: {name} {error}")


async def _half_a_body(client: httpx.AsyncClient, order: Order) -> Outcome:
    address = urlsplit(str(client.base_url))
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    head = f"POST {order.path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(order.body)}\r\n\r\n"
    writer.write(head.encode() + order.body[: len(order.body) // 2])
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    return Outcome(status="left")


async def _leave_early(client: httpx.AsyncClient, order: Order, rng: random.Random) -> Outcome:
    """Close the connection while the answer is awaited."""
    try:
        async with asyncio.timeout(rng.uniform(0.0, 0.5)):
            response = await client.post(order.path, content=order.body)
    except TimeoutError:
        return Outcome(status="left")
    if response.status_code == 503:
        return _overloaded(response)
    _require(response.status_code == 200, f"status {response.status_code}")
    return Outcome(status="answered", request_id=response.headers.get("x-request-id"))


async def _read(response: httpx.Response, order: Order, rng: random.Random) -> Outcome:
    if response.status_code == 503:
        await response.aread()
        return _overloaded(response)
    if order.num_choices == 0:
        return _refused(response, await response.aread())
    if response.status_code != 200:
        said = (await response.aread())[:200].decode("utf-8", errors="replace")
        raise Wrong(f"status {response.status_code}: {said}")
    request_id = response.headers["x-request-id"]
    choices = [_Choice() for _ in range(order.num_choices)]
    if order.is_streamed:
        most = rng.randint(1, 12) if order.manner == "leave" else None
        if await _stream(response, choices, most, slow=order.manner == "slow"):
            return Outcome(status="left", request_id=request_id)
    else:
        document = _object(json.loads(await response.aread()))
        _add(document, choices, "message")
        _require("usage" in document, "no usage")
    _check(order, choices)
    return Outcome(status="answered", request_id=request_id)


async def _stream(
    response: httpx.Response, choices: list[_Choice], most: int | None, *, slow: bool
) -> bool:
    """Read a stream; True when it was left after `most` events."""
    num_events = num_usages = 0
    done = False
    async for data in _events(response):
        _require(not done, "an event behind [DONE]")
        if data == "[DONE]":
            done = True
            continue
        document = _object(json.loads(data))
        _require("error" not in document, f"an error in the stream: {data[:200]}")
        _add(document, choices, "delta")
        num_usages += document.get("usage") is not None
        num_events += 1
        if most is not None and num_events >= most:
            return True
        if slow:
            await asyncio.sleep(0.05)
    _require(done, "the stream ended without [DONE]")
    _require(num_usages == 1, f"{num_usages} usages in the stream")
    return False


async def _events(response: httpx.Response) -> AsyncIterator[str]:
    async for line in response.aiter_lines():
        if line:
            _require(line.startswith("data: "), f"no event: {line[:80]}")
            yield line.removeprefix("data: ")


def _add(document: Mapping[str, object], choices: list[_Choice], part: str) -> None:
    for entry in cast(list[object], document["choices"]):
        said = _object(entry)
        choice = choices[cast(int, said["index"])]
        _require(not choice.endings, "more of a choice behind its end")
        if part in said:
            choice.text += cast("str | None", _object(said[part]).get("content")) or ""
        else:
            choice.text += cast(str, said["text"])
        choice.ids += cast(list[int], said.get("token_ids", []))
        if said["finish_reason"] is not None:
            choice.endings.append(cast(str, said["finish_reason"]))


def _check(order: Order, choices: list[_Choice]) -> None:
    for index, choice in enumerate(choices):
        _require(len(choice.endings) == 1, f"choice {index} ended {len(choice.endings)} times")
        ending = choice.endings[0]
        _require(ending in ENDINGS, f"choice {index} ended with {ending}")
        if order.holds is not None and ending == "stop":
            _require(order.holds(choice.text), f"the grammar does not hold: {choice.text[:80]!r}")
        known = order.known
        if known is not None and not known.is_right(index, choice.ids, choice.text, ending):
            raise Wrong(
                f"choice {index} differs from the offline answer: {choice.ids[:60]} {ending}, "
                f"not {known.answers[index].token_ids[:60]} {known.answers[index].finish_reason}"
            )


def _refused(response: httpx.Response, body: bytes) -> Outcome:
    status = response.status_code
    _require(400 <= status < 500, f"status {status} for {response.request.url.path}")
    _check_error(body)
    return Outcome(status="refused", request_id=response.headers.get("x-request-id"))


def _overloaded(response: httpx.Response) -> Outcome:
    _check_error(response.content)
    _require(int(response.headers.get("retry-after", "0")) >= 1, "503 without Retry-After")
    return Outcome(status="overloaded", request_id=response.headers.get("x-request-id"))


def _check_error(body: bytes) -> None:
    told = _object(_object(json.loads(body))["error"])
    _require(set(told) == {"message", "type", "param", "code"}, f"an odd error: {sorted(told)}")


def _object(value: object) -> dict[str, object]:
    _require(isinstance(value, dict), "no JSON object")
    return cast(dict[str, object], value)


def _require(condition: bool, complaint: str) -> None:
    if not condition:
        raise Wrong(complaint)
