"""The OpenAPI document against the server that it describes: requests made from it, well and badly.

Nothing may fail or hang, and every answer must be as the document says, with no field more.
"""

import importlib
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Protocol, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

pytest.importorskip("fastapi")
pytest.importorskip("xgrammar")
pytest.importorskip("schemathesis")

import httpx
import jsonschema_rs
import schemathesis
import uvicorn

from blockdraft.engine import EngineConfig, build_engine, parse_width
from blockdraft.parsing import choose_reasoning_format, choose_tool_format
from blockdraft.serving.app import create_app
from blockdraft.serving.protocol.response_schemas import RESPONSE_SCHEMAS
from blockdraft.serving.runner import EngineRunner
from blockdraft.serving.server_config import ServerConfig
from blockdraft.serving.service import Service
from blockdraft.structured.compiler import GrammarCompiler
from blockdraft.testing import OracleDrafter
from blockdraft.testing.chat import VOCAB_SIZE, ChatTarget, chat_codec

pytestmark = pytest.mark.slow

BLOCK_SIZE = 5
MAX_CONTEXT = 320
TIMEOUT_SECONDS = 20.0
EXAMPLES = 40
CHUNKS = {"/v1/chat/completions": "ChatCompletionChunk", "/v1/completions": "CompletionChunk"}

ENDPOINTS = (
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{name}"),
    ("GET", "/health"),
    ("GET", "/ping"),
    ("GET", "/ready"),
    ("GET", "/version"),
    ("GET", "/metrics"),
)
REQUIRED = {"messages", "prompt", "tokens"}
CHECKS = importlib.import_module("schemathesis.specs.openapi.checks")
NOT_ASKED = [cast(object, CHECKS.positive_data_acceptance)]
"""A request may fit its schema and still ask for what can't be, like two constraints at once."""

ANSWERS = {
    "weather": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>',
    "ponder": "well</think>\n\nyes",
}
TOOL: dict[str, object] = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object"}},
}
EXTRAS: dict[str, object] = {
    "temperature": 0,
    "return_token_ids": True,
    "return_meta_info": True,
    "return_spec_tokens_details": True,
    "blockdraft": {"metrics": "detailed", "step_details": True},
}
STREAM: dict[str, object] = {
    "stream": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
}


def said(text: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}]}


FULL: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("/v1/chat/completions", "logprobs", {**said("hi"), "logprobs": True, "top_logprobs": 2}),
    ("/v1/chat/completions", "tool_calls", {**said("weather"), "tools": [TOOL]}),
    (
        "/v1/chat/completions",
        "reasoning",
        {**said("ponder"), "chat_template_kwargs": {"enable_thinking": True}},
    ),
    ("/v1/completions", "top_logprobs", {"prompt": ["a", "b"], "n": 2, "logprobs": 2}),
)
"""Endpoint, a field that the answer must have, and the body."""

Document = dict[str, object]


class FuzzResponse(Protocol):
    """The part of schemathesis' response that is used here, as are the parts below."""

    status_code: int
    text: str
    headers: Mapping[str, list[str]]


class Case(Protocol):
    """A request made from the document."""

    body: object

    def call_and_validate(
        self, base_url: str, *, timeout: float, excluded_checks: Sequence[object]
    ) -> FuzzResponse: ...


class Operation(Protocol):
    @property
    def body(self) -> object: ...

    def as_strategy(
        self, *, generation_mode: schemathesis.GenerationMode = ...
    ) -> SearchStrategy[Case]: ...


class Api(Protocol):
    def __getitem__(self, path: str) -> Mapping[str, Operation]: ...


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """A scripted model in a small context, so that whatever is asked for ends soon."""
    codec = chat_codec()
    target = ChatTarget(codec, ANSWERS, max_context_len=MAX_CONTEXT)
    config = EngineConfig(slots=4, kv_memory=1 << 26, width=parse_width(f"fixed:{BLOCK_SIZE}"))
    drafter = OracleDrafter(target, BLOCK_SIZE)
    built = build_engine(target, drafter, config, decode_text=codec.decode)
    runner = EngineRunner(built.engine, max_waiting=64)
    grammar = GrammarCompiler(codec, VOCAB_SIZE, target.spec.stop_ids)
    runner.start()
    yield Service(
        model_name="tiny",
        runner=runner,
        codec=codec,
        vocab_size=VOCAB_SIZE,
        stop_ids=target.spec.stop_ids,
        max_model_len=built.capacity.max_context,
        num_spec_tokens=BLOCK_SIZE - 1,
        drafter_name="oracle",
        grammar=grammar,
        tool_format=choose_tool_format(codec.chat_template),
        reasoning_format=choose_reasoning_format(codec.chat_template),
        metrics=lambda: b"tokens 1\n",
    )
    runner.stop()
    grammar.close()


@pytest.fixture(scope="module")
def document(service: Service) -> Document:
    """The OpenAPI document, its responses closed: a field that it does not list is a mistake."""
    app = create_app(service)
    closed = deepcopy(cast(Document, app.openapi()))
    components = cast(dict[str, Document], closed["components"])
    for name in RESPONSE_SCHEMAS:
        _close(components["schemas"][name])
    return closed


def _close(schema: object) -> None:
    if isinstance(schema, list):
        for each in cast(list[object], schema):
            _close(each)
    elif isinstance(schema, dict):
        fields = cast(Document, schema)
        if "properties" in fields:
            fields["additionalProperties"] = False
        for value in list(fields.values()):
            _close(value)


@pytest.fixture(scope="module")
def url(service: Service) -> Iterator[str]:
    """The same server on a real socket."""
    listener = socket.create_server(("127.0.0.1", 0))
    app = create_app(service, ServerConfig(max_choices=4, request_seconds=TIMEOUT_SECONDS / 2))
    server = uvicorn.Server(uvicorn.Config(app, ws="none", lifespan="off", log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.force_exit = True
    server.should_exit = True
    thread.join(timeout=20)
    listener.close()


@pytest.fixture(scope="module")
def api(document: Document) -> Api:
    return cast(Api, schemathesis.openapi.from_dict(document))


def test_the_document_lists_every_endpoint(document: Document) -> None:
    paths = cast(dict[str, Document], document["paths"])
    listed = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    assert sorted(listed) == sorted(ENDPOINTS)


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
def test_every_answer_is_as_the_document_says(
    method: str, path: str, api: Api, url: str, document: Document
) -> None:
    """A few fields at a time, since with all of them at once something always excludes another."""
    operation = api[path][method]
    statuses = Counter[int]()

    @limited(EXAMPLES if operation.body else 3)
    @given(
        case=operation.as_strategy(),
        kept=st.sets(st.integers(0, 50), max_size=6),
        is_simple=st.booleans(),
    )
    def run(case: Case, kept: set[int], is_simple: bool) -> None:
        if isinstance(case.body, dict):
            case.body = thinned(cast(Document, case.body), kept)
            if is_simple and "messages" in case.body:
                # Few generated conversations are ones that a template takes.
                case.body["messages"] = [{"role": "user", "content": "hello"}]
        statuses[send(case, path, url, document)] += 1

    run()
    assert 200 in statuses or "{" in path, statuses


@pytest.mark.parametrize("path", [path for method, path in ENDPOINTS if method == "POST"])
def test_what_the_document_excludes_is_refused(
    path: str, api: Api, url: str, document: Document
) -> None:
    @limited(EXAMPLES)
    @given(case=api[path]["POST"].as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE))
    def run(case: Case) -> None:
        assert 400 <= send(case, path, url, document) < 500

    run()


@pytest.mark.parametrize(("path", "shown", "body"), FULL)
def test_answers_with_all_extras_are_as_the_document_says(
    path: str, shown: str, body: dict[str, object], url: str, document: Document
) -> None:
    """What fuzzing finds too seldom: tool calls, reasoning, log-probabilities, all figures."""
    answer = httpx.post(url + path, json={**EXTRAS, **body}, timeout=TIMEOUT_SECONDS)
    assert answer.status_code == 200 and f'"{shown}":' in answer.text
    whole = CHUNKS[path].removesuffix("Chunk")
    conforms(cast(object, answer.json()), whole, document)
    for field in ("metrics", "meta_info", "sglext", "usage"):
        assert field in cast(Document, answer.json())
    streamed = httpx.post(url + path, json={**EXTRAS, **STREAM, **body}, timeout=TIMEOUT_SECONDS)
    assert streamed.status_code == 200 and f'"{shown}":' in streamed.text
    check_stream(streamed.text, CHUNKS[path], document)


def limited(max_examples: int) -> settings:
    return settings(
        max_examples=max_examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


def thinned(body: Document, kept: set[int]) -> Document:
    """What every body must have, some of the rest, and a model that is served."""
    names = [name for name in body if name not in REQUIRED]
    chosen = REQUIRED | {name for place, name in enumerate(names) if place in kept}
    made = {name: value for name, value in body.items() if name in chosen}
    return {**made, "model": "tiny"} if "model" in made else made


def send(case: Case, path: str, url: str, document: Document) -> int:
    """The status of the answer, which conforms."""
    response = case.call_and_validate(
        base_url=url, timeout=TIMEOUT_SECONDS, excluded_checks=NOT_ASKED
    )
    kind = response.headers.get("content-type", [""])[0]
    if kind.startswith("text/event-stream"):
        check_stream(response.text, CHUNKS[path], document)
    return response.status_code


def check_stream(text: str, chunk: str, document: Document) -> None:
    """Every event is a chunk; after the last one comes [DONE]. An error would be no chunk."""
    events = [line.removeprefix("data: ") for line in text.split("\n") if line]
    assert events[-1] == "[DONE]"
    for event in events[:-1]:
        conforms(cast(object, json.loads(event)), chunk, document)


def conforms(value: object, name: str, document: Document) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    jsonschema_rs.validate(schema, value)
