"""The `openai` package, unmodified, against `blockdraft serve` as a process with the real model.

Answers are those of the offline engine, in float32. What each field means is tested on small models
in the serving package; other clients need environments of their own (docs/clients.md).
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("openai")

import openai
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionFunctionToolParam,
    ChatCompletionMessageParam,
    ChatCompletionNamedToolChoiceParam,
    ChatCompletionToolChoiceOptionParam,
)
from pydantic import BaseModel, ConfigDict

from blockdraft import Completion, SamplingParams
from blockdraft.engine import EngineConfig
from blockdraft.llm import LLM
from blockdraft.native import TargetOptions
from blockdraft.serving.answers.settings import derived_seed

pytestmark = pytest.mark.acceptance

KEY = "sesame-1234"
ARGUMENTS = [
    *("--dtype", "float32", "--threads", "1", "--width", "fixed:6", "--slots", "6"),
    *("--max-context", "1024", "--kv-memory", "500MB", "--port", "0"),
    # The model's own template has no tools, so the tests bring one, which the server must trust.
    *("--tool-parser", "hermes", "--trust-request-chat-template"),
]
TEMPLATE = (
    "{% if tools %}<|im_start|>system\nFunctions: {{ tools | tojson }}\nTo call one, answer "
    '<tool_call>\n{"name": NAME, "arguments": OBJECT}\n</tool_call><|im_end|>\n{% endif %}'
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>"
    "{% endfor %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
ROBE = (
    "A robe takes 2 bolts of blue fiber and half that much white fiber.  "
    "How many bolts in total does it take?"
)
ASKED: list[ChatCompletionMessageParam] = [{"role": "user", "content": ROBE}]
SHOW_IDS = {"return_token_ids": True}
WEATHER: ChatCompletionFunctionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 6}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def asked_before(city: str) -> list[ChatCompletionMessageParam]:
    """A question about a city that was answered by way of a call."""
    arguments = json.dumps({"city": city})
    return [
        {"role": "user", "content": f"How is the weather in {city}?"},
        {
            "role": "assistant",
            "tool_calls": [
                {
                    "id": f"call_{city}",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": arguments},
                }
            ],
        },
        {"role": "tool", "tool_call_id": f"call_{city}", "content": "sunny"},
        {"role": "assistant", "content": f"It is sunny in {city}."},
    ]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for all tests. Nobody waits for it here, so that it loads beside `offline`."""
    log = tmp_path_factory.mktemp("server") / "log"
    command = [sys.executable, "-m", "blockdraft.cli.main", "serve", *ARGUMENTS]
    environment = {**os.environ, "BLOCKDRAFT_API_KEY": KEY}
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, env=environment
        )
    yield str(log)
    process.terminate()
    assert process.wait(60) == 0, log.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def offline(url: str) -> LLM:
    assert url  # started already
    options = TargetOptions(dtype="float32")
    config = EngineConfig(slots=4, max_context=1024)
    return LLM("smollm2", width="fixed:6", options=options, config=config)


@pytest.fixture(scope="module")
def sdk(url: str, offline: LLM) -> Iterator[OpenAI]:
    assert offline.drafter.block_size >= 6
    until = time.monotonic() + 120
    while not (found := [x for x in Path(url).read_text().splitlines() if " serves on " in x]):
        assert time.monotonic() < until, Path(url).read_text()
        time.sleep(0.05)
    address = found[0].rpartition(" ")[2]
    with OpenAI(api_key=KEY, base_url=f"{address}/v1", timeout=60, max_retries=0) as client:
        yield client


def alone(offline: LLM, prompt_ids: Sequence[int], params: SamplingParams) -> Completion:
    (made,) = offline.generate([tuple(prompt_ids)], params, progress=False)
    assert isinstance(made, Completion)
    return made


def extra(of: BaseModel, name: str) -> list[int]:
    return cast(list[int], (of.model_extra or {})[name])


def figures(of: BaseModel) -> dict[str, float]:
    metrics = cast(dict[str, dict[str, float]], (of.model_extra or {})["metrics"])
    return metrics["speculative_decoding"]


def test_chat_gives_the_offline_engines_answers(sdk: OpenAI, offline: LLM) -> None:
    """Greedy and seeded, two choices; with log-probabilities and figures of the drafts."""
    greedy = sdk.chat.completions.create(
        model="smollm2",
        messages=ASKED,
        temperature=0,
        max_completion_tokens=14,
        logprobs=True,
        top_logprobs=2,
        extra_body={**SHOW_IDS, "blockdraft": {"metrics": "summary"}, "return_meta_info": True},
    )
    prompt_ids = extra(greedy, "prompt_token_ids")
    expected = alone(offline, prompt_ids, SamplingParams(max_new_tokens=14, logprobs=2))
    choice = greedy.choices[0]
    assert extra(choice, "token_ids") == list(expected.token_ids)
    assert choice.message.content == expected.text and choice.finish_reason == "length"
    assert choice.logprobs is not None and choice.logprobs.content is not None
    for entry, known in zip(choice.logprobs.content, expected.logprobs, strict=True):
        assert entry.logprob == pytest.approx(known.logprob, abs=1e-3)
        likeliest = [top.logprob for top in entry.top_logprobs]
        assert likeliest == pytest.approx([value for _, value in known.top], abs=1e-3)
    told, stats = figures(greedy), expected.stats
    assert told["num_spec_steps"] == stats.drafted_steps and stats.drafted_steps < 13
    assert told["num_accepted_draft_tokens"] == sum(stats.accepted) > 0
    assert greedy.usage is not None and greedy.usage.completion_tokens == 14

    seeded = sdk.chat.completions.create(
        model="smollm2",
        messages=ASKED,
        temperature=0.8,
        top_p=0.9,
        presence_penalty=0.2,
        seed=11,
        n=2,
        max_tokens=6,
        extra_body={**SHOW_IDS, "top_k": 50, "min_p": 0.01},
    )
    for index, choice in enumerate(seeded.choices):
        params = SamplingParams(
            max_new_tokens=6,
            temperature=0.8,
            top_p=0.9,
            top_k=50,
            min_p=0.01,
            presence_penalty=0.2,
            seed=derived_seed(11, index),
        )
        assert extra(choice, "token_ids") == list(alone(offline, prompt_ids, params).token_ids)


def test_a_stream_says_what_a_plain_answer_says(sdk: OpenAI) -> None:
    plain = sdk.chat.completions.create(
        model="smollm2", messages=ASKED, temperature=0, max_tokens=12
    )
    chunks = list(
        sdk.chat.completions.create(
            model="smollm2",
            messages=ASKED,
            temperature=0,
            max_tokens=12,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"blockdraft": {"metrics": "detailed"}},
        )
    )
    *pieces, last = chunks
    assert pieces[0].choices[0].delta.role == "assistant"
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    assert text == plain.choices[0].message.content
    assert pieces[-1].choices[0].finish_reason == "length"
    assert not last.choices and last.usage is not None and last.usage.completion_tokens == 12
    # Several tokens a chunk, since several were accepted at once.
    assert len(pieces) <= 1 + 12 - figures(last)["num_accepted_draft_tokens"] < 12
    # The helper of the SDK takes no answer that a limit ended.
    with sdk.chat.completions.stream(
        model="smollm2", messages=ASKED, temperature=0, max_tokens=12, stop=","
    ) as helper:
        made = helper.get_final_completion()
    assert made.choices[0].message.content == text.partition(",")[0] != text


def test_completions_take_text_lists_and_ids(sdk: OpenAI, offline: LLM) -> None:
    texts = ["The capital of France is", "Water boils at"]
    made = sdk.completions.create(
        model="smollm2", prompt=texts, temperature=0, max_tokens=6, logprobs=1, extra_body=SHOW_IDS
    )
    for choice in made.choices:
        prompt_ids = extra(choice, "prompt_token_ids")
        expected = alone(offline, prompt_ids, SamplingParams(max_new_tokens=6, logprobs=1))
        assert choice.text == expected.text and choice.logprobs is not None
        known = [entry.logprob for entry in expected.logprobs]
        assert choice.logprobs.token_logprobs == pytest.approx(known, abs=1e-3)
    ids = extra(made.choices[0], "prompt_token_ids")
    again = sdk.completions.create(
        model="smollm2", prompt=ids, temperature=0, max_tokens=6, stream=True, echo=True
    )
    assert "".join(chunk.choices[0].text for chunk in again) == texts[0] + made.choices[0].text


def test_forced_tools_come_through_a_grammar(sdk: OpenAI) -> None:
    named: ChatCompletionNamedToolChoiceParam = {
        "type": "function",
        "function": {"name": "get_weather"},
    }
    choices: list[ChatCompletionToolChoiceOptionParam] = ["required", named]
    for tool_choice in choices:
        made = sdk.chat.completions.create(
            model="smollm2",
            messages=[{"role": "user", "content": "How is the weather in Rome?"}],
            tools=[WEATHER],
            tool_choice=tool_choice,
            parallel_tool_calls=False,
            temperature=0,
            max_tokens=60,
            extra_body={"chat_template": TEMPLATE},
        )
        assert called_city(made)
        assert made.choices[0].message.content is None


def called_city(made: ChatCompletion) -> str:
    choice = made.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls is not None, made
    (call,) = choice.message.tool_calls
    assert call.type == "function" and call.function.name == "get_weather" and call.id
    return cast(dict[str, str], json.loads(call.function.arguments))["city"]


def test_free_tools_are_read_from_the_text(sdk: OpenAI, offline: LLM) -> None:
    """The model follows an example; streamed pieces add up to the call of the plain answer."""
    messages = [*asked_before("Paris"), *asked_before("Rome")[:1]]
    body: dict[str, object] = {"chat_template": TEMPLATE}
    made = sdk.chat.completions.create(
        model="smollm2",
        messages=messages,
        tools=[WEATHER],
        temperature=0,
        max_tokens=40,
        extra_body={**body, **SHOW_IDS},
    )
    assert called_city(made) == "Rome"
    expected = alone(offline, extra(made, "prompt_token_ids"), SamplingParams(max_new_tokens=40))
    assert extra(made.choices[0], "token_ids") == list(expected.token_ids)
    with sdk.chat.completions.stream(
        model="smollm2",
        messages=messages,
        tools=[WEATHER],
        temperature=0,
        max_tokens=40,
        extra_body=body,
    ) as helper:
        assert called_city(helper.get_final_completion()) == "Rome"


class City(BaseModel):
    model_config = ConfigDict(extra="forbid")

    city: str
    is_capital: bool


def test_json_schema_and_the_parsing_of_the_sdk(sdk: OpenAI) -> None:
    """`parse` with a model of pydantic, for the answer and for strict tools."""
    asked: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": "Is Paris a capital? Answer in JSON."}
    ]
    parsed = sdk.chat.completions.parse(
        model="smollm2", messages=asked, response_format=City, temperature=0, max_tokens=60
    )
    assert parsed.choices[0].finish_reason == "stop"
    assert isinstance(parsed.choices[0].message.parsed, City)
    called = sdk.chat.completions.parse(
        model="smollm2",
        messages=asked,
        tools=[openai.pydantic_function_tool(City)],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=0,
        max_tokens=80,
        extra_body={"chat_template": TEMPLATE},
    )
    (call,) = called.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, City)
    with pytest.raises(openai.LengthFinishReasonError):
        sdk.chat.completions.parse(
            model="smollm2", messages=asked, response_format=City, temperature=0, max_tokens=2
        )


def test_strict_tools_hold_where_the_model_chooses(sdk: OpenAI) -> None:
    """The example has no `is_capital`, so the model would leave it out; it may also just talk."""
    tools = [openai.pydantic_function_tool(City, name="get_weather")]
    messages = [*asked_before("Paris"), *asked_before("Rome")[:1]]
    for parallel in (True, False):
        made = sdk.chat.completions.parse(
            model="smollm2",
            messages=messages,
            tools=tools,
            parallel_tool_calls=parallel,
            temperature=0,
            max_tokens=60,
            extra_body={"chat_template": TEMPLATE},
        )
        (call,) = made.choices[0].message.tool_calls or []
        arguments = call.function.parsed_arguments
        assert isinstance(arguments, City) and arguments.city == "Rome"
    said = [
        sdk.chat.completions.create(
            model="smollm2",
            messages=[{"role": "user", "content": "Say hello."}],
            tools=tools if strict else [WEATHER],
            temperature=0,
            max_tokens=30,
            extra_body={"chat_template": "{% set tools = none %}" + TEMPLATE},
        )
        for strict in (True, False)
    ]
    assert said[0].choices[0].message.content == said[1].choices[0].message.content


def test_errors_are_the_sdks_own(sdk: OpenAI) -> None:
    create = sdk.chat.completions.create
    with pytest.raises(openai.NotFoundError) as missing:
        create(model="gpt-4o", messages=ASKED)
    assert missing.value.code == "model_not_found" and "smollm2" in missing.value.message
    with pytest.raises(openai.BadRequestError) as refused:
        create(model="smollm2", messages=ASKED, temperature=-1)
    assert refused.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as long:
        sdk.completions.create(model="smollm2", prompt=[1] * 1024)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.AuthenticationError):
        sdk.with_options(api_key="guessed").models.list()
    assert [model.id for model in sdk.models.list()] == ["smollm2"]


def test_what_a_client_no_longer_waits_for_is_not_computed(sdk: OpenAI) -> None:
    """A time-out of the client, and a stream that it closes."""
    create = sdk.with_options(timeout=0.5).chat.completions.create
    with pytest.raises(openai.APITimeoutError):
        create(model="smollm2", messages=ASKED, max_tokens=900, extra_body={"ignore_eos": True})
    stream = sdk.completions.create(
        model="smollm2", prompt="One, two,", max_tokens=900, stream=True
    )
    assert next(stream).choices
    stream.close()
    until = time.monotonic() + 30
    while (running := num_running(sdk)) and time.monotonic() < until:
        time.sleep(0.1)
    assert running == 0


def num_running(sdk: OpenAI) -> float:
    address = str(sdk.base_url).removesuffix("v1/") + "metrics"
    text = sdk.get(address, cast_to=str)
    (line,) = (x for x in text.splitlines() if x.startswith("vllm:num_requests_running{"))
    return float(line.rpartition(" ")[2])


def test_the_asynchronous_client_asks_for_several_at_once(sdk: OpenAI, offline: LLM) -> None:
    """Answers beside others are those alone."""

    async def ask(client: AsyncOpenAI, seed: int) -> tuple[list[int], list[int]]:
        made: list[int] = []
        prompt_ids: list[int] = []
        stream = await client.chat.completions.create(
            model="smollm2",
            messages=ASKED,
            temperature=1,
            top_p=1,
            seed=seed,
            max_tokens=6,
            stream=True,
            extra_body={**SHOW_IDS, "top_k": -1},
        )
        async for chunk in stream:
            told = (chunk.model_extra or {}).get("prompt_token_ids")
            prompt_ids = cast(list[int] | None, told) or prompt_ids
            for choice in chunk.choices:
                made += cast(list[int], (choice.model_extra or {}).get("token_ids") or [])
        return prompt_ids, made

    async def ask_all() -> list[tuple[list[int], list[int]]]:
        async with AsyncOpenAI(api_key=KEY, base_url=sdk.base_url, timeout=60) as client:
            return await asyncio.gather(*(ask(client, seed) for seed in range(3)))

    for seed, (prompt_ids, ids) in enumerate(asyncio.run(ask_all())):
        params = SamplingParams(max_new_tokens=6, temperature=1.0, seed=seed)
        assert ids == list(alone(offline, prompt_ids, params).token_ids)
