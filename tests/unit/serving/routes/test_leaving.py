"""Clients who leave, servers that are full or draining, and errors in the middle of an answer."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

import pytest
from fastapi import FastAPI
from starlette.types import Message

from blockdraft.decoding import AcceptanceStats, Commit, SamplingParams
from blockdraft.decoding.rows import RowProcessor
from blockdraft.decoding.text import DecodeText
from blockdraft.errors import Draining, EngineFault, Error, Overloaded, RequestError
from blockdraft.serving.answers import sse
from blockdraft.serving.app import create_app
from blockdraft.serving.server_config import ServerConfig
from blockdraft.serving.service import Grammars, Service, Ticket
from blockdraft.structured.spec import GrammarSpec
from blockdraft.testing.chat import END_ID, VOCAB_SIZE, chat_codec

CODEC = chat_codec()
COMMIT = Commit(
    ids=(40,),
    num_accepted=0,
    text="I",
    logprobs=(),
    stats=AcceptanceStats(requests=1, tokens=1),
    finish_reason=None,
)


class SlowTicket:
    """Gives `commits`, then raises `error`, or waits for ever."""

    def __init__(self, commits: Sequence[Commit], error: Error | None) -> None:
        self.num_cached = 0
        self.queue_seconds = 0.0
        self.canceled = asyncio.Event()
        self._commits = commits
        self._error = error

    def cancel(self) -> None:
        self.canceled.set()

    async def __aiter__(self) -> AsyncIterator[Commit]:
        for commit in self._commits:
            yield commit
            if commit.finish_reason is not None:
                return
        if self._error is not None:
            raise self._error
        await asyncio.Event().wait()


class SlowRunner:
    """Hands out slow tickets; `refusals` are raised first, one a submission."""

    is_alive = True
    is_ready = True

    def __init__(
        self,
        commits: Sequence[Commit] = (COMMIT,),
        error: Error | None = None,
        refusals: Sequence[Error | None] = (),
    ) -> None:
        self.tickets: list[SlowTicket] = []
        self._commits = commits
        self._error = error
        self._refusals = list(refusals)

    async def submit(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        decode_text: DecodeText | None = None,
        *,
        request_id: str = "",
    ) -> Ticket:
        refusal = self._refusals.pop(0) if self._refusals else None
        if refusal is not None:
            raise refusal
        self.tickets.append(SlowTicket(self._commits, self._error))
        return self.tickets[-1]


def app_of(
    runner: SlowRunner, config: ServerConfig | None = None, grammar: Grammars | None = None
) -> FastAPI:
    service = Service(
        model_name="tiny",
        runner=runner,
        codec=CODEC,
        vocab_size=VOCAB_SIZE,
        stop_ids=(END_ID,),
        max_model_len=512,
        grammar=grammar,
    )
    return create_app(service, config)


class Caller:
    """One request by hand, so that its client can leave at a chosen moment."""

    def __init__(self, app: FastAPI, body: dict[str, object]) -> None:
        self.sent: list[Message] = []
        self.got_body = asyncio.Event()
        self._app = app
        self._leaves = asyncio.Event()
        self._body: list[bytes] = [json.dumps(body).encode()]

    def leave(self) -> None:
        self._leaves.set()

    async def run(self) -> None:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "path": "/v1/chat/completions",
            "raw_path": b"/v1/chat/completions",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
        }
        await self._app(scope, self._receive, self._send)

    async def _receive(self) -> Message:
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": False}
        await self._leaves.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body":
            self.got_body.set()

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def text(self) -> str:
        return b"".join(bytes(message.get("body", b"")) for message in self.sent[1:]).decode()

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])


def run(test: Callable[[], object]) -> None:
    """Run an asynchronous test, at most some seconds."""

    async def bounded() -> None:
        result = test()
        assert asyncio.iscoroutine(result)
        await asyncio.wait_for(result, 10)

    asyncio.run(bounded())


def body(**fields: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": "hi"}], "n": 2, **fields}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("num_commits", [0, 1])
def test_a_client_who_leaves_frees_every_choice(stream: bool, num_commits: int) -> None:
    """R09: before the first token and after it."""

    async def scenario() -> None:
        runner = SlowRunner(commits=[COMMIT] * num_commits)
        caller = Caller(app_of(runner), body(stream=stream))
        task = asyncio.create_task(caller.run())
        if stream and num_commits:
            await caller.got_body.wait()
        else:
            while len(runner.tickets) < 2:
                await asyncio.sleep(0)
        caller.leave()
        await task
        assert [ticket.canceled.is_set() for ticket in runner.tickets] == [True, True]

    run(scenario)


@pytest.mark.parametrize(
    ("error", "code"), [(Overloaded("full"), "overloaded"), (Draining("stopping"), "draining")]
)
def test_a_full_or_draining_server_says_when_to_come_back(error: Error, code: str) -> None:
    async def scenario() -> None:
        runner = SlowRunner(refusals=[None, error])
        caller = Caller(app_of(runner, ServerConfig(retry_after_seconds=7)), body())
        await caller.run()
        assert caller.status == 503
        assert caller.headers[b"retry-after"] == b"7"
        assert json.loads(caller.text)["error"]["code"] == code
        # The choice that was taken is given back.
        assert [ticket.canceled.is_set() for ticket in runner.tickets] == [True]

    run(scenario)


@pytest.mark.parametrize(
    ("error", "status"), [(EngineFault("broke"), 500), (RequestError("no token is left"), 400)]
)
def test_an_error_in_the_middle_of_an_answer(error: Error, status: int) -> None:
    async def scenario() -> None:
        plain = Caller(app_of(SlowRunner(error=error)), body())
        await plain.run()
        assert plain.status == status
        assert json.loads(plain.text)["error"]["message"] == str(error)

        runner = SlowRunner(error=error)
        streamed = Caller(app_of(runner), body(stream=True))
        await streamed.run()
        events = [event[6:] for event in streamed.text.split("\n\n") if event]
        assert streamed.status == 200 and events[-1] == "[DONE]"
        assert json.loads(events[-2])["error"]["message"] == str(error)
        assert all(ticket.canceled.is_set() for ticket in runner.tickets)

    run(scenario)


def test_a_stream_that_takes_too_long_ends_with_an_error_event() -> None:
    async def scenario() -> None:
        runner = SlowRunner()
        caller = Caller(app_of(runner, ServerConfig(request_seconds=0.2)), body(stream=True))
        await caller.run()
        events = [event[6:] for event in caller.text.split("\n\n") if event]
        assert json.loads(events[-2])["error"]["code"] == "request_timeout"
        assert all(ticket.canceled.is_set() for ticket in runner.tickets)

    run(scenario)


def test_a_client_who_stops_reading_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """R09: its connection takes nothing any more, so the last event can't be sent either."""
    monkeypatch.setattr(sse, "LAST_WORDS_SECONDS", 0.1)

    class Stuck(Caller):
        async def _send(self, message: Message) -> None:
            await super()._send(message)
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()

    async def scenario() -> None:
        runner = SlowRunner()
        caller = Stuck(app_of(runner, ServerConfig(request_seconds=0.2)), body(stream=True))
        await caller.run()
        assert all(ticket.canceled.is_set() for ticket in runner.tickets)

    run(scenario)


def test_slow_grammars_hold_up_nobody_else() -> None:
    released = threading.Event()

    class SlowGrammars:
        def compile(self, spec: GrammarSpec) -> Callable[[], RowProcessor]:
            released.wait(8)
            raise RequestError("too slow")

    async def scenario() -> None:
        runner = SlowRunner(commits=(replace(COMMIT, finish_reason="stop"),))
        app = app_of(runner, grammar=SlowGrammars())
        constrained = body(structured_outputs={"choice": ["a"]})
        slow = [Caller(app, constrained) for _ in range(100)]
        waiting = [asyncio.create_task(caller.run()) for caller in slow]
        await asyncio.sleep(0.05)
        plain = Caller(app, body())
        try:
            await asyncio.wait_for(plain.run(), 4)
        finally:
            released.set()
        await asyncio.gather(*waiting)
        assert plain.status == 200
        assert {caller.status for caller in slow} == {400}

    run(scenario)


def test_unforeseen_errors_hide_their_text() -> None:
    """Only our own errors are written for clients."""

    class Broken(SlowRunner):
        async def submit(
            self,
            prompt_ids: Sequence[int],
            params: SamplingParams,
            decode_text: DecodeText | None = None,
            *,
            request_id: str = "",
        ) -> Ticket:
            raise ZeroDivisionError("a secret")

    async def scenario() -> None:
        caller = Caller(app_of(Broken()), body())
        with pytest.raises(ZeroDivisionError):  # the server logs it
            await caller.run()
        assert caller.status == 500 and "secret" not in caller.text
        assert json.loads(caller.text)["error"]["type"] == "server_error"

    run(scenario)


def test_a_body_that_never_ends_is_408() -> None:
    async def scenario() -> None:
        caller = Caller(app_of(SlowRunner(), ServerConfig(body_seconds=0.05)), body())
        caller._body = []  # pyright: ignore[reportPrivateUsage] - a client that sends nothing
        await caller.run()
        assert caller.status == 408

    run(scenario)


def test_cached_tokens_are_those_of_the_first_commit() -> None:
    async def scenario() -> None:
        done = replace(COMMIT, finish_reason="length")
        caller = Caller(app_of(SlowRunner(commits=[done])), body(n=1))
        await caller.run()
        usage = json.loads(caller.text)["usage"]
        assert usage["prompt_tokens_details"] == {"cached_tokens": 0}

    run(scenario)
