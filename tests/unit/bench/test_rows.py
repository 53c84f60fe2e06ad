"""Rows of workloads: prompts, chats and logged requests, and errors that name line and field."""

import json
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.bench import ENDPOINT, IN_PROCESS, BenchPrompt, Chat, RequestSettings
from blockdraft.bench.fields import DEFAULTS, READ, SAMPLING, SHAPING, WITHOUT_EFFECT, FieldRules
from blockdraft.bench.rows import read_bench_row
from blockdraft.bench.wire import request_body, request_path
from blockdraft.bench.workload import Job
from blockdraft.errors import ConfigError

Row = dict[str, object]
USER = {"role": "user", "content": "hello"}
TOOL = {"type": "function", "function": {"name": "clock"}}


def read(row: Row, rules: FieldRules = ENDPOINT) -> BenchPrompt:
    return read_bench_row(row, 3, "log, line 3", rules).prompt


def ignored(row: Row, rules: FieldRules = ENDPOINT) -> tuple[str, ...]:
    return read_bench_row(row, 3, "log, line 3", rules).ignored


def sent(prompt: BenchPrompt, settings: RequestSettings | None = None) -> Row:
    return request_body(Job(5, prompt), settings or RequestSettings(), "tiny", "vllm")


def test_a_chat_is_sent_as_it_is() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        USER,
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "tool_call_id": "1", "content": "noon"},
    ]
    prompt = read({"messages": messages, "tools": [TOOL], "id": "a", "category": "tools"})
    assert isinstance(prompt.content, Chat) and prompt.needs_template
    body = sent(prompt, RequestSettings(template_args={"enable_thinking": False}))
    assert body["messages"] == messages and body["tools"] == [TOOL]
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert (prompt.id, prompt.category, prompt.where) == ("a", "tools", "log, line 3")


def test_one_question_is_a_plain_prompt() -> None:
    system = {"role": "system", "content": "Be brief."}
    prompt = read({"messages": [system, USER]})
    assert (prompt.content, prompt.system, prompt.id) == ("hello", "Be brief.", "line 3")
    assert sent(prompt)["messages"] == [system, USER]
    assert isinstance(read({"messages": [{**USER, "name": "Al"}]}).content, Chat)


def test_a_rows_own_settings_count_where_the_command_has_none() -> None:
    logged: Row = {
        "model": "their-model",
        "messages": [USER],
        "max_completion_tokens": 7,
        "temperature": 0.5,
        "seed": 11,
        "top_p": 0.9,
        "stop": ["\n"],
        "stream": True,
        "user": "someone",
        "n": 1,
        "logprobs": None,
        "response_format": {"type": "json_object"},
        "chat_template_kwargs": {"enable_thinking": True, "other": 1},
    }
    prompt = read(logged)
    body = sent(prompt)
    assert (body["max_tokens"], body["temperature"], body["seed"]) == (7, 0.5, 11)
    assert (body["top_p"], body["stop"]) == (0.9, ["\n"])
    assert body["response_format"] == {"type": "json_object"} and body["model"] == "tiny"
    assert body["chat_template_kwargs"] == {"enable_thinking": True, "other": 1}
    assert not {"user", "n", "logprobs", "max_completion_tokens"} & set(body)
    settings = RequestSettings(
        max_tokens=3,
        temperature=0.25,
        seed=40,
        template_args={"enable_thinking": False},
        explicit=("max_tokens", "temperature", "seed"),
    )
    body = sent(prompt, settings)
    assert (body["max_tokens"], body["temperature"], body["seed"]) == (3, 0.25, 45)
    assert body["chat_template_kwargs"] == {"enable_thinking": False, "other": 1}
    assert ignored(logged) == ()


def test_a_logged_completion_gets_no_template() -> None:
    job = Job(0, read({"model": "m", "prompt": "Once upon", "max_tokens": 4}))
    assert request_path(job, RequestSettings()) == "completions"
    assert sent(job.prompt)["prompt"] == "Once upon"
    assert read({"model": "m", "prompt": [[4, 5]]}).content == (4, 5)
    assert read({"model": "m", "prompt": ["one"]}).content == "one"
    assert read({"model": "m", "prompt": [4, 5]}).content == (4, 5)
    # A prompt that is no request is a question to a chat.
    plain = Job(0, read({"prompt": "Once upon", "max_tokens": 4}))
    assert request_path(plain, RequestSettings()) == "chat/completions"
    assert sent(plain.prompt)["max_tokens"] == 4


def test_a_batch_file_and_a_log_with_times() -> None:
    body: Row = {"model": "m", "messages": [USER], "max_tokens": 4}
    row: Row = {"custom_id": "r-1", "method": "POST", "url": "/v1/chat/completions", "body": body}
    assert (read(row).id, read(row).at_s, read(row).asks.max_tokens) == ("r-1", None, 4)
    assert ignored({**row, "response": {}}) == ("response",)
    assert read({"request": body, "created": 1700000000}).at_s == 1.7e9
    assert read({"request": body, "created": 1700000000123}).at_s == pytest.approx(1700000000.123)
    stamped = {**body, "timestamp": "2025-11-30T09:00:00.5Z"}
    assert read(stamped).at_s == read({**body, "timestamp": "2025-11-30T10:00:00.5+01:00"}).at_s
    assert read({"prompt": "x", "timestamp": 5}).at_s == 5


def test_unknown_fields() -> None:
    """A plain row's are told; a request's end the reading, unless they are passed over."""
    assert ignored({"prompt": "x", "answer": "4"}) == ("answer",)
    assert ignored({"messages": [USER], "source": "s"}) == ("source",)
    request: Row = {"model": "m", "messages": [USER], "magic": 3}
    with pytest.raises(
        ConfigError, match=r"log, line 3: the field 'magic' .*--ignore-fields magic"
    ):
        read(request)
    rules = ENDPOINT.ignoring(frozenset(("magic", "temperature")))
    assert ignored({**request, "temperature": 1}, rules) == ("magic", "temperature")
    assert read({**request, "temperature": 1}, rules).asks.temperature is None


def test_what_only_an_endpoint_can_do_is_refused_in_process() -> None:
    shaped: Row = {"model": "m", "messages": [USER], "response_format": {"type": "json_object"}}
    with pytest.raises(ConfigError, match="line 3: the field 'response_format'"):
        read(shaped, IN_PROCESS)
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    assert isinstance(read({"messages": [picture]}).content, Chat)
    with pytest.raises(ConfigError, match="message 1 has a part of type 'image_url'"):
        read({"messages": [picture]}, IN_PROCESS)
    assert read({"messages": [USER], "top_k": 3}, IN_PROCESS).asks.fields == {"top_k": 3}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": []}, '"messages" must be a list of at least one'),
        ({"messages": ["hi"]}, "message 1 is not an object"),
        ({"messages": [{"role": "boss", "content": "x"}]}, "message 1 has the role 'boss'"),
        ({"messages": [{"role": "user"}]}, "message 1 has no content"),
        ({"messages": [{"role": "user", "content": " "}]}, "message 1 is blank"),
        ({"messages": [{"role": "user", "content": 3}]}, "neither text nor a list of parts"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "a part that is not an object"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "not valid Unicode"),
        ({"messages": [USER, {"role": "assistant", "content": "x"}]}, "the last message is of"),
        ({"messages": [{**USER, "name": "\udfff"}]}, "not valid Unicode"),
        ({"messages": [USER], "top_p": float("nan")}, "a number is not finite"),
        ({"messages": [USER], "prompt": "x"}, "has messages and prompt"),
        ({"messages": [USER], "system": "x"}, "put it in as the first message"),
        ({"messages": [USER], "tools": {"a": 1}}, '"tools" must be a list'),
        ({"messages": [USER], "max_tokens": 0}, "'max_tokens' must be a whole number"),
        ({"messages": [USER], "max_tokens": True}, "'max_tokens' must be a whole number"),
        ({"messages": [USER], "temperature": "hot"}, "'temperature' must be a number"),
        ({"messages": [USER], "temperature": -1}, "'temperature' must be 0 or more"),
        ({"messages": [USER], "seed": 1.5}, "'seed' must be a whole number"),
        ({"messages": [USER], "ignore_eos": 1}, "must be true or false"),
        ({"messages": [USER], "chat_template_kwargs": [1]}, "must be an object"),
        ({"messages": [USER], "category": 4}, '"category" must be a string'),
        ({"messages": [USER], "timestamp": "noon"}, "'timestamp' is no time"),
        ({"messages": [USER], "n": 2}, "the field 'n' with 2 can't be measured"),
        ({"prompt": "x", "echo": True}, "the field 'echo' with True can't be measured"),
        ({"prompt": "x", "tools": [TOOL]}, "'tools' is for a chat template"),
        ({"model": "m", "prompt": ["a", "b"]}, "must be one text or one list of token ids"),
        ({"model": "m", "prompt": " "}, '"prompt" is blank'),
        ({"model": "m", "input": "a"}, "has no prompt"),
        ({"body": {"model": "m"}}, "has no prompt"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(row: Row, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(row)
    assert str(caught.value).startswith("log, line 3") and message in str(caught.value)
    assert "\n" not in str(caught.value)


CHARACTERS = st.characters()  # lone surrogates too
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(CHARACTERS, max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
NAMES = st.sampled_from(sorted(READ | SAMPLING | WITHOUT_EFFECT | set(DEFAULTS) | {"body", "x"}))


@given(st.dictionaries(NAMES, JSON, max_size=5), st.booleans())
def test_any_row_is_read_or_refused_in_one_line(row: Row, is_chat: bool) -> None:
    whole = {**row, "messages": [USER]} if is_chat else row
    try:
        prompt = read(whole)
    except ConfigError as error:
        assert str(error).startswith("log, line 3")
    else:
        # As httpx writes it.
        json.dumps(sent(prompt), ensure_ascii=False, allow_nan=False).encode("utf-8")


@given(st.dictionaries(st.sampled_from(sorted(SAMPLING | SHAPING)), st.integers() | st.text()))
def test_no_field_of_a_request_is_lost(fields: Row) -> None:
    body = sent(read({"model": "m", "messages": [USER], **fields}))
    told = {name: value for name, value in fields.items() if value is not None}
    assert {name: body[name] for name in told} == told
    assert cast("list[Row]", body["messages"]) == [USER]
