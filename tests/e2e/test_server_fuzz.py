"""The OpenAPI document against the server that it describes: requests made from it, well and badly.

Nothing may fail or hang, and every answer must be as the document says, with no field more.
"""

import json
import socket
import threading
from collections.abc import Iterator
from copy import deepcopy
from typing import cast

import pytest
from hypothesis import HealthCheck, settings

pytest.importorskip("fastapi")
pytest.importorskip("xgrammar")
pytest.importorskip("schemathesis")

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
MAX_CONTEXT = 160
TIMEOUT_SECONDS = 20.0
EXAMPLES = 40
CHUNKS = {"/v1/chat/completions": "ChatCompletionChunk", "/v1/completions": "CompletionChunk"}

Document = dict[str, object]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """A scripted model in a small context, so that whatever is asked for ends soon."""
    codec = chat_codec()
    target = ChatTarget(codec, {}, max_context_len=MAX_CONTEXT)
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
def api(document: Document) -> schemathesis.BaseSchema:
    config = schemathesis.Config.from_dict(
        {
            "seed": 1,
            "generation": {"database": "none", "deterministic": True},
            # A request may fit its schema and still ask for what can't be: two constraints at once.
            "checks": {"positive_data_acceptance": {"enabled": False}},
        }
    )
    return schemathesis.openapi.from_dict(document, config=config)


requests = schemathesis.pytest.from_fixture("api")


@requests.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_as_the_document_says(
    case: schemathesis.Case, url: str, document: Document
) -> None:
    response = case.call_and_validate(base_url=url, timeout=TIMEOUT_SECONDS)
    kind = response.headers.get("content-type", [""])[0]
    if kind.startswith("text/event-stream"):
        check_stream(response.text, CHUNKS[case.operation.path], document)


def check_stream(text: str, chunk: str, document: Document) -> None:
    """Every event is a chunk; after the last one comes [DONE]. An error would be no chunk."""
    events = [line.removeprefix("data: ") for line in text.split("\n") if line]
    assert events[-1] == "[DONE]"
    schema = {"$ref": f"#/components/schemas/{chunk}", "components": document["components"]}
    for event in events[:-1]:
        jsonschema_rs.validate(schema, json.loads(event))
