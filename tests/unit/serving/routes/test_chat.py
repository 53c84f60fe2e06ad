"""/v1/chat/completions over scripted answers: messages, reasoning, logprobs, streams, the rest."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from starlette.testclient import TestClient

from blockdraft.serving.server_config import ServerConfig

Serve = Callable[..., TestClient]

ANSWER = "It is fine. h\u00e9 \U0001f600 done"
THOUGHT = f"<think>hm\u00fc</think>\n\n{ANSWER}"


def ask(text: str, **fields: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, **fields}


def post(client: TestClient, body: Mapping[str, object]) -> Any:
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def chunks_of(client: TestClient, body: Mapping[str, object]) -> list[Any]:
    response = client.post("/v1/chat/completions", json={**body, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [line[6:] for line in response.text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]


def refusal(client: TestClient, body: Mapping[str, object]) -> Any:
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 400, response.text
    return response.json()["error"]


@pytest.mark.parametrize("block_size", [1, 2, 7, 16])
def test_reasoning_and_content_come_apart(serve: Serve, block_size: int) -> None:
    """B13, B14: whole characters, nothing lost, whatever one step accepts."""
    client = serve({"weather": THOUGHT}, block_size=block_size)
    made = post(client, ask("weather"))
    message = made["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("hm\u00fc", ANSWER)
    assert message["reasoning_content"] == message["reasoning"]
    assert made["choices"][0]["finish_reason"] == "stop"
    assert made["choices"][0]["stop_reason"] is None
    usage = made["usage"]
    assert usage["completion_tokens"] == len(THOUGHT.encode()) + 1
    reasoning_tokens = usage["completion_tokens_details"]["reasoning_tokens"]
    assert reasoning_tokens == len("<think>hm\u00fc".encode())


@pytest.mark.parametrize("block_size", [1, 7])
def test_a_stream_adds_up_to_the_message(serve: Serve, block_size: int) -> None:
    chunks = chunks_of(
        serve({"weather": THOUGHT}, block_size=block_size),
        ask("weather", stream_options={"include_usage": True}),
    )
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == ANSWER
    assert "".join(delta.get("reasoning", "") for delta in deltas) == "hm\u00fc"
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]]
    assert reasons[-1] == "stop" and set(reasons[:-1]) == {None}
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == len(THOUGHT.encode()) + 1


def test_thinking_that_the_template_opened(serve: Serve) -> None:
    client = serve({"weather": "<think>\nso</think>fine"})
    body = ask("weather", chat_template_kwargs={"enable_thinking": True})
    message = post(client, body)["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("so", "fine")


def test_reasoning_may_be_left_out(serve: Serve) -> None:
    made = post(serve({"weather": THOUGHT}), ask("weather", include_reasoning=False))
    message = made["choices"][0]["message"]
    assert "reasoning" not in message and message["content"] == ANSWER
    assert made["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


def test_log_probabilities_have_bytes_and_add_up_to_the_text(serve: Serve) -> None:
    """S19: one entry for each token, accepted drafts too."""
    client = serve({"weather": ANSWER}, block_size=6)
    body = ask("weather", logprobs=True, top_logprobs=2)
    made = post(client, body)
    entries = made["choices"][0]["logprobs"]["content"]
    assert len(entries) == made["usage"]["completion_tokens"]
    raw = bytes(byte for entry in entries for byte in entry["bytes"])
    assert raw == (ANSWER + "<|im_end|>").encode()
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
    assert all(entry["top_logprobs"][0]["token"] == entry["token"] for entry in entries)
    assert all(entry["logprob"] == pytest.approx(-0.0830, abs=1e-3) for entry in entries)
    streamed = chunks_of(client, body)
    parts = [chunk["choices"][0]["logprobs"] for chunk in streamed]
    assert [entry for part in parts if part for entry in part["content"]] == entries
    as_ids = post(client, {**body, "return_tokens_as_token_ids": True})
    tokens = [entry["token"] for entry in as_ids["choices"][0]["logprobs"]["content"]]
    assert all(token.startswith("token_id:") for token in tokens)


def test_choices_of_one_request_each_open_with_their_role(serve: Serve) -> None:
    body = ask("weather", n=3, temperature=1, seed=1, max_tokens=6)
    client = serve({"weather": ANSWER})
    chunks = chunks_of(client, body)
    whole = post(client, body)
    for index in range(3):
        mine = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        assert mine[0]["delta"]["role"] == "assistant"
        text = "".join(c["delta"].get("content", "") for c in mine)
        assert text == whole["choices"][index]["message"]["content"]
    assert whole["usage"]["completion_tokens"] == 18


def test_the_prompt_is_the_rendered_conversation(serve: Serve) -> None:
    body = {
        "messages": [
            {"role": "developer", "content": "be brief"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "look", "arguments": '{"at": "sky"}'},
                    }
                ],
                "refusal": None,
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "blue"},
        ],
        "temperature": 0,
        "return_token_ids": True,
        "max_tokens": 2,
    }
    client = serve({"x": "y"})
    ids = post(client, body)["prompt_token_ids"]
    text = client.post("/detokenize", json={"tokens": ids}).json()["prompt"]
    assert text == (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>look {"at": "sky"}</tool_call><|im_end|>\n'
        "<|im_start|>tool\nblue<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_message_can_be_continued_and_echoed(serve: Serve) -> None:
    client = serve({"weather": "Sunny and warm"})
    messages = [
        {"role": "user", "content": "weather"},
        {"role": "assistant", "content": "Sunny"},
    ]
    body: dict[str, object] = {
        "messages": messages,
        "temperature": 0,
        "continue_final_message": True,
        "echo": True,
    }
    assert post(client, body)["choices"][0]["message"]["content"] == "Sunny and warm"
    assert refusal(client, {**body, "add_generation_prompt": True})["param"] == (
        "continue_final_message"
    )


def test_ids_prompts_and_the_request_id_are_returned(serve: Serve) -> None:
    client = serve({"weather": "ok"})
    body = ask("weather", return_token_ids=True, request_id="abc-1")
    response = client.post("/v1/chat/completions", json=body)
    assert response.headers["x-request-id"] == response.json()["id"] == "chatcmpl-abc-1"
    assert len(response.json()["choices"][0]["token_ids"]) == 3
    assert len(response.json()["prompt_token_ids"]) == response.json()["usage"]["prompt_tokens"]


def test_special_tokens_are_shown_on_request(serve: Serve) -> None:
    client = serve({"weather": "ok"})
    body = ask("weather", ignore_eos=True, max_tokens=4)
    hidden = post(client, body)["choices"][0]
    assert hidden["finish_reason"] == "length"
    assert hidden["message"]["content"].startswith("ok")
    assert "<|im_end|>" not in hidden["message"]["content"]
    shown = post(client, {**body, "skip_special_tokens": False})["choices"][0]
    assert shown["message"]["content"].startswith("ok<|im_end|>")


@pytest.mark.parametrize(
    "answer", ["a<|im_start|>b", "<think>x<|im_start|>y</think>a<|im_start|>b"]
)
def test_special_tokens_are_left_out_where_reasoning_is_parsed(serve: Serve, answer: str) -> None:
    """A parser has to see its own markers, not every special token of the vocabulary."""
    client = serve({"weather": answer})
    message = post(client, ask("weather"))["choices"][0]["message"]
    assert message["content"] == "ab" and message.get("reasoning") in (None, "xy")
    shown = post(client, ask("weather", skip_special_tokens=False))["choices"][0]["message"]
    assert shown["content"] == "a<|im_start|>b"
    streamed = client.post("/v1/chat/completions", json=ask("weather", stream=True)).text
    assert "im_start" not in streamed


def test_min_tokens_beyond_the_context_are_refused(serve: Serve) -> None:
    """The room left in the context cuts max_tokens, and would end the answer before its minimum."""
    client = serve({"weather": "ok"})
    long = "x" * 900
    refused = refusal(client, ask(long, max_tokens=300, min_tokens=200))
    assert refused["param"] == "min_tokens" and "leaves room for" in refused["message"]
    assert post(client, ask(long, max_tokens=300, min_tokens=20))["usage"]["completion_tokens"] > 20
    body = {"prompt": ["x", long], "max_tokens": 300, "min_tokens": 200}
    response = client.post("/v1/completions", json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "min_tokens")


def test_a_template_from_a_client_is_code_and_refused(serve: Serve) -> None:
    client = serve({"weather": "ok"})
    template = "{{ messages[0].content }}<|im_start|>assistant\n"
    assert refusal(client, ask("weather", chat_template=template))["param"] == "chat_template"
    trusting = serve({"weather": "ok"}, config=ServerConfig(trust_request_chat_template=True))
    body = ask("weather", chat_template="{{ messages[0].content }}{{ '<|im_start|>assistant\n' }}")
    assert post(trusting, body)["usage"]["prompt_tokens"] == len("weather") + 11
    unseen = refusal(trusting, {**body, "tools": [{"type": "function", "function": {"name": "f"}}]})
    assert unseen["param"] == "tools", "the template would not show them to the model"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": "other"}, "model"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 10**9}, "top_logprobs"),
        ({"n": 0}, "n"),
        ({"n": 65}, "n"),
        ({"n": 5_000_000}, "n"),
        ({"best_of": 2}, "best_of"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 10**12}, "max_tokens"),
        ({"max_tokens": 1025}, "max_tokens"),
        ({"max_tokens": 16.5}, "max_tokens"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_completion_tokens"),
        ({"min_tokens": 9, "max_tokens": 4}, "min_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": 1e-5}, "temperature"),
        ({"temperature": "0"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"stop": ""}, "stop"),
        ({"stop": ["x"] * 10_000}, "stop"),
        ({"stop": "x" * 1_000_000}, "stop"),
        ({"stop_token_ids": [259]}, "stop_token_ids"),
        ({"stop_token_ids": [-1]}, "stop_token_ids"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": [300]}, "allowed_token_ids"),
        ({"logit_bias": {"300": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"one": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"logit_bias": {"1": 1, "01": 2}}, "logit_bias"),
        ({"bad_words": [""]}, "bad_words"),
        ({"truncate_prompt_tokens": 1024}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"usage": True}}, "stream_options"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"documents": [{"text": "x"}]}, "documents"),
        ({"chat_template_kwargs": {"tokenize": True}}, "chat_template_kwargs"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"priority": 1}, "priority"),
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
        ({"cache_salt": "x"}, "cache_salt"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"guided_json": {}}, "guided_json"),
        ({"suffix": "x"}, "suffix"),
        ({"request_id": "a b"}, "request_id"),
        ({"blockdraft": {"speed": 2}}, "blockdraft"),
        ({"temprature": 0}, "temprature"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
    ],
)
def test_what_is_not_served_is_refused_by_name(
    serve: Serve, fields: dict[str, object], param: str
) -> None:
    """R01, R02, S15."""
    client = serve({"weather": "ok"})
    response = client.post("/v1/chat/completions", json={**ask("weather"), **fields})
    assert response.status_code == (404 if param == "model" else 400), response.text
    error = response.json()["error"]
    assert error["param"] == param and error["message"]
    assert post(client, ask("weather"))["choices"][0]["message"]["content"] == "ok"


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "me"},
        {"metadata": {"a": "b"}},
        {"store": False},
        {"service_tier": "auto"},
        {"safety_identifier": "x"},
        {"prompt_cache_key": "x"},
        {"priority": 0},
        {"suffix": None},
        {"prompt_logprobs": None},
        {"length_penalty": 1.0},
        {"use_beam_search": False},
        {"best_of": 1},
        {"top_k": -1},
        {"modalities": ["text"]},
        {"response_format": {"type": "text"}},
        {"temperature": None},
    ],
)
def test_harmless_and_neutral_values_pass(serve: Serve, fields: dict[str, object]) -> None:
    body = {**ask("weather", max_tokens=3, seed=1), **fields}
    assert post(serve({"weather": "ok"}), body)["object"] == "chat.completion"


def test_prompts_at_and_over_the_context(serve: Serve) -> None:
    """B10: room for three tokens gives three; none gives a clean refusal."""
    client = serve({"weather": "a" * 40})
    base = post(client, ask("weather", max_tokens=1))["usage"]["prompt_tokens"]
    text = "weather" + "x" * (1024 - 3 - base)
    made = post(client, ask(text))
    assert made["usage"]["completion_tokens"] == 3
    assert made["choices"][0]["finish_reason"] == "length"
    full = refusal(client, ask(text + "xxx"))
    assert (full["code"], full["param"]) == ("context_length_exceeded", "messages")
    cut = post(client, ask(text + "xxx", truncate_prompt_tokens=-1))
    assert cut["usage"]["completion_tokens"] == 1
