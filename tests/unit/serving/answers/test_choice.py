"""How commits become deltas: stops, reasoning, echo, and figures of the drafts."""

from collections.abc import Sequence

import pytest

from blockdraft.decoding import AcceptanceStats, Commit
from blockdraft.decoding.stats import StepCount
from blockdraft.parsing import choose_reasoning_format, combine
from blockdraft.parsing.parts import Content, OutputParser, Reasoning
from blockdraft.serving.answers.choice import ChoiceReader
from blockdraft.serving.answers.options import ReadingOptions
from blockdraft.serving.answers.settings import derived_seed
from blockdraft.serving.answers.speculation import spec_details, speculative_decoding
from blockdraft.serving.answers.token_texts import TokenTexts
from blockdraft.testing.chat import END_ID, chat_codec

CODEC = chat_codec()
STATS = AcceptanceStats(requests=1, tokens=1)


def commit(text: str, shown: str | None = None, **fields: object) -> Commit:
    """A step that emits the bytes of `text`, of which `shown` may be shown."""
    made = Commit(
        ids=tuple(CODEC.encode_rendered(text)),
        num_accepted=0,
        text=text if shown is None else shown,
        logprobs=(),
        stats=STATS,
        finish_reason=None,
    )
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def decode(ids: Sequence[int]) -> str:
    return CODEC.decode(ids)


@pytest.mark.parametrize("include", [False, True])
def test_the_stop_string_that_ended_it_is_named(include: bool) -> None:
    options = ReadingOptions(decode=decode, stop=("ok", "stop"), include_stop=include)
    reader = ChoiceReader(options, 3)
    assert reader.read(commit("go on ")).content == "go on "
    last = reader.read(commit("now stop", "now ", finish_reason="stop"))
    assert (last.index, last.ending, last.stop_reason) == (3, "stop", "stop")
    assert last.content == ("now stop" if include else "now ")


def test_the_models_own_stop_is_not_reported_and_the_requests_is() -> None:
    for own, reason in ((frozenset({END_ID}), None), (frozenset[int](), END_ID)):
        options = ReadingOptions(
            decode=decode, model_stop_ids=own, stop_ids=frozenset({END_ID}), include_stop=True
        )
        last = ChoiceReader(options, 0).read(commit("a<|im_end|>", "a", finish_reason="stop"))
        assert (last.stop_reason, last.content) == (reason, "a")


def test_echo_comes_before_the_first_delta_only() -> None:
    reader = ChoiceReader(ReadingOptions(decode=decode, echo="before "), 0)
    texts = [reader.read(commit(text)).content for text in ("one", " two")]
    assert texts == ["before one", " two"]


def thinking() -> OutputParser:
    reasoning = choose_reasoning_format(None, "think")
    assert reasoning is not None
    return combine(reasoning.parser(starts_inside=False), None)


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_reasoning_tokens_do_not_depend_on_the_cuts(size: int) -> None:
    text = "<think>h\u00fcm</think>yes <think>"
    reader = ChoiceReader(ReadingOptions(decode=decode, make_parser=thinking), 0)
    deltas = [
        reader.read(
            commit(text[at : at + size], finish_reason="length" if at + size >= len(text) else None)
        )
        for at in range(0, len(text), size)
    ]
    parts = [part for delta in deltas for part in delta.parts]
    reasoning = "".join(part.text for part in parts if isinstance(part, Reasoning))
    content = "".join(part.text for part in parts if isinstance(part, Content))
    assert (reasoning, content) == ("h\u00fcm", "yes <think>")
    assert reader.num_reasoning == len("<think>h\u00fcm".encode())


def test_figures_count_what_was_drafted_and_kept() -> None:
    stats = AcceptanceStats().with_prefill_token()
    for accepted, drafted in ((2, 3), (0, 3), (0, 0), (3, 3)):
        step = StepCount(num_committed=accepted + 1, num_drafted=drafted, num_accepted=accepted)
        stats = stats.with_step(step)
    figures = speculative_decoding(stats, 4)
    assert figures == {
        "mean_acceptance_length": 1 + 5 / 3,
        "draft_acceptance_rate": 5 / 9,
        "acceptance_histogram": [1, 0, 1, 1, 0],
        "num_spec_steps": 3,
        "num_accepted_draft_tokens": 5,
        "num_draft_tokens": 9,
        "num_spec_tokens": 4,
    }
    assert spec_details(stats)["spec_accept_length"] == 9 / 4


def test_an_answer_without_verification_still_has_numbers() -> None:
    """AIPerf drops a record with null there, and vLLM sends these too."""
    figures = speculative_decoding(STATS, 2)
    assert (figures["mean_acceptance_length"], figures["draft_acceptance_rate"]) == (1.0, 0.0)
    assert figures["num_spec_steps"] == 0
    assert figures["acceptance_histogram"] == [0, 0, 0]
    assert spec_details(STATS)["spec_accept_length"] == 1.0


def test_derived_seeds_are_stable_and_in_range() -> None:
    assert derived_seed(None, 3) is None and derived_seed(7, 0) == 7
    seeds = [derived_seed(7, choice) for choice in range(1, 20)]
    assert len(set(seeds)) == 19
    assert all(seed is not None and 0 <= seed < 2**63 for seed in seeds)
    assert derived_seed(7, 1) == 7768823104508221553


def test_texts_of_tokens_join_to_the_text() -> None:
    tokens = TokenTexts(CODEC)
    ids = CODEC.encode_rendered("h\u00e9 \u20ac<|im_end|>")
    assert b"".join(tokens.data(i) for i in ids).decode() == "h\u00e9 \u20ac<|im_end|>"
    assert [tokens.text(i) for i in ids[:3]] == ["h", "bytes:\\xc3", "bytes:\\xa9"]
    assert tokens.shown(END_ID) == b"" and tokens.text(END_ID) == "<|im_end|>"
    assert TokenTexts(None).text(5) == "token_id:5"
