"""Answers from a server: a real one over HTTP in this process, with all kinds of trouble."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import pytest

from blockdraft.data.answer_tally import Tally
from blockdraft.data.answers import AnswerTable
from blockdraft.data.conversation_files import read_conversations
from blockdraft.data.endpoint import EndpointConfig, EndpointGenerator
from blockdraft.data.regenerate import Regeneration, Report
from blockdraft.data.regenerate_config import RegenerateConfig
from blockdraft.data.rendering import Renderer, RenderingConfig
from blockdraft.errors import ConfigError, EngineFault
from blockdraft.testing import ByteTextCodec
from blockdraft.testing.codec import END_ID

Body = dict[str, object]


@dataclass(slots=True)
class Trouble:
    """A reply that is not an answer; `drops`: the connection is cut instead."""

    status: int = 200
    text: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    drops: bool = False


Behavior = Callable[[Body, int], Trouble | Body]
"""The reply to a request of which it is the n-th with the same body."""


@dataclass(slots=True)
class FakeServer:
    """What the server got, and how it behaves."""

    url: str
    behavior: Behavior
    bodies: list[Body] = field(default_factory=list[Body])
    paths: list[str] = field(default_factory=list[str])
    keys: set[str | None] = field(default_factory=set[str | None])
    num_running: int = 0
    most_running: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reply(self, path: str, body: Body, key: str | None) -> Trouble | Body:
        with self.lock:
            times = self.bodies.count(body)
            self.bodies.append(body)
            self.paths.append(path)
            self.keys.add(key)
            self.num_running += 1
            self.most_running = max(self.most_running, self.num_running)
        try:
            return self.behavior(body, times)
        finally:
            with self.lock:
                self.num_running -= 1


def last_text(body: Body) -> str:
    messages = body.get("messages")
    if messages is None:
        return str(body["prompt"])
    return cast("list[dict[str, str]]", messages)[-1]["content"]


def completion(text: str, reason: str = "stop", **more: object) -> Body:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "text": text, "finish_reason": reason, **more}
    return {"choices": [choice], "usage": {"completion_tokens": len(text.encode()) + 1}}


def echo(body: Body, times: int) -> Trouble | Body:
    return completion(f"You said {last_text(body)}.")


def make_handler(server: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send(200, json.dumps({"data": [{"id": "tiny"}, {"id": "other"}]}))

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body = cast(Body, json.loads(self.rfile.read(length)))
            reply = server.reply(self.path, body, self.headers["Authorization"])
            if not isinstance(reply, Trouble):
                self.send(200, json.dumps(reply))
            elif reply.drops:
                self.close_connection = True
            else:
                self.send(reply.status, reply.text, reply.headers)

        def send(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
            raw = text.encode()
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer("", echo)
    http = ThreadingHTTPServer(("127.0.0.1", 0), make_handler(fake))
    fake.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield fake
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    rows = [{"id": f"p{i}", "turns": [f"word {i}"]} for i in range(8)]
    rows.append({"id": "talk", "turns": ["hello", "again"]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def ignore(tally: Tally) -> None:
    pass


def make_config(server: FakeServer) -> EndpointConfig:
    return EndpointConfig(
        url=server.url, model="tiny", concurrency=4, retries=3, timeout=5.0, first_delay=0.001
    )


def run(
    folder: Path,
    prompts: Path,
    endpoint: EndpointConfig,
    config: RegenerateConfig | None = None,
    rendering: RenderingConfig | None = None,
) -> Report:
    renderer = Renderer(ByteTextCodec(), rendering or RenderingConfig(), [END_ID])
    source = EndpointGenerator(endpoint, renderer)
    source.check()
    made = Regeneration(
        folder,
        read_conversations([prompts]),
        renderer,
        config or RegenerateConfig(max_new_tokens=40),
        source,
        vocab_size=ByteTextCodec.vocab_size,
    )
    return made.run(ignore)


def test_answers_are_tokenized_here(server: FakeServer, tmp_path: Path, prompts: Path) -> None:
    report = run(tmp_path / "out", prompts, make_config(server))
    assert report.finished and report.counts["answers"] == 10
    table = AnswerTable.open(tmp_path / "out")
    codec = ByteTextCodec()
    first, last = table[0], table[9]
    assert list(first.prompt_ids) == codec.chat([{"role": "user", "content": "word 0"}])
    assert first.answer_ids == (*b"You said word 0.", END_ID)
    assert last.key == ("talk", 1)
    assert list(last.prompt_ids) == codec.chat(
        [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "You said hello."},
            {"role": "user", "content": "again"},
        ]
    )
    assert server.most_running <= 4
    assert set(server.paths) == {"/v1/chat/completions"}
    notes = cast("dict[str, object]", table.manifest["notes"])
    assert notes["answers_tokenized_here"] == 10 and notes["answers_of_other_length"] == 0


def test_what_is_asked(server: FakeServer, tmp_path: Path, prompts: Path) -> None:
    config = RegenerateConfig(max_new_tokens=40, temperature=0.5, top_p=0.9, seed=4)
    endpoint = replace(make_config(server), api_key="secret", returns_token_ids=True)
    rendering = RenderingConfig(system="Short.", template_args={"enable_thinking": False})
    run(tmp_path / "out", prompts, endpoint, config, rendering)
    body = next(body for body in server.bodies if last_text(body) == "word 3")
    assert body == {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": "Short."},
            {"role": "user", "content": "word 3"},
        ],
        "chat_template_kwargs": {"enable_thinking": False},
        "max_tokens": 40,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": config.sampling("p3", 0).seed,
        "return_token_ids": True,
    }
    assert server.keys == {"Bearer secret"}
    assert "secret" not in repr(endpoint)
    assert "secret" not in (tmp_path / "out" / "manifest.json").read_text()


def test_ids_of_the_server_are_taken_as_they_are(
    server: FakeServer, tmp_path: Path, prompts: Path
) -> None:
    def with_ids(body: Body, times: int) -> Body:
        return {**completion("Yes", token_ids=[89, 300 - 44, END_ID]), "prompt_token_ids": [7, 8]}

    server.behavior = with_ids
    run(tmp_path / "out", prompts, replace(make_config(server), returns_token_ids=True))
    answer = AnswerTable.open(tmp_path / "out")[0]
    assert answer.prompt_ids == (7, 8) and answer.answer_ids == (89, 256, END_ID)


def test_raw_prompts(server: FakeServer, tmp_path: Path) -> None:
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"id":"a","turns":["Once upon"]}\n')
    run(tmp_path / "out", prompts, make_config(server), rendering=RenderingConfig(raw=True))
    assert server.paths == ["/v1/completions"]
    assert server.bodies[0]["prompt"] == "Once upon"
    assert AnswerTable.open(tmp_path / "out")[0].answer_ids[-1] == END_ID


def troubled(*troubles: Trouble) -> Behavior:
    """Each request meets all of the troubles before it is answered."""

    def behave(body: Body, times: int) -> Trouble | Body:
        return troubles[times] if times < len(troubles) else echo(body, times)

    return behave


@pytest.mark.parametrize(
    "trouble",
    [
        Trouble(status=429, headers={"Retry-After": "0.002"}),
        Trouble(status=503, text="loading"),
        Trouble(status=500, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
        Trouble(text="<html>"),
        Trouble(text='{"choices":[]}'),
        Trouble(text='{"choices":[{"finish_reason":"stop","message":{"content":5}}]}'),
        Trouble(drops=True),
    ],
)
def test_what_may_go_well_later_is_tried_again(
    server: FakeServer, tmp_path: Path, prompts: Path, trouble: Trouble
) -> None:
    server.behavior = troubled(trouble, trouble)
    report = run(tmp_path / "out", prompts, make_config(server))
    assert report.finished and report.counts["answers"] == 10
    assert len(server.bodies) == 30


@pytest.mark.parametrize(
    ("trouble", "words", "tries"),
    [
        (Trouble(status=400, text='{"error": "too long"}'), "status 400.*too long", 1),
        (Trouble(text=json.dumps(completion("x", "tool_calls"))), "'tool_calls'", 1),
        (Trouble(status=500, text="broken"), r"status 500: broken \(4 tries\)", 4),
    ],
)
def test_one_request_that_fails_for_good(
    server: FakeServer, tmp_path: Path, prompts: Path, trouble: Trouble, words: str, tries: int
) -> None:
    """The run goes on, the conversation is named, and the same command tries it again."""

    def behave(body: Body, times: int) -> Trouble | Body:
        return trouble if last_text(body) == "hello" else echo(body, times)

    server.behavior = behave
    report = run(tmp_path / "out", prompts, make_config(server))
    (problem,) = report.shown
    assert report.num_failed == 1 and "'talk', turn 0" in problem.where
    assert re.search(words, problem.reason)
    assert len(server.bodies) == 8 + tries
    server.behavior = echo
    assert run(tmp_path / "out", prompts, make_config(server)).finished
    assert len(server.bodies) == 8 + tries + 2
    assert len(AnswerTable.open(tmp_path / "out")) == 10


def test_reasoning_that_the_server_cuts_out(
    server: FakeServer, tmp_path: Path, prompts: Path
) -> None:
    def behave(body: Body, times: int) -> Body:
        message = {"content": "4", "reasoning_content": "two and two"}
        return {"choices": [{"message": message, "finish_reason": "stop"}]}

    server.behavior = behave
    report = run(tmp_path / "out", prompts, make_config(server))
    assert "reasoning parser" in report.shown[0].reason


def test_a_server_that_goes_away(server: FakeServer, tmp_path: Path) -> None:
    prompts = tmp_path / "p.jsonl"
    # So many that 50 fail in a row even where a late answer comes between.
    rows = [{"id": f"p{i}", "turns": [f"word {i}"]} for i in range(200)]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def dies(body: Body, times: int) -> Trouble | Body:
        return echo(body, times) if len(server.bodies) < 10 else Trouble(drops=True)

    server.behavior = dies
    endpoint = replace(make_config(server), retries=0)
    with pytest.raises(EngineFault, match="50 requests in a row failed"):
        run(tmp_path / "out", prompts, endpoint)
    server.behavior = echo
    report = run(tmp_path / "out", prompts, endpoint)
    assert report.finished and report.counts["resumed"] == 9
    assert report.counts["answers"] == 200


def test_mistakes_are_told_before_anything_is_asked(server: FakeServer) -> None:
    renderer = Renderer(ByteTextCodec(), RenderingConfig(), [END_ID])
    wrong = replace(make_config(server), model="tniy")
    with pytest.raises(ConfigError, match="serves no 'tniy', only tiny, other"):
        EndpointGenerator(wrong, renderer).check()
    closed = replace(make_config(server), url="http://127.0.0.1:9/v1")
    with pytest.raises(ConfigError, match="does not answer"):
        EndpointGenerator(closed, renderer).check()
    good = make_config(server)
    with pytest.raises(ConfigError, match="no http address"):
        replace(good, url="host:8000")
    with pytest.raises(ConfigError, match="--model"):
        replace(good, model="")
    with pytest.raises(ConfigError, match="--concurrency"):
        replace(good, concurrency=0)
    with pytest.raises(ConfigError, match="--retries"):
        replace(good, retries=-1)
