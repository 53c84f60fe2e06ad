"""Server-sent events: a response that stops working the moment its client leaves.

It frames documents; what is in them is decided elsewhere.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from blockdraft.serving.errors import as_api_error, timed_out
from blockdraft.serving.limits import while_connected

_LOGGER = logging.getLogger("blockdraft.serving")


LINE_ENDS = {ord(character): f"\\u{ord(character):04x}" for character in "\x85\u2028\u2029"}
"""Many clients end a line at these too (httpx does), so an event must not hold them unescaped."""


def event(document: object) -> bytes:
    """One event, on one line whatever its reader takes for the end of a line."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + text.translate(LINE_ENDS).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"

LAST_WORDS_SECONDS = 5.0
"""For a client that is slow to read why its stream ended."""


class EventStream(Response):
    """Sends the documents as they come; an error among them becomes an event, then the end.

    `close` is called exactly once, however it ends: when the client leaves, when `seconds` have
    passed, or at the end.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        documents: AsyncIterator[dict[str, object]],
        close: Callable[[], None],
        *,
        seconds: float | None,
        headers: dict[str, str],
    ) -> None:
        self._documents = documents
        self._close = close
        self._seconds = seconds
        self.status_code = 200
        self.body = b""
        self.background = None
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **headers})
        # Its length is not known; Response states that of the (empty) body it was given.
        if "content-length" in self.headers:
            del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            # A client that stopped reading blocks every send, that of the last event too.
            most = None if self._seconds is None else self._seconds + LAST_WORDS_SECONDS
            async with asyncio.timeout(most):
                await while_connected(receive, self._send_all(send))
        except (ClientDisconnect, OSError):
            pass  # nobody is left to tell, or nobody listens
        finally:
            self._close()

    async def _send_all(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        try:
            async with asyncio.timeout(self._seconds):
                async for document in self._documents:
                    await _send_part(send, event(document))
        except OSError as error:
            if not isinstance(error, TimeoutError):
                raise
            await _send_part(send, event(timed_out(self._seconds).body()))
        except Exception as error:  # the status is sent, so it must be an event
            told = as_api_error(error)
            if told.status == 500:  # a full queue or a drain is no failure
                _LOGGER.error("a stream failed", exc_info=error)
            await _send_part(send, event(told.body()))
        await _send_part(send, DONE)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_part(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})
