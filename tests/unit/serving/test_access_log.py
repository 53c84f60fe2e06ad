"""One line for each HTTP request, with what came out of its own tickets."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from blockdraft.decoding import AcceptanceStats, Commit, SamplingParams
from blockdraft.decoding.emission import FinishReason
from blockdraft.decoding.stats import StepCount
from blockdraft.decoding.text import DecodeText
from blockdraft.errors import EngineFault
from blockdraft.serving.access_log import AccessLog, LoggedRunner
from blockdraft.serving.log_lines import fields_of
from blockdraft.serving.service import Ticket


@dataclass(slots=True, eq=False)
class ShortTicket:
    """Emits as many tokens as the prompt has, in one step after the first; an empty one fails."""

    prompt_ids: Sequence[int]
    num_cached: int = 1
    queue_seconds: float | None = 0.25
    is_canceled: bool = False

    def cancel(self) -> None:
        self.is_canceled = True

    async def __aiter__(self) -> AsyncIterator[Commit]:
        if not self.prompt_ids:
            raise EngineFault("a step failed")
        rest = len(self.prompt_ids) - 1
        stats = AcceptanceStats().with_prefill_token()
        yield commit_of(1, stats, None)
        await asyncio.sleep(0.001)
        step = StepCount(num_committed=rest, num_drafted=4, num_accepted=rest - 1)
        yield commit_of(rest, stats.with_step(step), "length")


def commit_of(num_tokens: int, stats: AcceptanceStats, reason: FinishReason | None) -> Commit:
    return Commit(
        ids=(5,) * num_tokens,
        num_accepted=0,
        text="",
        logprobs=(),
        stats=stats,
        finish_reason=reason,
    )


class ShortRunner:
    is_alive = True
    is_ready = True

    async def submit(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        decode_text: DecodeText | None = None,
        *,
        request_id: str = "",
    ) -> Ticket:
        return ShortTicket(prompt_ids)


class App:
    """Submits prompts of the lengths in the body, "3,5", reads them, and answers their total."""

    def __init__(self, runner: LoggedRunner) -> None:
        self._runner = runner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await self._answer(request, (await request.body()).decode())
        await response(scope, receive, send)

    async def _answer(self, request: Request, body: str) -> Response:
        if request.url.path == "/broken":
            raise ValueError("a defect")
        lengths = [int(part) for part in body.split(",") if part]
        tickets = [await self._runner.submit((7,) * n, SamplingParams()) for n in lengths]
        if request.url.path == "/cancel":
            async for _ in tickets[0]:
                tickets[0].cancel()
                break
            return PlainTextResponse("canceled")
        # As in the server, reading goes on in a task of its own.
        readers = [asyncio.create_task(_read(ticket)) for ticket in tickets]
        total = sum([await reader for reader in readers])
        return PlainTextResponse(str(total), headers={"X-Request-Id": "mine"} if total else {})


async def _read(ticket: Ticket) -> int:
    return sum([len(commit.ids) async for commit in ticket])


Lines = list[dict[str, object]]


def exchanged(
    caplog: pytest.LogCaptureFixture, *calls: tuple[str, str], quotes: bool = False
) -> tuple[list[httpx.Response | BaseException], Lines]:
    """The responses to POSTs (path, body) made at the same time, and the lines they left."""
    app = AccessLog(App(LoggedRunner(ShortRunner())), quotes=quotes)
    transport = httpx.ASGITransport(app, client=("10.0.0.9", 1))

    async def all_of_them() -> list[httpx.Response | BaseException]:
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            posts: list[Coroutine[object, object, httpx.Response]] = [
                client.post(path, content=body) for path, body in calls
            ]
            return await asyncio.gather(*posts, return_exceptions=True)

    caplog.clear()
    with caplog.at_level("DEBUG", logger="blockdraft.access"):
        responses = asyncio.run(all_of_them())
    records = [record for record in caplog.records if record.name == "blockdraft.access"]
    lines = [dict(fields_of(record)) | {"level": record.levelname} for record in records]
    return responses, lines


def test_a_line_tells_what_the_engine_did(caplog: pytest.LogCaptureFixture) -> None:
    (response,), (line,) = exchanged(caplog, ("/v1/completions", "3,5"))
    assert isinstance(response, httpx.Response) and response.text == "8"
    assert line.pop("ms") > 0 and line.pop("first_ms") > 0  # pyright: ignore[reportOperatorIssue] # numbers
    assert line == {
        "id": "mine",
        "client": "10.0.0.9",
        "method": "POST",
        "path": "/v1/completions",
        "status": 200,
        "queue_ms": 250.0,
        "prompt_tokens": 8,
        "cached_tokens": 2,
        "tokens": 8,
        "tau": 3.0,  # two and four tokens in one verification each
        "end": "length",
        "level": "INFO",
    }


def test_requests_that_run_together_are_not_mixed_up(caplog: pytest.LogCaptureFixture) -> None:
    all_lengths = [[2 + (i * j) % 7 for j in range(1, 1 + i % 4)] for i in range(1, 40)]
    calls = [("/v1/completions", ",".join(map(str, lengths))) for lengths in all_lengths]
    _, lines = exchanged(caplog, *calls)
    counted = [line.get("tokens", 0) for line in lines]
    assert sorted(map(str, counted)) == sorted(str(sum(lengths)) for lengths in all_lengths)
    assert all(line.get("tokens") == line.get("prompt_tokens") for line in lines)


def test_every_response_has_an_id(caplog: pytest.LogCaptureFixture) -> None:
    (response,), (line,) = exchanged(caplog, ("/v1/models", ""))
    assert isinstance(response, httpx.Response)
    assert response.headers["x-request-id"] == line["id"] and str(line["id"]).startswith("req-")
    assert "tokens" not in line


def test_how_requests_end(caplog: pytest.LogCaptureFixture) -> None:
    _, (line,) = exchanged(caplog, ("/cancel", "4"))
    assert (line["end"], line["tokens"]) == ("canceled", 1)
    (failed,), (line,) = exchanged(caplog, ("/v1/completions", "0"))
    assert isinstance(failed, EngineFault)
    assert (line["end"], line["tokens"], line["status"]) == ("EngineFault", 0, 500)
    (failed,), (line,) = exchanged(caplog, ("/broken", ""))
    assert isinstance(failed, ValueError) and line["status"] == 500


def test_probes_are_quiet(caplog: pytest.LogCaptureFixture) -> None:
    _, (line,) = exchanged(caplog, ("/health", ""))
    assert line["level"] == "DEBUG"


def test_bodies_are_logged_when_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    _, (line,) = exchanged(caplog, ("/v1/completions", "3,5"))
    assert "request" not in line and "3,5" not in str(line)
    _, (line,) = exchanged(caplog, ("/v1/completions", "3,5"), quotes=True)
    assert (line["request"], line["response"]) == ("3,5", "8")
