"""Processors against plain-Python definitions, and their undo."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.decoding.chain import build_chain
from blockdraft.decoding.params import SamplingParams
from blockdraft.decoding.rows import VocabRow

VOCAB = 7
PROMPT = (1, 1, 4)
STOPS = (6,)
ids_lists = st.lists(st.integers(0, VOCAB - 1), max_size=5)
rows = st.lists(st.floats(-4, 4), min_size=VOCAB, max_size=VOCAB)

Oracle = Callable[[list[float], Sequence[int]], list[float]]


def softmax(row: Sequence[float]) -> list[float]:
    top = max(row)
    weights = [math.exp(x - top) for x in row]
    return [w / sum(weights) for w in weights]


def top_p(row: list[float], output: Sequence[int]) -> list[float]:
    order = sorted(range(VOCAB), key=lambda i: -row[i])
    probs, mass, kept = softmax(row), 0.0, set[int]()
    for i in order:
        if mass < 0.6:
            kept.add(i)
        mass += probs[i]
    return [x if i in kept else -math.inf for i, x in enumerate(row)]


def penalized(row: list[float], output: Sequence[int]) -> list[float]:
    return [x - 0.5 * (i in output) - 0.25 * output.count(i) for i, x in enumerate(row)]


def repetition(row: list[float], output: Sequence[int]) -> list[float]:
    seen = {*PROMPT, *output}
    return [(x / 1.3 if x > 0 else x * 1.3) if i in seen else x for i, x in enumerate(row)]


def bad_words(row: list[float], output: Sequence[int]) -> list[float]:
    banned = {3} | ({5} if tuple(output[-1:]) == (2,) else set[int]())
    banned |= {0} if tuple(output[-2:]) == (2, 2) else set()
    return [-math.inf if i in banned else x for i, x in enumerate(row)]


CASES: dict[str, tuple[SamplingParams, Oracle]] = {
    "bias": (
        SamplingParams(logit_bias={2: 3.0, 0: -1.5}),
        lambda row, _: [x + {2: 3.0, 0: -1.5}.get(i, 0.0) for i, x in enumerate(row)],
    ),
    "banned": (
        SamplingParams(banned_ids=(0, 5)),
        lambda row, _: [-math.inf if i in (0, 5) else x for i, x in enumerate(row)],
    ),
    "allowed": (
        SamplingParams(allowed_ids=(0, 5)),
        lambda row, _: [x if i in (0, 5) else -math.inf for i, x in enumerate(row)],
    ),
    "bad words": (SamplingParams(bad_words=((3,), (2, 5), (2, 2, 0))), bad_words),
    "min tokens": (
        SamplingParams(min_tokens=3),
        lambda row, out: [
            -math.inf if i in STOPS and len(out) < 3 else x for i, x in enumerate(row)
        ],
    ),
    "repetition": (SamplingParams(repetition_penalty=1.3), repetition),
    "presence and frequency": (
        SamplingParams(presence_penalty=0.5, frequency_penalty=0.25),
        penalized,
    ),
    "temperature": (SamplingParams(temperature=0.7), lambda row, _: [x / 0.7 for x in row]),
    "top-k": (
        SamplingParams(temperature=1.0, top_k=3),
        lambda row, _: [x if x >= sorted(row)[-3] else -math.inf for x in row],
    ),
    "top-p": (SamplingParams(temperature=1.0, top_p=0.6), top_p),
    "min-p": (
        SamplingParams(temperature=1.0, min_p=0.4),
        lambda row, _: [x if x >= max(row) + math.log(0.4) else -math.inf for x in row],
    ),
}


@pytest.mark.parametrize("name", CASES)
@given(row=rows, output=ids_lists, prefix=ids_lists)
def test_processor_equals_its_definition(
    name: str, row: list[float], output: list[int], prefix: list[int]
) -> None:
    params, oracle = CASES[name]
    chain = build_chain(params, PROMPT, STOPS)
    chain.advance(output)
    got = chain.mask(torch.tensor(row, dtype=torch.float64), prefix)
    want = torch.tensor(oracle(row, [*output, *prefix]), dtype=torch.float64)
    torch.testing.assert_close(got, want)


EVERYTHING = SamplingParams(
    logit_bias={1: 0.5},
    banned_ids=(0,),
    bad_words=((2, 2), (3, 4, 5)),
    min_tokens=4,
    repetition_penalty=1.2,
    presence_penalty=0.3,
    frequency_penalty=0.1,
    temperature=0.8,
    top_k=5,
    top_p=0.9,
    min_p=0.05,
)


@given(row=rows, output=ids_lists, prefix=ids_lists)
def test_a_drafted_prefix_is_the_same_as_committed_tokens(
    row: list[float], output: list[int], prefix: list[int]
) -> None:
    """S10: what a block proposes counts for the later positions of the same block."""
    logits = torch.tensor(row, dtype=torch.float64)
    drafted = build_chain(EVERYTHING, PROMPT, STOPS)
    drafted.advance(output)
    committed = build_chain(EVERYTHING, PROMPT, STOPS)
    committed.advance([*output, *prefix])
    assert torch.equal(drafted.mask(logits, prefix), committed.mask(logits, ()))


@given(row=rows, output=ids_lists, extra=ids_lists)
def test_rollback_forgets_exactly_the_last_tokens(
    row: list[float], output: list[int], extra: list[int]
) -> None:
    logits = torch.tensor(row, dtype=torch.float64)
    chain = build_chain(EVERYTHING, PROMPT, STOPS)
    chain.advance(output)
    before = chain.mask(logits, ())
    chain.advance(extra)
    chain.rollback(len(extra))
    assert torch.equal(chain.mask(logits, ()), before)


@given(row=rows)
def test_shaping_keeps_the_most_likely_token(row: list[float]) -> None:
    logits: VocabRow = torch.tensor(row, dtype=torch.float64)
    shaping = build_chain(
        SamplingParams(temperature=0.8, top_k=2, top_p=0.3, min_p=0.5), PROMPT, STOPS
    )
    assert shaping.keeps_argmax
    masked = shaping.mask(logits, ())
    assert masked[logits.argmax()].isfinite()
    assert masked.max() == masked[logits.argmax()]


def test_penalties_do_not_lift_a_ban() -> None:
    params = SamplingParams(banned_ids=(1,), repetition_penalty=1.3, frequency_penalty=-2.0)
    chain = build_chain(params, (1, 1), ())
    chain.advance([1])
    assert chain.mask(torch.zeros(VOCAB), ())[1] == -math.inf


def test_a_plain_request_has_an_empty_chain() -> None:
    chain = build_chain(SamplingParams(top_p=0.5, top_k=3, min_p=0.1), PROMPT, STOPS)
    logits = torch.randn(VOCAB)
    assert chain.keeps_argmax
    assert chain.mask(logits, ()) is logits
