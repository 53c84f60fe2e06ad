"""Whatever a client sends, the answer is a JSON error in OpenAI's shape, never a server error."""

import json
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from blockdraft.serving.protocol.chat import ChatRequest
from blockdraft.serving.protocol.completions import CompletionRequest
from blockdraft.serving.protocol.other_fields import REFUSED
from blockdraft.serving.protocol.reading import field_names

Serve = Callable[..., TestClient]

PATHS = ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize")
NAMES = sorted({*field_names(ChatRequest), *field_names(CompletionRequest), *REFUSED, "tokens"})

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
PROMPTS = ("null", "true", "0.5", "[]", "[[]]", "{}", '[1, "a"]', "[null]")
MESSAGES = ("null", "false", "3", '"hi"', "[]", "[1]", "[{}]", '[{"role": "user"}]')
TOKENS = ('"abc"', "7", "[-1]", "[1.5]", "null", "[[1]]")


@st.composite
def malformed(draw: st.DrawFn) -> bytes:
    """An object whose prompt is wrong for every endpoint, whatever else it holds."""
    others = draw(
        st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=10), VALUES, max_size=5)
    )
    texts = {"messages": MESSAGES, "prompt": PROMPTS, "tokens": TOKENS}
    wrong = {
        name: cast(object, json.loads(draw(st.sampled_from(values))))
        for name, values in texts.items()
    }
    # On its own each is unknown to some endpoint, so that what is wrong with the others is seen.
    kept = draw(st.sampled_from(("messages", "prompt", "tokens", None)))
    return json.dumps({**others, **(wrong if kept is None else {kept: wrong[kept]})}).encode()


BODIES = malformed()
NO_OBJECTS = st.one_of(
    st.binary(max_size=60),
    VALUES.filter(lambda value: not isinstance(value, dict)).map(lambda v: json.dumps(v).encode()),
    BODIES.map(lambda body: body[: len(body) // 2]),
)


@pytest.mark.slow
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(path=st.sampled_from(PATHS), body=BODIES | NO_OBJECTS)
def test_a_malformed_body_is_a_client_error(client: TestClient, path: str, body: bytes) -> None:
    response = client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert 400 <= response.status_code < 500, response.text
    error = cast(dict[str, object], response.json()["error"])
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str) and error["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[1]",
        b'{"prompt": NaN}',
        b'{"prompt": "x", "temperature": Infinity}',
        b'{"prompt": "x", "temperature": 1e999}',
        b'{"prompt": "x", "seed": ' + b"9" * 5000 + b"}",
        b'{"prompt": ' + b"[" * 100_000,
        b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"prompt": "\\ud800"}',
        b'{"prompt": "x", "user": "\\udfff"}',
        b'{"\\ud800": 1}',
        b"\xff\xfe{}",
        b'{"prompt": "x", "prompt": "\xff"}',
    ],
)
def test_bodies_that_trip_parsers(client: TestClient, body: bytes) -> None:
    response = client.post("/v1/completions", content=body)
    assert response.status_code == 400, response.text
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


@pytest.fixture
def client(serve: Serve) -> TestClient:
    return serve({})
