"""Tokens of many requests from one reduction equal each request's own decision."""

from collections.abc import Sequence

import torch
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.decoding import DraftIds, DraftLogits, Law, SamplingParams
from blockdraft.decoding.chain import build_chain
from blockdraft.decoding.choose import Chooser
from blockdraft.drafter.dflash import over_vocabulary
from blockdraft.engine.deciding import Wanted, decide_drafts, likeliest
from blockdraft.engine.sides import DraftRows

VOCAB = 12
TO_TARGET = torch.tensor([1, 3, 4, 8, 11])

SETTINGS: dict[str, SamplingParams] = {
    "greedy": SamplingParams(),
    "seeded": SamplingParams(temperature=0.8, seed=3),
    "sampled": SamplingParams(temperature=0.8, seed=3, law="sampled"),
    "constrained": SamplingParams(logit_bias={3: 2.0}, banned_ids=(4,)),
}


def chooser_of(params: SamplingParams, seed: int) -> Chooser:
    return Chooser(params, build_chain(params, (1, 2), ()), seed, VOCAB)


@given(
    requests=st.lists(
        st.tuples(st.sampled_from(list(SETTINGS)), st.integers(0, 4), st.integers(0, 5)),
        min_size=1,
        max_size=5,
    ),
    reduced=st.booleans(),
    bad=st.lists(st.integers(0, 19), max_size=3),
)
def test_deciding_together_equals_deciding_alone(
    requests: list[tuple[str, int, int]], reduced: bool, bad: Sequence[int]
) -> None:
    """Mixed settings, slots beyond what is wanted, slots that are not finite."""
    width = len(TO_TARGET) if reduced else VOCAB
    num_slots = tuple(slots for _, slots, _ in requests)
    generator = torch.Generator().manual_seed(sum(num_slots) + len(bad))
    logits = torch.randn(sum(num_slots), width, generator=generator, dtype=torch.float64)
    for slot in bad:
        if slot < len(logits):
            logits[slot, slot % width] = torch.nan
    to_target = TO_TARGET if reduced else None
    wanted = [
        Wanted(chooser_of(SETTINGS[name], i), i, most) for i, (name, _, most) in enumerate(requests)
    ]
    together = decide_drafts(DraftRows(logits, num_slots, to_target), wanted, VOCAB)
    start = 0
    for i, (name, slots, most) in enumerate(requests):
        own = over_vocabulary(logits[start : start + slots], to_target, VOCAB)
        alone = chooser_of(SETTINGS[name], i).decide_draft(DraftLogits(own), i, most)
        assert together[i].ids == alone.ids
        assert together[i].num_slots == alone.num_slots
        assert (together[i].probs is None) == (alone.probs is None)
        if alone.probs is not None:
            torch.testing.assert_close(together[i].probs, alone.probs)
        start += slots


def test_separate_drafts_are_decided_one_by_one() -> None:
    laws: tuple[Law, ...] = ("argmax", "sampled")
    for law in laws:
        params = SamplingParams(law=law)
        wanted = [Wanted(chooser_of(params, 0), 0, 2), Wanted(chooser_of(params, 1), 0, 9)]
        logits = DraftLogits(torch.eye(VOCAB)[:3])
        blocks = decide_drafts([DraftIds((5, 6, 7)), logits], wanted, VOCAB)
        assert [block.ids for block in blocks] == [(5, 6), (0, 1, 2)]


def test_nothing_drafted_gives_empty_blocks() -> None:
    wanted = [Wanted(chooser_of(SETTINGS["greedy"], 0), 0, 3)]
    (block,) = decide_drafts(DraftRows(torch.empty(0, VOCAB), (0,), None), wanted, VOCAB)
    assert block.ids == () and block.num_slots == 0


def test_a_row_with_nan_or_inf_is_not_finite() -> None:
    rows = torch.zeros(5, 4)
    rows[0, 2] = 1.0
    rows[1, 3] = torch.nan
    rows[2, 1] = torch.inf
    rows[3] = -torch.inf
    rows[4, 0] = -torch.inf
    best = likeliest(rows)
    assert best.finite == [True, False, False, False, True]
    assert best.ids[0] == 2
