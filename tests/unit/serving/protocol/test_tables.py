"""docs/http-api.md against the code that it documents."""

from pathlib import Path

import pytest

from blockdraft.serving.protocol.chat import ChatRequest
from blockdraft.serving.protocol.completions import CompletionRequest
from blockdraft.serving.protocol.other_fields import IGNORED, REFUSED
from blockdraft.serving.protocol.reading import field_names
from blockdraft.serving.protocol.tables import parameter_tables

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "http-api.md"

SHARED_EXTRAS = """
    model max_tokens temperature top_p n stream stream_options stop presence_penalty
    frequency_penalty logit_bias seed top_k min_p repetition_penalty min_tokens ignore_eos
    stop_token_ids include_stop_str_in_output skip_special_tokens truncate_prompt_tokens
    prompt_logprobs allowed_token_ids bad_words add_special_tokens response_format
    structured_outputs return_token_ids return_tokens_as_token_ids priority request_id cache_salt
    logprobs echo user
"""
EXPECTED = {
    ChatRequest: f"""{SHARED_EXTRAS}
    messages max_completion_tokens top_logprobs tools tool_choice parallel_tool_calls
    reasoning_effort chat_template chat_template_kwargs add_generation_prompt
    continue_final_message documents include_reasoning""",
    CompletionRequest: f"{SHARED_EXTRAS} prompt best_of suffix",
}
"""What clients of other servers send; each has to be known here, one way or another."""


def test_the_document_has_the_tables_of_the_code() -> None:
    assert parameter_tables() in DOCUMENT.read_text(encoding="utf-8"), (
        "paste the output of blockdraft.serving.protocol.tables.parameter_tables() into "
        "docs/http-api.md"
    )


@pytest.mark.parametrize("model", EXPECTED)
def test_every_expected_parameter_is_honored_refused_or_ignored(
    model: type[ChatRequest] | type[CompletionRequest],
) -> None:
    known = {*field_names(model), *REFUSED, *IGNORED}
    assert not [name for name in EXPECTED[model].split() if name not in known]


def test_no_parameter_is_in_two_lists() -> None:
    honored = {*field_names(ChatRequest), *field_names(CompletionRequest)}
    assert not honored & (REFUSED.keys() | IGNORED.keys())
    assert not REFUSED.keys() & IGNORED.keys()
    assert len(IGNORED) == 6, "docs/http-api.md says how many are ignored"


def test_every_parameter_is_described() -> None:
    assert "` |  |" not in parameter_tables()
