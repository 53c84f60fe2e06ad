"""A stand-in for the server: the real playground, and a model that follows a script.

What it streams is the contract of docs/playground.md; the prompt names the script.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import NotRequired, TypedDict, cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from blockdraft.serving.playground import playground_routes

MARKUP = "<img src=x onerror='window.hit=1'><script>window.hit=1</script>**bold** &lt;"

Step = list[tuple[str, bool]]


class Body(TypedDict):
    messages: list[dict[str, str]]
    blockdraft: dict[str, object]
    max_tokens: int
    temperature: NotRequired[float]
    seed: NotRequired[int]


def steps_of(widths: list[int], words: list[str]) -> list[Step]:
    """The prefill's token, then steps of these widths, each ending in a bonus token."""
    remaining = iter(words)
    first: Step = [(next(remaining), False)]
    return [first] + [
        [(next(remaining), place < width - 1) for place in range(width)] for width in widths
    ]


WORDS = [f"word{index} " for index in range(24)]
ANSWER = steps_of([4, 1, 8, 4, 6], WORDS)
"""23 tokens in 5 steps: tau is 4.6."""

CLOCK = {"off": 100.0, "auto": 250.0}
"""Milliseconds for a step that the prompt "clocked" pretends."""

PAUSE_SECONDS = 0.03


def frame(
    tokens: Step,
    *,
    details: bool = True,
    reason: str | None = None,
    elapsed_ms: float | None = None,
) -> str:
    """One chunk; `details` adds what the page asks for with `step_details`."""
    choice: dict[str, object] = {
        "index": 0,
        "delta": {"content": "".join(text for text, _ in tokens)},
        "finish_reason": reason,
    }
    if details:
        pieces = [{"text": text, "drafted": drafted} for text, drafted in tokens]
        choice["blockdraft"] = {"tokens": pieces, "num_committed": len(tokens)}
        if elapsed_ms is not None:
            choice["blockdraft"] |= {"elapsed_ms": elapsed_ms}
    return json.dumps({"object": "chat.completion.chunk", "choices": [choice]}, ensure_ascii=False)


def usage_frame(steps: list[Step]) -> str:
    num_tokens = sum(len(step) for step in steps)
    num_steps = len(steps) - 1
    speculation = {
        "mean_acceptance_length": (num_tokens - 1) / num_steps if num_steps else 1.0,
        "num_spec_steps": num_steps,
    }
    usage = {"prompt_tokens": 9, "completion_tokens": num_tokens, "total_tokens": 9 + num_tokens}
    metrics = {"speculative_decoding": speculation}
    return json.dumps({"choices": [], "usage": usage, "metrics": metrics})


@dataclass
class StandIn:
    """A server with the playground, and a model that says what its prompt's name stands for."""

    url: str = ""
    bodies: list[Body] = field(default_factory=list[Body])
    keys: list[str | None] = field(default_factory=list[str | None])
    log: list[str] = field(default_factory=list[str])

    def app(self) -> Starlette:
        chat = Route("/v1/chat/completions", self.chat, methods=["POST"])
        models = Route("/v1/models", self.models)
        return Starlette(routes=[*playground_routes(), chat, models])

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "stand-in"}]})

    async def chat(self, request: Request) -> Response:
        body = cast(Body, await request.json())
        self.bodies.append(body)
        key = request.headers.get("authorization")
        self.keys.append(key)
        name = body["messages"][-1]["content"]
        if name == "busy":
            return refusal(503, "The queue is full.", {"Retry-After": "7"})
        if name == "bad":
            return refusal(400, "max_tokens is 0; give at least 1")
        if name == "plain text":
            return Response("oops", status_code=502)
        if name == "locked" and key != "Bearer secret":
            return refusal(401, "Wrong key.")
        events = self.events(name, str(body["blockdraft"]["speculation"]))
        return StreamingResponse(events, media_type="text/event-stream")

    async def events(self, name: str, speculation: str) -> AsyncIterator[bytes]:
        self.log.append(f"begin {speculation}")
        try:
            async for data in script(name, speculation):
                yield data
            self.log.append(f"end {speculation}")
        except asyncio.CancelledError:
            self.log.append("gone")
            raise


def refusal(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": {"message": message}}, status_code=status, headers=headers)


async def script(name: str, speculation: str) -> AsyncIterator[bytes]:
    """The bytes of the answer to the prompt `name`."""
    steps = {
        "markup": steps_of([2], ["a ", MARKUP, " z"]),
        "wide": steps_of([1], ["x" * 400, "https://" + "y" * 300]),
        "cut": [*steps_of([2], ["a", "b", "c"]), [("d", True), ("e", True)]],
        "bytes": steps_of([2], ["gr\u00fc\u00df ", "\U0001f600", " \u6f22"]),
    }.get(name, ANSWER)
    if speculation == "off":
        steps = [[(text, False)] for step in steps for text, _ in step]
    if name == "slow":
        steps = [[(f"{index} ", False)] for index in range(2000)]
    for index, step in enumerate(steps):
        if index == 2 and name == "break":
            return
        if index == 2 and name == "fault":
            yield b'data: {"error": {"message": "The engine failed."}}\n\n'
            return
        elapsed_ms = 40.0 + CLOCK[speculation] * index if name == "clocked" else None
        chunk = frame(step, details=name != "bare", elapsed_ms=elapsed_ms)
        data = f"data: {chunk}\n\n".encode()
        # Bytes that come one at a time, with the other line ending that the standard allows.
        for piece in split(data.replace(b"\n", b"\r\n")) if name == "bytes" else [data]:
            yield piece
            await asyncio.sleep(0.0005 if name == "bytes" else 0)
        await asyncio.sleep(PAUSE_SECONDS)
    yield f"data: {frame([], reason='length' if name == 'cut' else 'stop')}\n\n".encode()
    yield f"data: {usage_frame(steps)}\n\ndata: [DONE]\n\n".encode()


def split(data: bytes) -> list[bytes]:
    return [data[index : index + 1] for index in range(len(data))]
