"""The `openai` package against the application, through a transport in this process."""

import json
from collections.abc import Callable, Iterator
from typing import Literal, cast

import httpx2
import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel, Field
from starlette.testclient import TestClient

from blockdraft.structured.compiler import GrammarCompiler
from blockdraft.testing.chat import END_ID, VOCAB_SIZE, chat_codec

Serve = Callable[..., TestClient]


class Wrapped(httpx2.BaseTransport):
    """Hands the requests of an SDK to the test client."""

    def __init__(self, client: TestClient) -> None:
        self._client = client

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = self._client.request(
            request.method,
            request.url.raw_path.decode(),
            content=request.read(),
            headers=dict(request.headers),
        )
        return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content)


ANSWER = "<think>look up</think>The sky is blue."
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "sky"}}\n</tool_call>'
TOOLS: list[ChatCompletionToolParam] = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Look at something.",
            "parameters": {
                "type": "object",
                "properties": {"at": {"type": "string"}},
                "required": ["at"],
            },
        },
    }
]
ASKED: list[ChatCompletionMessageParam] = [{"role": "user", "content": "what color"}]


class Place(BaseModel):
    """A place on a map."""

    name: str
    height: float | None = None


class Look(BaseModel):
    """Look at something."""

    at: Literal["sky", "sea"]
    times: int = Field(default=1, description="How often.")
    places: list[Place]


# Wrong in the choice and the first key of the place; each wrong text is as long as the right one.
STRICT = (
    '<think>look up</think>Let me see.<tool_call>\n{"name": "Look", "arguments": {"at": "skx", '
    '"times": 2, "places": [{"nome": "a", "height": null}]}}\n</tool_call>'
)


def sdk_of(client: TestClient) -> OpenAI:
    return OpenAI(
        api_key="none",
        base_url="http://testserver/v1",
        http_client=httpx2.Client(transport=Wrapped(client)),
        max_retries=0,
    )


@pytest.fixture
def sdk(serve: Serve) -> OpenAI:
    return sdk_of(serve({"what color": ANSWER, "call it": CALL}, block_size=6))


@pytest.fixture(scope="module")
def grammar() -> Iterator[GrammarCompiler]:
    pytest.importorskip("xgrammar")
    compiler = GrammarCompiler(chat_codec(), VOCAB_SIZE, [END_ID])
    yield compiler
    compiler.close()


def test_chat(sdk: OpenAI) -> None:
    made = sdk.chat.completions.create(model="tiny", messages=ASKED, temperature=0)
    assert made.choices[0].message.content == "The sky is blue."
    assert made.choices[0].finish_reason == "stop"
    assert made.usage is not None and made.usage.completion_tokens == len(ANSWER) + 1


def test_chat_stream(sdk: OpenAI) -> None:
    chunks = list(
        sdk.chat.completions.create(
            model="tiny",
            messages=ASKED,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == "The sky is blue."
    assert chunks[-1].usage is not None and not chunks[-1].choices


def test_logprobs(sdk: OpenAI) -> None:
    made = sdk.chat.completions.create(
        model="tiny", messages=ASKED, temperature=0, logprobs=True, top_logprobs=3, max_tokens=5
    )
    logprobs = made.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    assert "".join(entry.token for entry in logprobs.content) == "<thin"
    assert all(len(entry.top_logprobs) == 3 for entry in logprobs.content)


def test_completions(sdk: OpenAI) -> None:
    made = sdk.completions.create(model="tiny", prompt=["a", "b"], max_tokens=3, logprobs=1, n=2)
    assert [choice.index for choice in made.choices] == [0, 1, 2, 3]
    assert all(choice.logprobs is not None for choice in made.choices)
    pieces = list(sdk.completions.create(model="tiny", prompt="a", max_tokens=3, stream=True))
    assert pieces[-1].choices[0].finish_reason == "length"


def test_tools(sdk: OpenAI) -> None:
    asked: list[ChatCompletionMessageParam] = [{"role": "user", "content": "call it"}]
    made = sdk.chat.completions.create(model="tiny", messages=asked, tools=TOOLS, temperature=0)
    choice = made.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls is not None
    call = choice.message.tool_calls[0]
    assert call.type == "function" and call.function.name == "look"
    assert call.function.arguments.replace(" ", "") == '{"at":"sky"}'
    again: list[ChatCompletionMessageParam] = [
        *asked,
        cast(ChatCompletionMessageParam, choice.message.model_dump()),
        {"role": "tool", "tool_call_id": call.id, "content": "what color"},
    ]
    final = sdk.chat.completions.create(model="tiny", messages=again, tools=TOOLS, temperature=0)
    assert final.choices[0].message.content == "The sky is blue."


@pytest.mark.parametrize("block_size", [1, 2, 7, 16])
def test_pydantic_tools(serve: Serve, grammar: GrammarCompiler, block_size: int) -> None:
    """Strict functions, and tool_choice is left at "auto"."""
    answers = {"what color": ANSWER, "strictly": STRICT}
    sdk = sdk_of(serve(answers, block_size=block_size, grammar=grammar))
    tools = [openai.pydantic_function_tool(Look)]
    assert tools[0]["function"].get("strict") is True
    asked: list[ChatCompletionMessageParam] = [{"role": "user", "content": "strictly"}]
    parsed = sdk.chat.completions.parse(
        model="tiny", messages=asked, tools=tools, temperature=0, max_tokens=400
    )
    choice = parsed.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls is not None
    (made,) = choice.message.tool_calls
    wanted = Look(at="sky", times=2, places=[Place(name="a")])
    assert made.function.parsed_arguments == wanted
    assert choice.message.content == "Let me see."
    with sdk.chat.completions.stream(
        model="tiny", messages=asked, tools=tools, temperature=0, max_tokens=400
    ) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls is not None
    assert final.choices[0].message.tool_calls[0].function.arguments == made.function.arguments
    assert json.loads(made.function.arguments) == wanted.model_dump()
    free = sdk.chat.completions.create(model="tiny", messages=ASKED, tools=tools, temperature=0)
    assert free.choices[0].message.content == "The sky is blue."
    assert free.choices[0].message.tool_calls is None


def test_errors(sdk: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        sdk.chat.completions.create(model="other", messages=ASKED)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.chat.completions.create(model="tiny", messages=ASKED, extra_body={"temprature": 1})
    assert refused.value.param == "temprature"


def test_models(sdk: OpenAI) -> None:
    assert [model.id for model in sdk.models.list()] == ["tiny"]
    assert sdk.models.retrieve("tiny").owned_by == "blockdraft"
