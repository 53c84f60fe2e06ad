"""The reference loop's own duties: order of calls, logprobs, faults, limits, time."""

import math
from collections.abc import Sequence
from itertools import count

import pytest
import torch
from torch import Tensor

from blockdraft.decoding import (
    Completion,
    Draft,
    Drafter,
    DraftIds,
    DraftLogits,
    Law,
    NoDrafter,
    SamplingParams,
    collect,
    decode,
)
from blockdraft.decoding.rows import VocabRow
from blockdraft.errors import DrafterError, NumericsError, RequestError
from blockdraft.testing import (
    ByteTextCodec,
    ListDrafter,
    OracleDrafter,
    RandomDrafter,
    ScriptedTarget,
    hashed_logits,
    script_logits,
)
from blockdraft.testing.scripted import scripted_feature

VOCAB = 9
TARGET = ScriptedTarget(hashed_logits(VOCAB, seed=2), VOCAB)
PROMPT = (1, 2)


def run(
    target: ScriptedTarget, drafter: Drafter, params: SamplingParams, prompt: Sequence[int] = PROMPT
) -> Completion:
    return collect(prompt, decode(target, drafter, prompt, params))


class RecordingDrafter:
    """Checks the contract of the seam: context is exactly what was committed before the anchor."""

    block_size = 5
    taps = (0, 2)

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.anchors: list[int] = []

    def open(self) -> "RecordingDrafter":
        self.ids.clear()
        return self

    @property
    def context_len(self) -> int:
        return len(self.ids)

    def extend(self, ids: Sequence[int], features: Tensor | None) -> None:
        assert features is not None and len(features) == len(ids)
        for token_id, feature in zip(ids, features, strict=True):
            self.ids.append(token_id)
            assert torch.equal(feature, scripted_feature(tuple(self.ids), self.taps))

    def propose(self, anchor: int, width: int) -> DraftIds:
        self.anchors.append(anchor)
        greedy = [*self.ids, anchor]
        for _ in range(width - 1):
            greedy.append(int(TARGET.logits_of(tuple(greedy)).argmax()))
        draft = greedy[len(self.ids) + 1 :]
        if len(self.anchors) % 2:
            draft[-1] = (draft[-1] + 1) % VOCAB
        return DraftIds(tuple(draft))


def test_the_drafter_s_context_ends_where_the_anchor_stands() -> None:
    """Context features cover [0, start): the anchor's own feature is never among them."""
    drafter = RecordingDrafter()
    completion = run(TARGET, drafter, SamplingParams(max_new_tokens=24))
    assert tuple(drafter.ids) == (*PROMPT, *completion.token_ids[:-1])
    assert set(drafter.anchors) <= set(completion.token_ids)
    assert completion.stats.histogram[3] > 0 and completion.stats.histogram[4] > 0


def test_accepted_drafts_and_the_target_s_own_tokens_are_told_apart() -> None:
    completion = run(
        TARGET, OracleDrafter(TARGET, 8, num_right=2), SamplingParams(max_new_tokens=7)
    )
    assert completion.drafted == (False, True, True, False, True, True, False)


@pytest.mark.parametrize("most", [0, 1, 3, 99])
def test_a_request_may_cap_its_drafts(most: int) -> None:
    oracle = OracleDrafter(TARGET, 8)
    free = run(TARGET, oracle, SamplingParams(max_new_tokens=24))
    capped = run(TARGET, oracle, SamplingParams(max_new_tokens=24, max_draft_tokens=most))
    assert capped.token_ids == free.token_ids
    assert len(capped.stats.drafted) == min(most, len(free.stats.drafted))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logprobs_are_those_of_the_unmodified_target(temperature: float) -> None:
    """S19: accepted, corrected and bonus tokens alike, whatever processors did to the row."""
    params = SamplingParams(
        temperature=temperature, top_k=2, logit_bias={3: 2.0}, seed=1, logprobs=2
    )
    completion = run(TARGET, OracleDrafter(TARGET, 4, num_right=2), params)
    ids: list[int] = [*PROMPT]
    for token_id, entry in zip(completion.token_ids, completion.logprobs, strict=True):
        law = TARGET.logits_of(tuple(ids)).log_softmax(-1)
        assert entry.logprob == pytest.approx(float(law[token_id]))
        assert [v for _, v in entry.top] == pytest.approx([float(v) for v in law.topk(2).values])
        ids.append(token_id)


class FaultyDrafter:
    """Proposes right drafts, spoiled from one slot on."""

    block_size = 5
    taps: tuple[int, ...] = ()

    def __init__(self, spoil: float, slot: int) -> None:
        self._oracle = OracleDrafter(TARGET, 5, as_logits=True)
        self._spoil, self._slot = spoil, slot

    def open(self) -> "FaultyDrafter":
        self._state = self._oracle.open()
        return self

    @property
    def context_len(self) -> int:
        return self._state.context_len

    def extend(self, ids: Sequence[int], features: Tensor | None) -> None:
        self._state.extend(ids, features)

    def propose(self, anchor: int, width: int) -> DraftLogits:
        draft = self._state.propose(anchor, width)
        assert isinstance(draft, DraftLogits)
        draft.logits[self._slot :, 0] = self._spoil
        return draft


@pytest.mark.parametrize("spoil", [math.nan, math.inf])
@pytest.mark.parametrize("law", ["argmax", "sampled"])
def test_draft_logits_that_are_not_finite_count_as_rejected(spoil: float, law: str) -> None:
    """L10: the answer is unharmed, and the fault can be seen."""
    params = SamplingParams(max_new_tokens=13, temperature=0.0 if law == "argmax" else 1.0, seed=3)
    want = run(TARGET, NoDrafter(), params)
    completion = run(TARGET, FaultyDrafter(spoil, 2), params)
    assert completion.token_ids == want.token_ids
    stats = completion.stats
    assert stats.unusable_drafts > 0
    assert stats.drafted[2] > 0 and stats.accepted[2:] == (0, 0)
    if law == "argmax":
        assert stats.tau == 3.0


def test_a_drafter_that_is_never_finite_leaves_plain_decoding() -> None:
    """L10: exactly no acceptance, reported."""
    params = SamplingParams(max_new_tokens=9)
    completion = run(TARGET, FaultyDrafter(math.nan, 0), params)
    assert completion.token_ids == run(TARGET, NoDrafter(), params).token_ids
    assert completion.stats.tau == 1.0
    assert completion.stats.unusable_drafts == sum(completion.stats.drafted)


def test_draft_ids_outside_the_vocabulary_never_reach_the_target() -> None:
    """R07: a placeholder such as -1 is a rejected draft."""
    want = run(TARGET, NoDrafter(), SamplingParams(max_new_tokens=5))
    good = want.token_ids
    drafter = ListDrafter([(good[1], -1, 4), (VOCAB, good[3])], 4)
    completion = run(TARGET, drafter, SamplingParams(max_new_tokens=5))
    assert completion.token_ids == good
    assert completion.stats.unusable_drafts >= 3


class EagerDrafter:
    """Always proposes more than it was asked for."""

    block_size = 4
    taps: tuple[int, ...] = ()

    def __init__(self, as_logits: bool) -> None:
        self._as_logits = as_logits
        self.context_len = 0

    def open(self) -> "EagerDrafter":
        return EagerDrafter(self._as_logits)

    def extend(self, ids: Sequence[int], features: Tensor | None) -> None:
        self.context_len += len(ids)

    def propose(self, anchor: int, width: int) -> Draft:
        if self._as_logits:
            return DraftLogits(torch.zeros(width + 20, VOCAB, dtype=torch.float64))
        return DraftIds((anchor,) * (width + 20))


@pytest.mark.parametrize("as_logits", [True, False])
@pytest.mark.parametrize("law", ["argmax", "sampled"])
def test_a_drafter_that_proposes_too_much_is_cut_to_the_width(as_logits: bool, law: Law) -> None:
    """No surplus draft is verified, so neither block size nor context limit is overrun."""
    target = ScriptedTarget(hashed_logits(VOCAB, seed=2), VOCAB, max_context_len=12)
    params = SamplingParams(temperature=1.0 if law == "sampled" else 0.0, law=law, seed=1)
    completion = run(target, EagerDrafter(as_logits), params)
    assert (len(completion.token_ids), completion.finish_reason) == (10, "length")
    assert len(completion.stats.drafted) <= 3
    if law == "argmax":
        assert completion.token_ids == run(target, NoDrafter(), params).token_ids


class NarrowDrafter(EagerDrafter):
    """Drafts over a vocabulary that is not the target's."""

    def open(self) -> "NarrowDrafter":
        return NarrowDrafter(self._as_logits)

    def propose(self, anchor: int, width: int) -> Draft:
        return DraftLogits(torch.zeros(width - 1, VOCAB + 10))


@pytest.mark.parametrize("law", ["argmax", "sampled"])
def test_draft_logits_over_another_vocabulary_are_an_error_of_the_drafter(law: Law) -> None:
    params = SamplingParams(temperature=1.0, law=law)
    with pytest.raises(DrafterError, match="19 columns and the target's vocabulary 9"):
        run(TARGET, NarrowDrafter(True), params)


@pytest.mark.parametrize("block_size", [0, -3])
def test_a_block_size_below_one_is_refused(block_size: int) -> None:
    with pytest.raises(RequestError, match="block_size"):
        next(decode(TARGET, NoDrafter(), PROMPT, SamplingParams(), block_size=block_size))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_target_logits_that_are_not_finite_end_the_request(bad: float, temperature: float) -> None:
    """R08: an error that says which token, never an id from garbage."""
    base = hashed_logits(VOCAB, seed=2)

    def logits_of(prefix: tuple[int, ...]) -> Tensor:
        logits = base(prefix)
        if len(prefix) >= 6:
            logits[3] = bad
        return logits

    target = ScriptedTarget(logits_of, VOCAB)
    for drafter in (NoDrafter(), RandomDrafter(VOCAB, 4)):
        with pytest.raises(NumericsError, match="output token 4 "):
            run(target, drafter, SamplingParams(temperature=temperature, seed=1))


def test_a_row_that_is_not_needed_may_be_anything() -> None:
    """A wrong draft may lead where the target breaks; plain decoding would never go there."""
    base = hashed_logits(VOCAB, seed=2)
    want = run(TARGET, NoDrafter(), SamplingParams(max_new_tokens=3)).token_ids
    wrong = (want[1] + 1) % VOCAB

    def logits_of(prefix: tuple[int, ...]) -> Tensor:
        nowhere = prefix[len(PROMPT) :][1:2] == (wrong,)
        return torch.full((VOCAB,), math.nan, dtype=torch.float64) if nowhere else base(prefix)

    target = ScriptedTarget(logits_of, VOCAB)
    drafter = ListDrafter([(wrong, 1, 1)], 4)
    assert run(target, drafter, SamplingParams(max_new_tokens=3)).token_ids == want


@pytest.mark.parametrize(
    ("params", "prompt", "named"),
    [
        (SamplingParams(), (), "no tokens"),
        (SamplingParams(), (1, VOCAB), "the prompt contains token id 9"),
        (SamplingParams(), (-1,), "the prompt contains token id -1"),
        (SamplingParams(), (1,) * 6, "context holds 6"),
        (SamplingParams(), (1,) * 7, "context holds 6"),
        (SamplingParams(stop_ids=(VOCAB,)), (1,), "stop_ids"),
        (SamplingParams(stop=("x",)), (1,), "tokenizer"),
        (SamplingParams(allowed_ids=(1,), banned_ids=(1,)), (1,), "forbids every token"),
        (
            SamplingParams(allowed_ids=(1,), banned_ids=(1,), temperature=1.0),
            (1,),
            "forbids every token",
        ),
    ],
)
def test_requests_that_cannot_be_served(
    params: SamplingParams, prompt: tuple[int, ...], named: str
) -> None:
    """B10, C20, R01, R02: refused with one line before or instead of a wrong answer."""
    target = ScriptedTarget(hashed_logits(VOCAB), VOCAB, max_context_len=6)
    with pytest.raises(RequestError, match=named) as caught:
        run(target, NoDrafter(), params, prompt)
    assert "\n" not in str(caught.value)


def test_the_context_limit_ends_an_answer_with_length() -> None:
    """B10: context limit = prompt + 3 with a block of 8."""
    target = ScriptedTarget(hashed_logits(VOCAB), VOCAB, max_context_len=len(PROMPT) + 3)
    completion = run(target, OracleDrafter(target, 8), SamplingParams(max_new_tokens=50))
    assert (len(completion.token_ids), completion.finish_reason) == (3, "length")


def test_seconds_cover_both_prefills_and_nothing_before() -> None:
    ticks = count()
    commits = decode(
        TARGET,
        RandomDrafter(VOCAB, 4),
        PROMPT,
        SamplingParams(max_new_tokens=6),
        clock=lambda: float(next(ticks)),
    )
    stats = [commit.stats for commit in commits]
    assert {s.prefill_seconds for s in stats} == {1.0}
    assert [s.seconds for s in stats] == [float(n) for n in range(2, 2 + len(stats))]


def test_the_reference_decoder_reuses_nothing() -> None:
    commits = list(decode(TARGET, OracleDrafter(TARGET, 4), PROMPT, SamplingParams()))
    assert {commit.num_cached for commit in commits} == {0}


def test_nothing_runs_before_the_first_commit_is_asked_for() -> None:
    stream = decode(TARGET, NoDrafter(), (), SamplingParams())
    with pytest.raises(RequestError):
        next(stream)


class EvenOnly:
    """A grammar in miniature: tokens must alternate even and odd; stateful, with undo."""

    keeps_argmax = False

    def __init__(self) -> None:
        self._ids: list[int] = []

    def mask(self, logits: VocabRow, prefix: Sequence[int]) -> VocabRow:
        parity = (len(self._ids) + len(prefix)) % 2
        forbidden = torch.arange(len(logits)) % 2 != parity
        return logits.masked_fill(forbidden, -math.inf)

    def advance(self, ids: Sequence[int]) -> None:
        self._ids.extend(ids)

    def rollback(self, count: int) -> None:
        del self._ids[len(self._ids) - count :]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_grammar_holds_at_every_position_of_a_block(temperature: float) -> None:
    """B18, B20: also for a drafter that always proposes an illegal token."""
    params = SamplingParams(
        max_new_tokens=20, processors=(EvenOnly,), temperature=temperature, seed=5
    )
    want = run(TARGET, NoDrafter(), params)
    assert all(token_id % 2 == n % 2 for n, token_id in enumerate(want.token_ids))
    illegal = ListDrafter([(0, 0, 0)] * 30, 4)
    for drafter in (illegal, RandomDrafter(VOCAB, 8), OracleDrafter(TARGET, 8)):
        assert run(TARGET, drafter, params).token_ids == want.token_ids


def test_constraints_reach_the_draft_and_keep_acceptance() -> None:
    """Draft logits are masked along the drafted prefix, so a banned argmax is not proposed."""
    target = ScriptedTarget(script_logits(VOCAB, [1, 2, *([5] * 30)]), VOCAB)
    params = SamplingParams(max_new_tokens=16, banned_ids=(5,), logit_bias={6: 1.0})
    masked = run(target, OracleDrafter(target, 5, as_logits=True), params)
    assert masked.token_ids == (6,) * 16
    assert masked.stats.tau == 5.0


def test_streamed_text_equals_the_completion_s() -> None:
    text = "na\N{LATIN SMALL LETTER I WITH DIAERESIS}ve \N{GRINNING FACE}!"
    ids = [256, *text.encode()]
    target = ScriptedTarget(script_logits(261, ids, after=257), 261, stop_ids=(257,))
    for block_size in range(2, 10):
        commits = list(
            decode(
                target,
                OracleDrafter(target, block_size),
                ids[:1],
                SamplingParams(max_new_tokens=60),
                decode_text=ByteTextCodec().decode,
            )
        )
        assert "".join(commit.text for commit in commits) == text
        assert not any("\N{REPLACEMENT CHARACTER}" in commit.text for commit in commits)
        assert collect(ids[:1], commits).finish_reason == "stop"
