"""Whatever a client sends, the answer is a JSON error in OpenAI's shape, never a server error."""

import json
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from starlette.testclient import TestClient

from blockdraft.serving.protocol.chat import ChatRequest
from blockdraft.serving.protocol.completions import CompletionRequest
from blockdraft.serving.protocol.other_fields import REFUSED
from blockdraft.serving.protocol.reading import field_names
from blockdraft.serving.protocol.tokenizing import DetokenizeRequest, TokenizeText

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


MESSAGE = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
GOOD: dict[str, tuple[type[BaseModel], dict[str, object]]] = {
    "/v1/chat/completions": (
        ChatRequest,
        {
            "messages": [
                MESSAGE,
                {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
            ],
            "tools": [TOOL],
            "tool_choice": "auto",
            "stop": ["x"],
            "max_tokens": 2,
        },
    ),
    "/v1/completions": (
        CompletionRequest,
        {
            "prompt": ["a", "b"],
            "response_format": {"type": "text"},
            "logit_bias": {"3": 1.0},
            "stream_options": {"include_usage": True},
            "stream": True,
            "blockdraft": {"metrics": "summary"},
            "max_tokens": 2,
        },
    ),
    "/tokenize": (TokenizeText, {"prompt": "a", "return_token_strs": True}),
    "/detokenize": (DetokenizeRequest, {"tokens": [1, 2]}),
}


@st.composite
def nearly_right(draw: st.DrawFn) -> tuple[str, bytes]:
    """A good body with one thing in it, however deep, that its model does not take."""
    path = draw(st.sampled_from(sorted(GOOD)))
    model, good = GOOD[path]
    body = cast(dict[str, object], json.loads(json.dumps(good)))
    if draw(st.booleans()):
        body[draw(st.sampled_from(field_names(model)))] = draw(VALUES)
    else:
        spoil(draw, body)
    try:
        model.model_validate(body)
    except ValidationError:
        return path, json.dumps(body).encode()
    reject()


def spoil(draw: st.DrawFn, value: dict[str, object] | list[object]) -> None:
    """Replace, add or remove one thing somewhere in `value`."""
    places = list(value) if isinstance(value, dict) else list(range(len(value)))
    place = draw(st.sampled_from(places))
    holder = cast("dict[str | int, object]", value)
    inner = holder[place]
    if isinstance(inner, dict | list) and inner and draw(st.integers(0, 3)):
        spoil(draw, cast("dict[str, object] | list[object]", inner))
    elif isinstance(value, dict) and draw(st.booleans()):
        if draw(st.booleans()):
            del holder[place]
        else:
            holder[draw(st.text(min_size=1, max_size=8))] = draw(VALUES)
    else:
        holder[place] = draw(VALUES)


@pytest.mark.slow
@settings(
    max_examples=1000,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.filter_too_much,
        HealthCheck.too_slow,
    ],
)
@given(sent=st.tuples(st.sampled_from(PATHS), BODIES | NO_OBJECTS) | nearly_right())
def test_a_malformed_body_is_a_client_error(client: TestClient, sent: tuple[str, bytes]) -> None:
    path, body = sent
    response = client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert 400 <= response.status_code < 500, response.text
    error = cast(dict[str, object], response.json()["error"])
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str) and error["message"]
    assert error["type"] == "invalid_request_error" or response.status_code != 400


def test_what_malformed_bodies_are_made_from_is_good(client: TestClient) -> None:
    for path, (_, body) in GOOD.items():
        assert client.post(path, json=body).status_code == 200


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
