"""Simulated acceptance is real acceptance: the walk against a loop and against decoding."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Int
from tiny_runs import greedy_answers, random_prompts
from torch import Tensor

from blockdraft.decoding import AcceptanceStats, SamplingParams
from blockdraft.decoding.stats import StepCount
from blockdraft.drafter import BlockDrafter, DFlashDrafter, DrafterConfig
from blockdraft.evaluation import measure_acceptance
from blockdraft.target.hf import HFTarget
from blockdraft.testing import tiny_model
from blockdraft.training.batches.batch import Batch, Sample
from blockdraft.training.batches.layout import Labels, Layout
from blockdraft.training.batches.packing import PackingConfig
from blockdraft.training.features.live import LiveFeatures
from blockdraft.training.forward import BlockForward
from blockdraft.training.frozen_head import read_head
from blockdraft.training.loss import LossConfig
from blockdraft.training.objective import Objective
from blockdraft.training.run.step import BlockInputs
from blockdraft.training.simulate import every_anchor_rows, leading_hits, pool, simulate, walk
from blockdraft.training.vocabulary import DraftVocabulary

BLOCK = 5
LIMIT = 18
CONFIG = DrafterConfig(
    hidden_size=32,
    intermediate_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    rms_norm_eps=1e-6,
    vocab_size=96,
    block_size=BLOCK,
    mask_token_id=1,
    taps=(0, 1),
    num_target_layers=3,
    layer_types=("full_attention", "full_attention"),
    max_position_embeddings=512,
)


def decode_on_paper(
    text: list[int], drafts: list[list[int]], *, has_ended: bool
) -> AcceptanceStats:
    """Token by token, as the loop does: drafts[i] follow the i-th token, which is the anchor."""
    stats = AcceptanceStats().with_prefill_token()
    out = [text[0]]
    while len(out) < len(text):
        room = len(text) - len(out) - (not has_ended)
        drafted = drafts[len(out) - 1][:room]
        accepted = 0
        while accepted < len(drafted) and drafted[accepted] == text[len(out) + accepted]:
            accepted += 1
        new = text[len(out) : len(out) + accepted + 1]
        out += new
        stats = stats.with_step(
            StepCount(num_committed=len(new), num_drafted=len(drafted), num_accepted=accepted)
        )
    assert out == text
    return stats


@given(
    text=st.lists(st.integers(0, 1), min_size=1, max_size=14),
    data=st.data(),
    slots=st.integers(1, 4),
    has_ended=st.booleans(),
)
def test_walk_is_decoding_on_paper(
    text: list[int], data: st.DataObject, slots: int, has_ended: bool
) -> None:
    drafts = [data.draw(st.lists(st.integers(0, 1), min_size=slots, max_size=slots)) for _ in text]
    accepted: list[int] = []
    for i, drafted in enumerate(drafts):
        hits = [d == t for d, t in zip(drafted, text[i + 1 :], strict=False)]
        accepted.append(hits.index(False) if False in hits else len(hits))
    expected = decode_on_paper(text, drafts, has_ended=has_ended)
    assert walk(accepted, slots, has_ended=has_ended) == expected


def test_walk_by_hand() -> None:
    """T06: runs of 3, 2, 1 and 0 accepted drafts have mean 1.5, however they are batched."""
    stats = walk([3, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0], 3)
    assert stats.histogram == (1, 1, 1, 1) and stats.tau == 2.5
    assert stats.drafted == (4, 3, 3)
    single = walk([0], 3)
    assert (single.requests, single.steps, single.tokens, single.tau) == (1, 0, 1, None)
    assert pool([]) == AcceptanceStats()
    assert pool([stats, stats]).tau == stats.tau


def test_leading_hits_stop_at_the_first_miss_and_at_missing_labels() -> None:
    ids = torch.tensor([[1, 2, 3], [1, 2, 3], [1, -1, -1], [-1, -1, -1]])
    drafts = torch.tensor([[1, 2, 3], [1, 9, 3], [1, -1, 5], [-1, 0, 0]])
    assert leading_hits(drafts, Labels(ids, ids)).tolist() == [3, 1, 1, 0]


@given(st.lists(st.integers(2, 9), min_size=1, max_size=8), st.integers(1, 20), st.integers(1, 20))
def test_every_sample_is_in_one_row(lengths: list[int], tokens: int, anchors: int) -> None:
    samples = [
        Sample(row=i, ids=tuple(range(n + 1)), answer_start=1) for i, n in enumerate(lengths)
    ]
    rows = list(every_anchor_rows(samples, PackingConfig(row_tokens=tokens, row_anchors=anchors)))
    assert [m for row in rows for m in row.members] == list(range(len(samples)))
    for row in rows:
        if len(row.members) > 1:
            assert sum(lengths[m] + 1 for m in row.members) <= tokens
            assert sum(lengths[m] for m in row.members) <= anchors


class Pair:
    """A random target with a random drafter, in training's form and in decoding's."""

    def __init__(self, dtype: torch.dtype, config: DrafterConfig, vocab: Tensor | None) -> None:
        self.model = tiny_model("llama", dtype=dtype, seed=3)
        self.target = HFTarget(self.model, name="tiny")
        torch.manual_seed(13)
        drafter = BlockDrafter(config).to(dtype)
        with torch.no_grad():
            for parameter in drafter.parameters():
                parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.ndim > 1 else 1.0))
        vocabulary = None if vocab is None else DraftVocabulary(vocab, 96)
        d2t = None if vocabulary is None else vocabulary.d2t
        self.serving = DFlashDrafter(drafter.eval().requires_grad_(False), self.target, d2t=d2t)
        self._forward = BlockForward(drafter)
        self._source = LiveFeatures(self.target, config.taps)
        self._inputs = BlockInputs(self.target, config.mask_token_id)
        self._objective = Objective(
            LossConfig(), read_head(self.target, vocab), BLOCK, vocabulary=vocabulary
        )

    def draft(self, batch: Batch, layout: Layout) -> Int[Tensor, "blocks slots"]:
        taps = self._source.features(batch).taps
        states = self._forward(taps, self._inputs(layout.anchor_ids, layout.width), layout)
        return self._objective.draft(states)


def counts(stats: AcceptanceStats) -> AcceptanceStats:
    return replace(stats, seconds=0.0, prefill_seconds=0.0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("case", ["full", "sliding", "reduced"])
def test_simulated_counts_are_those_of_real_decoding(dtype: torch.dtype, case: str) -> None:
    """T04, gate 10: the trainer's figure and the engine's, over the same prompts, are equal."""
    config, vocab = CONFIG, None
    if case == "sliding":
        config = replace(
            CONFIG, layer_types=("sliding_attention", "full_attention"), sliding_window=4
        )
    if case == "reduced":
        vocab = torch.arange(0, 96, 2)
        config = replace(CONFIG, draft_vocab_size=len(vocab))
    pair = Pair(dtype, config, vocab)
    prompts = random_prompts(6)
    texts = greedy_answers(pair.model, prompts, LIMIT)
    samples = [
        Sample(row=i, ids=prompt + text, answer_start=len(prompt))
        for i, (prompt, text) in enumerate(zip(prompts, texts, strict=True))
    ]
    packing = PackingConfig(row_tokens=100, row_anchors=60)
    stop_ids = pair.target.spec.stop_ids
    walks = simulate(pair.draft, samples, BLOCK, packing, stop_ids=stop_ids)
    params = SamplingParams(temperature=0.0, max_new_tokens=LIMIT)
    real = measure_acceptance(pair.target, pair.serving, prompts, params)
    for simulated, answer in zip(walks, real.answers, strict=True):
        if answer.has_ended:
            # The loop does not know that the text ends: it drafts past it, which is not accepted.
            assert replace(simulated, drafted=answer.stats.drafted) == counts(answer.stats)
        else:
            assert simulated == counts(answer.stats)
    assert {answer.has_ended for answer in real.answers} == {True, False}
    assert pool(walks).tau == real.tau
    assert sum(real.stats.accepted) > 0, "nothing was accepted, so nothing was compared"
