"""The one way a request for text is answered: read, plan, start, then stream or fold.

What differs between chat and completions is handed in.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from blockdraft.serving.answers.constraints import needs_grammar
from blockdraft.serving.answers.head import Head
from blockdraft.serving.answers.replies import Reply
from blockdraft.serving.answers.running import Answer, Plan, start
from blockdraft.serving.answers.serving import Serving
from blockdraft.serving.answers.sse import EventStream
from blockdraft.serving.errors import timed_out
from blockdraft.serving.limits import read_body, while_connected
from blockdraft.serving.protocol.reading import parse_object, parse_request
from blockdraft.serving.protocol.sampling import AnswerFields

Fields = TypeVar("Fields", bound=AnswerFields)

GONE = 499
"""The status of a response nobody gets, as proxies log it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Generic[Fields]):
    """What is special about one endpoint. `plan` blocks, so it runs on a thread."""

    model: type[Fields]
    id_prefix: str
    kind: str
    plan: Callable[[Serving, Fields], Plan]
    reply: Callable[[Serving, Fields, Plan, Answer, Head], Reply]


async def respond(serving: Serving, endpoint: Endpoint[Fields], request: Request) -> Response:
    """The response to `request`. Raises the errors of ours that its client is to be told."""
    config = serving.config
    began = time.monotonic()
    body = await read_body(request, max_bytes=config.max_body_bytes, seconds=config.body_seconds)
    fields = parse_request(endpoint.model, parse_object(body))
    serving.check_model(fields.model)
    try:
        async with asyncio.timeout(_left(config.request_seconds, began)):
            work = _respond(serving, endpoint, fields, began)
            return await while_connected(request.receive, work)
    except ClientDisconnect:
        return Response(status_code=GONE)
    except TimeoutError as error:
        raise timed_out(config.request_seconds) from error


async def _respond(
    serving: Serving, endpoint: Endpoint[Fields], fields: Fields, began: float
) -> Response:
    name = fields.request_id or secrets.token_hex(16)
    head = Head(
        f"{endpoint.id_prefix}-{name}",
        endpoint.kind + (".chunk" if fields.stream and endpoint.id_prefix == "chatcmpl" else ""),
        serving.service.model_name,
        int(time.time()),
    )
    headers = {"X-Request-Id": head.id}
    threads = serving.grammar_threads if needs_grammar(fields) else None
    loop = asyncio.get_running_loop()
    plan = await loop.run_in_executor(threads, endpoint.plan, serving, fields)
    answer = await start(serving.service.runner, plan, head.id)
    try:
        reply = endpoint.reply(serving, fields, plan, answer, head)
        if fields.stream:
            left = _left(serving.config.request_seconds, began)
            return EventStream(reply.chunks(), answer.cancel, seconds=left, headers=headers)
        document = await reply.whole()
    except BaseException:
        answer.cancel()
        raise
    return JSONResponse(document, headers=headers)


def _left(seconds: float | None, began: float) -> float | None:
    return None if seconds is None else max(0.0, began + seconds - time.monotonic())
