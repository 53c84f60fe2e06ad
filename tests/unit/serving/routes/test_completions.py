"""/v1/completions against the reference decoder, token for token, and its own parameters."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from starlette.testclient import TestClient

from blockdraft.decoding import Completion, SamplingParams
from blockdraft.serving.answers.settings import derived_seed
from blockdraft.testing.chat import chat_codec

Serve = Callable[..., TestClient]
Reference = Callable[[str, SamplingParams], Completion]

PROMPT = "Once upon a time"


def post(client: TestClient, body: Mapping[str, object]) -> Any:
    response = client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def chunks_of(client: TestClient, body: Mapping[str, object]) -> list[Any]:
    response = client.post("/v1/completions", json={**body, "stream": True})
    assert response.status_code == 200, response.text
    events = [line[6:] for line in response.text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]


@pytest.mark.parametrize("block_size", [1, 5])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_tokens_are_those_of_the_reference(
    serve: Serve, reference: Reference, block_size: int, temperature: float
) -> None:
    client = serve(block_size=block_size)
    extra: dict[str, object] = {
        "top_k": 20,
        "min_p": 0.01,
        "top_p": 0.95,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.2,
        "logit_bias": {"65": 3, "66": -2.5},
    }
    body = {"prompt": PROMPT, "max_tokens": 24, "temperature": temperature, "seed": 11, **extra}
    made = post(client, {**body, "return_token_ids": True, "logprobs": 3})
    expected = reference(
        PROMPT,
        SamplingParams(
            max_new_tokens=24,
            temperature=temperature,
            seed=11,
            logprobs=3,
            top_k=20,
            min_p=0.01,
            top_p=0.95,
            repetition_penalty=1.1,
            presence_penalty=0.3,
            frequency_penalty=0.2,
            logit_bias={65: 3.0, 66: -2.5},
        ),
    )
    choice = made["choices"][0]
    assert tuple(choice["token_ids"]) == expected.token_ids
    assert choice["text"] == expected.text
    assert choice["finish_reason"] == expected.finish_reason
    logprobs = choice["logprobs"]["token_logprobs"]
    assert logprobs == pytest.approx([entry.logprob for entry in expected.logprobs], abs=1e-4)
    assert made["usage"]["completion_tokens"] == len(expected.token_ids)


def test_choices_use_seeds_derived_from_the_requests_own(
    serve: Serve, reference: Reference
) -> None:
    made = post(serve(), {"prompt": PROMPT, "max_tokens": 8, "temperature": 1, "seed": 5, "n": 3})
    texts = [choice["text"] for choice in made["choices"]]
    params = [
        SamplingParams(max_new_tokens=8, temperature=1.0, seed=derived_seed(5, i)) for i in range(3)
    ]
    assert texts == [reference(PROMPT, each).text for each in params]
    assert [choice["index"] for choice in made["choices"]] == [0, 1, 2]
    assert len(set(texts)) == 3


@pytest.mark.parametrize("kind", ["text", "texts", "ids", "lists"])
def test_every_shape_of_a_prompt(serve: Serve, reference: Reference, kind: str) -> None:
    codec = chat_codec()
    other = "And then"
    ids, other_ids = codec.encode(PROMPT), codec.encode(other)
    prompt = {"text": PROMPT, "texts": [PROMPT, other], "ids": ids, "lists": [ids, other_ids]}[kind]
    made = post(serve(), {"prompt": prompt, "max_tokens": 6, "temperature": 0})
    texts = [choice["text"] for choice in made["choices"]]
    params = SamplingParams(max_new_tokens=6)
    expected = [reference(each, params).text for each in (PROMPT, other)]
    assert texts == expected[: len(texts)] and len(texts) == (
        2 if kind in ("texts", "lists") else 1
    )
    assert made["usage"]["prompt_tokens"] == len(ids) + (len(other_ids) if len(texts) == 2 else 0)


@pytest.mark.parametrize("n", [1, 2])
def test_a_stream_adds_up_to_the_plain_answer(serve: Serve, n: int) -> None:
    client = serve()
    body: dict[str, object] = {
        "prompt": [PROMPT, "h\u00e9"],
        "max_tokens": 8,
        "temperature": 1,
        "seed": 3,
        "n": n,
        "logprobs": 2,
        "return_token_ids": True,
        "stream_options": {"include_usage": True},
    }
    chunks = chunks_of(client, body)
    del body["stream_options"]
    plain = post(client, body)
    for whole in plain["choices"]:
        mine = [c for chunk in chunks for c in chunk["choices"] if c["index"] == whole["index"]]
        assert "".join(c["text"] for c in mine) == whole["text"]
        assert [i for c in mine for i in c["token_ids"]] == whole["token_ids"]
        assert mine[0]["prompt_token_ids"] == whole["prompt_token_ids"]
        assert mine[-1]["finish_reason"] == whole["finish_reason"]
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            streamed = [entry for c in mine for entry in c["logprobs"][name]]
            assert streamed == whole["logprobs"][name]
    assert chunks[-1]["choices"] == []
    usage = chunks[-1]["usage"]
    assert usage["completion_tokens"] == plain["usage"]["completion_tokens"]
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


def test_continuous_usage_grows_to_the_last(serve: Serve) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = chunks_of(
        serve(), {"prompt": PROMPT, "temperature": 0, "stream_options": options, "max_tokens": 9}
    )
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts) and counts[-1] == counts[-2] == 9


@pytest.mark.parametrize("max_tokens", [1, 2, 7, 16, 17])
def test_usage_counts_the_ids_returned(serve: Serve, max_tokens: int) -> None:
    """B05: never more tokens than asked for, whatever the block."""
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": max_tokens, "return_token_ids": True}
    made = post(serve(block_size=8), body)
    assert len(made["choices"][0]["token_ids"]) == made["usage"]["completion_tokens"] == max_tokens


def test_stop_strings_cut_text_and_are_reported(serve: Serve, reference: Reference) -> None:
    """B03, B04: the earliest in the text wins; ids, logprobs and usage agree."""
    client = serve()
    text = reference(PROMPT, SamplingParams(max_new_tokens=40)).text
    late, early = text[12:14], text[6:8]
    assert text.find(early) < text.find(late)
    body = {
        "prompt": PROMPT,
        "temperature": 0,
        "max_tokens": 40,
        "stop": [late, early],
        "logprobs": 0,
        "return_token_ids": True,
    }
    made = post(client, body)
    choice = made["choices"][0]
    assert choice["text"] == text[: text.find(early)]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", early)
    num_tokens = len(choice["token_ids"])
    assert num_tokens == len(choice["logprobs"]["tokens"]) == made["usage"]["completion_tokens"]
    kept = post(client, {**body, "include_stop_str_in_output": True})["choices"][0]
    assert kept["text"] == choice["text"] + early


def test_stop_token_ids_are_reported_by_number(serve: Serve, reference: Reference) -> None:
    ids = reference(PROMPT, SamplingParams(max_new_tokens=12)).token_ids
    stop_id = ids[7]
    body = {"prompt": PROMPT, "temperature": 0, "stop_token_ids": [stop_id], "max_tokens": 12}
    choice = post(serve(), {**body, "return_token_ids": True})["choices"][0]
    assert choice["token_ids"] == list(ids[: ids.index(stop_id) + 1])
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop_id)


def test_echo_puts_the_prompt_first(serve: Serve) -> None:
    body: dict[str, object] = {"prompt": PROMPT, "temperature": 0, "max_tokens": 4}
    client = serve()
    text = post(client, body)["choices"][0]["text"]
    assert post(client, {**body, "echo": True})["choices"][0]["text"] == PROMPT + text
    streamed = chunks_of(client, {**body, "echo": True})
    assert "".join(c["text"] for chunk in streamed for c in chunk["choices"]) == PROMPT + text


def test_truncated_prompts_keep_their_end(serve: Serve, reference: Reference) -> None:
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 4, "truncate_prompt_tokens": 6}
    made = post(serve(), body)
    assert made["usage"]["prompt_tokens"] == 6
    expected = reference(PROMPT[-6:], SamplingParams(max_new_tokens=4))
    assert made["choices"][0]["text"] == expected.text


def test_speculation_can_be_switched_off_and_narrowed(serve: Serve) -> None:
    client = serve(block_size=6)
    body: dict[str, object] = {"prompt": PROMPT, "temperature": 0, "max_tokens": 13}
    answers: list[Any] = []
    for own in ({}, {"speculation": "off"}, {"max_draft_tokens": 2}):
        own_options = {**own, "metrics": "detailed", "step_details": True}
        answers.append(post(client, {**body, "blockdraft": own_options}))
    full, plain, narrow = (made["metrics"]["speculative_decoding"] for made in answers)
    assert full["acceptance_histogram"][-1] > 0 and len(full["acceptance_histogram"]) == 6
    assert plain["num_spec_steps"] == 0 and plain["mean_acceptance_length"] == 1.0
    assert max(narrow["per_step_drafted"]) == 2
    assert len({made["choices"][0]["text"] for made in answers}) == 1
    details = answers[1]["choices"][0]["blockdraft"]
    assert len(details["tokens"]) == 13 and not any(t["drafted"] for t in details["tokens"])
    assert details["elapsed_ms"] > 0


def test_one_step_of_counts_adds_up_in_every_shape(serve: Serve) -> None:
    body = {
        "prompt": PROMPT,
        "temperature": 0,
        "max_tokens": 16,
        "return_meta_info": True,
        "return_spec_tokens_details": True,
        "blockdraft": {"metrics": "detailed"},
    }
    made = post(serve(num_right=2), body)
    figures, meta = made["metrics"]["speculative_decoding"], made["meta_info"]
    histogram = figures["acceptance_histogram"]
    assert sum(histogram) == figures["num_spec_steps"] == len(figures["per_step_accepted"])
    accepted = sum(k * count for k, count in enumerate(histogram))
    assert accepted == figures["num_accepted_draft_tokens"] == sum(figures["per_step_accepted"])
    assert figures["mean_acceptance_length"] == 1 + accepted / figures["num_spec_steps"]
    assert meta["spec_num_correct_drafts"] == accepted
    assert meta["spec_verify_ct"] >= figures["num_spec_steps"]
    assert meta["completion_tokens"] == 16
    assert made["sglext"]["spec_tokens_details"]["spec_verify_ct"] == meta["spec_verify_ct"]
