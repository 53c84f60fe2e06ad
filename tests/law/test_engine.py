"""The law of the engine: every request gets the tokens of the reference decoder, batched or not.

Joins, cancels, prefix hits, preemption, width changes, seeds, stops and processors at random: ids,
finish reason, text and log-probabilities equal plain decoding of each request alone. Faults are in
tests/unit/engine/test_engine.py.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import cast

import pytest
import torch
from hypothesis import event as note
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from blockdraft.decoding import (
    Commit,
    Draft,
    Drafter,
    DraftLattice,
    NoDrafter,
    PromptLookupDrafter,
    SamplingParams,
    TargetModel,
    collect,
    decode,
)
from blockdraft.decoding.rows import Stateless
from blockdraft.drafter import BlockDrafter, DFlash2Config, DFlashDrafter, DrafterConfig
from blockdraft.engine import Engine, Failed, WidthMode
from blockdraft.engine.alarm import AcceptanceAlarm
from blockdraft.engine.engine import EngineParts
from blockdraft.engine.plan import SchedulerConfig
from blockdraft.engine.pooled import PooledDrafts, PooledTarget
from blockdraft.engine.scheduler import Scheduler
from blockdraft.engine.sides import DraftRequest, DraftRows, DraftSide, TargetSide
from blockdraft.engine.stateful import StatefulDrafts, StatefulTarget
from blockdraft.engine.width import Speculating, WidthController, WidthDecision
from blockdraft.native import NativeTarget, PackedDrafter
from blockdraft.testing import (
    ByteTextCodec,
    OracleDrafter,
    RandomDrafter,
    RandomLatticeDrafter,
    ScriptedTarget,
    TinySize,
    ToyRecurrentTarget,
    hashed_logits,
    logits_of,
    tiny_model,
    tiny_target,
)
from blockdraft.testing.tiny import Family

VOCAB = 8
LONGEST_PROMPT = 24
MOST_NEW = 40


class RandomWidths(WidthController):
    """Any widths at every step: what the control decides must never show in the tokens."""

    def __init__(self, block_size: int, seed: int) -> None:
        super().__init__(WidthMode("fixed", block_size), block_size)
        self._widest = block_size
        self._random = random.Random(seed)

    def decide(self, requests: Sequence[Speculating], num_other_rows: int = 0) -> WidthDecision:
        width = self._random.randint(1, self._widest)
        verify = tuple(self._random.randint(1, min(width, r.remaining)) for r in requests)
        return WidthDecision(width, verify, "fixed")


class NoRepeats:
    """A `RowProcessor` with a history: the last token may not come again at once."""

    keeps_argmax = False

    def __init__(self) -> None:
        self._history: list[int] = []

    def mask(self, logits: Tensor, prefix: Sequence[int]) -> Tensor:
        history = [*self._history, *prefix]
        if not history:
            return logits
        masked = logits.clone()
        masked[history[-1]] = -torch.inf
        return masked

    def advance(self, ids: Sequence[int]) -> None:
        self._history += ids

    def rollback(self, count: int) -> None:
        del self._history[len(self._history) - count :]


def tilt(logits: Tensor) -> Tensor:
    return logits + torch.arange(len(logits)) % 3


@dataclass(frozen=True)
class Asked:
    """A request, when it arrives, and how many steps later it is canceled."""

    prompt: tuple[int, ...]
    make_params: Callable[[], SamplingParams]
    arrival: int = 0
    cancel_after: int | None = None

    @property
    def params(self) -> SamplingParams:
        return self.make_params()


@dataclass(frozen=True)
class Shape:
    """An engine's limits; few rows force preemption, few slots a queue."""

    slots: int
    spare_rows: int
    page_rows: int
    prefill_rows: int
    width: str
    seed: int

    def scheduler(self, block_size: int, *, reuse: bool) -> Scheduler:
        least = LONGEST_PROMPT + MOST_NEW + block_size + 2 * self.page_rows
        return Scheduler(
            SchedulerConfig(
                num_slots=self.slots,
                num_rows=least + self.spare_rows,
                max_context=LONGEST_PROMPT + MOST_NEW,
                page_rows=self.page_rows,
                rows_ahead=block_size,
                prefill_rows=self.prefill_rows,
                prefill_rows_alone=2 * self.prefill_rows,
                reuse_prefixes=reuse,
            )
        )

    def controller(self, block_size: int) -> WidthController:
        if self.width == "random":
            return RandomWidths(block_size, self.seed)
        if self.width == "fixed":
            return WidthController(WidthMode("fixed", 1 + self.seed % block_size), block_size)
        return WidthController(WidthMode("auto" if self.width == "auto" else "off"), block_size)


def make_engine(
    model: TargetModel, target: TargetSide, drafts: DraftSide | None, shape: Shape
) -> Engine:
    block_size = 1 if drafts is None else drafts.block_size
    can_copy = target.can_copy and isinstance(drafts, PooledDrafts | None)
    return Engine(
        EngineParts(
            spec=model.spec,
            target=target,
            drafts=drafts,
            scheduler=shape.scheduler(block_size, reuse=can_copy),
            controller=shape.controller(block_size),
            alarm=AcceptanceAlarm(None, block_size),
            decode_text=ByteTextCodec().decode,
        )
    )


def serve(engine: Engine, asked: Sequence[Asked]) -> list[list[Commit]]:
    """The commits of each request, the scheduler's books audited after every step."""
    commits: list[list[Commit]] = [[] for _ in asked]
    keys: dict[int, int] = {}
    now = 0
    while engine.has_work or any(request.arrival >= now for request in asked):
        for i, request in enumerate(asked):
            if request.arrival == now:
                keys[engine.submit(request.prompt, request.params)] = i
        for key, i in keys.items():
            wait = asked[i].cancel_after
            if wait is not None and asked[i].arrival + wait == now:
                engine.cancel(key)
        for event in engine.step():
            assert not isinstance(event.outcome, Failed), event.outcome
            commits[keys[event.key]].append(event.outcome)
        engine.scheduler.audit()
        now += 1
        assert now < 5000, "the engine doesn't come to an end"
    assert engine.scheduler.num_running == engine.scheduler.num_waiting == 0
    assert engine.scheduler.rows_used == engine.scheduler.rows_kept
    return commits


def check_law(
    engine: Engine, asked: Sequence[Asked], reference: TargetModel, tolerance: float = 1e-9
) -> None:
    """Serve, then compare each request with plain decoding of it alone."""
    limits = [engine.scheduler.limit(len(request.prompt)) for request in asked]
    for request, limit, commits in zip(asked, limits, serve(engine, asked), strict=True):
        params = replace(request.params, max_new_tokens=min(request.params.max_new_tokens, limit))
        codec = ByteTextCodec()
        plain = decode(reference, NoDrafter(), request.prompt, params, decode_text=codec.decode)
        want = collect(request.prompt, plain)
        ids = tuple(token_id for commit in commits for token_id in commit.ids)
        if not commits or commits[-1].finish_reason is None:
            assert request.cancel_after is not None
            assert ids == want.token_ids[: len(ids)]
            continue
        got = collect(request.prompt, commits)
        assert got.token_ids == want.token_ids
        assert got.finish_reason == want.finish_reason
        assert got.text == want.text
        assert len(got.logprobs) == len(want.logprobs)
        for ours, theirs in zip(got.logprobs, want.logprobs, strict=True):
            assert ours.logprob == pytest.approx(theirs.logprob, abs=tolerance)
            assert [i for i, _ in ours.top] == [i for i, _ in theirs.top]
        stats = got.stats
        assert stats.tokens == len(ids) and stats.steps == len(commits) - 1


# Made only in the test: the shape checks draw random numbers, which strategies must not.
PARAMS = st.builds(
    partial,
    st.just(SamplingParams),
    max_new_tokens=st.one_of(st.integers(1, 12), st.integers(1, MOST_NEW)),
    temperature=st.sampled_from([0.0, 0.0, 0.7, 1.4]),
    seed=st.integers(0, 3),
    top_k=st.sampled_from([0, 0, 3]),
    top_p=st.sampled_from([1.0, 1.0, 0.8]),
    min_tokens=st.sampled_from([0, 0, 3, 30]),
    stop_ids=st.sampled_from([(), (4,), (5, 6)]),
    stop=st.sampled_from([(), (), ("\x04\x05",), ("\x06", "\x01\x02")]),
    ignore_eos=st.booleans(),
    logprobs=st.sampled_from([None, 0, 2]),
    max_draft_tokens=st.sampled_from([None, None, 0, 1, 3]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.3]),
    frequency_penalty=st.sampled_from([0.0, 0.0, 0.5]),
    logit_bias=st.sampled_from([{}, {}, {3: 1.5}]),
    bad_words=st.sampled_from([(), ((1,), (2, 4))]),
    processors=st.sampled_from([(), (), (NoRepeats,), (NoRepeats, lambda: Stateless(tilt))]),
)

TEXTS = [tuple((7 * i * i + 3 * i + k) % VOCAB for i in range(LONGEST_PROMPT)) for k in range(2)]


@st.composite
def prompts(draw: st.DrawFn) -> tuple[int, ...]:
    """Prompts that often share their beginning with others."""
    num_shared = draw(st.integers(0, LONGEST_PROMPT - 1))
    own = draw(st.lists(st.integers(0, VOCAB - 1), max_size=LONGEST_PROMPT - num_shared))
    return (*draw(st.sampled_from(TEXTS))[:num_shared], *own) or (1,)


ASKED = st.lists(
    st.builds(
        Asked,
        prompt=prompts(),
        make_params=PARAMS,
        arrival=st.sampled_from([0, 0, 1, 2, 5, 9, 20]),
        cancel_after=st.sampled_from([None, None, None, 0, 1, 2, 4, 8]),
    ),
    min_size=1,
    max_size=16,
)

SHAPES = st.builds(
    Shape,
    slots=st.integers(1, 6),
    spare_rows=st.sampled_from([0, 8, 30, 400]),
    page_rows=st.sampled_from([1, 4, 16]),
    prefill_rows=st.sampled_from([1, 3, 16, 64]),
    width=st.sampled_from(["random", "random", "auto", "fixed", "off"]),
    seed=st.integers(0, 100),
)

SMALL_CONFIG = DrafterConfig(
    hidden_size=8,
    intermediate_size=12,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    rms_norm_eps=1e-6,
    vocab_size=VOCAB,
    block_size=5,
    mask_token_id=3,
    taps=(0, 2),
    layer_types=("full_attention", "sliding_attention"),
    sliding_window=6,
    max_position_embeddings=256,
)
SECOND_CONFIG = replace(
    SMALL_CONFIG,
    dflash2=DFlash2Config(conv_kernel_size=2, conv_group_size=4, selector_rank=3, selector_top_k=4),
)


def block_drafter(
    target: TargetModel,
    config: DrafterConfig,
    d2t: Tensor | None = None,
    *,
    block_size: int | None = None,
) -> DFlashDrafter:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = BlockDrafter(config).requires_grad_(False).to(torch.float64)
        for name, parameter in model.named_parameters():
            if "_conv." in name or "candidate_selector." in name:
                parameter.normal_()  # as made they do nothing
    return DFlashDrafter(model, target, d2t=d2t, block_size=block_size)


SCRIPTED = ScriptedTarget(cache(hashed_logits(VOCAB, seed=5, order=6)), VOCAB, stop_ids=(7,))


def any_drafter(target: TargetModel, name: str, block_size: int) -> Drafter:
    kinds: dict[str, Callable[[], Drafter]] = {
        "right": lambda: OracleDrafter(target, block_size, as_logits=True),
        "wrong": lambda: OracleDrafter(target, block_size, num_right=0),
        "two right": lambda: OracleDrafter(target, block_size, num_right=2),
        "random": lambda: RandomDrafter(target.spec.vocab_size, block_size),
        "lookup": lambda: PromptLookupDrafter(max(block_size, 2)),
        "block": lambda: block_drafter(target, SMALL_CONFIG),
        "second version": lambda: block_drafter(target, SECOND_CONFIG),
        "paths": lambda: RandomLatticeDrafter(target.spec.vocab_size, block_size, 3),
    }
    return kinds[name]()


DRAFTERS = ("right", "wrong", "two right", "random", "lookup", "block", "second version", "paths")


@settings(max_examples=40)
@given(
    asked=ASKED,
    shape=SHAPES,
    name=st.sampled_from(DRAFTERS),
    block_size=st.sampled_from([1, 2, 2, 5, 9]),
)
def test_any_traffic_gets_the_reference_s_answers(
    asked: list[Asked], shape: Shape, name: str, block_size: int
) -> None:
    """B02 to B12, B27, B28, S09 to S12, C07 on the engine, with every kind of drafter."""
    drafter = any_drafter(SCRIPTED, name, block_size)
    speculates = shape.width != "off"
    engine = make_engine(
        SCRIPTED,
        StatefulTarget(SCRIPTED, drafter.taps if speculates else (), 1),
        StatefulDrafts(drafter) if speculates else None,
        shape,
    )
    check_law(engine, asked, SCRIPTED)
    note(f"preempted: {engine.stats().num_preempted > 0}")
    assert engine.stats().drafter_failures == engine.stats().faults == 0


@settings(max_examples=10)
@given(asked=ASKED, shape=SHAPES, rollback=st.sampled_from(["keep", "replay"]))
def test_a_recurrent_target(asked: list[Asked], shape: Shape, rollback: str) -> None:
    """C05: states that can't be cropped, each request with its own."""
    target = ToyRecurrentTarget(VOCAB, rollback="keep" if rollback == "keep" else "replay")
    drafts = StatefulDrafts(OracleDrafter(target, 5, num_right=2))
    engine = make_engine(target, StatefulTarget(target, (), 1), drafts, shape)
    check_law(engine, asked, target)


NATIVE: tuple[Family, ...] = ("qwen3", "llama", "mistral")
SIZE = TinySize(vocab_size=VOCAB, hidden_size=16, num_layers=3, max_context_len=128)
NATIVE_CONFIG = replace(SMALL_CONFIG, hidden_size=16, num_target_layers=4)


@cache
def native(
    family: Family,
) -> tuple[TargetModel, NativeTarget, PackedDrafter, PackedDrafter, PackedDrafter]:
    """transformers, the native decoder, and drafters: one of blocks of 5, one of blocks of 2
    over a reduced vocabulary (small blocks are what makes preemption likely), one of the second
    version, whose drafts are paths."""
    target = NativeTarget(tiny_model(family, size=SIZE))
    reduced = replace(NATIVE_CONFIG, draft_vocab_size=5)
    second = replace(NATIVE_CONFIG, dflash2=SECOND_CONFIG.dflash2)
    d2t = torch.tensor([0, 0, 1, 2, 2])
    return (
        tiny_target(family, size=SIZE),
        target,
        PackedDrafter(block_drafter(target, NATIVE_CONFIG), clock=lambda: 0.0),
        PackedDrafter(block_drafter(target, reduced, d2t, block_size=2), clock=lambda: 0.0),
        PackedDrafter(block_drafter(target, second), clock=lambda: 0.0),
    )


@settings(max_examples=25)
@given(
    asked=ASKED,
    shape=SHAPES,
    family=st.sampled_from(NATIVE),
    name=st.sampled_from(["block", "block", "reduced", "second", "second", "two right"]),
)
def test_pooled_rows_get_the_reference_s_answers(
    asked: list[Asked], shape: Shape, family: Family, name: str
) -> None:
    """The native decoder in fp64, all requests in one pass, prefixes copied (C08)."""
    reference, target, whole, reduced, second = native(family)
    num_rows = shape.scheduler(5, reuse=True).rows_total + 64
    drafts: DraftSide | None
    if shape.width == "off":
        drafts = None
    elif name == "two right":
        drafts = StatefulDrafts(OracleDrafter(target, 5, num_right=2))
    else:
        packed = {"block": whole, "reduced": reduced, "second": second}[name]
        drafts = PooledDrafts(packed, num_rows)
    pooled = PooledTarget(target.model, num_rows, () if drafts is None else drafts.taps)
    engine = make_engine(target, pooled, drafts, shape)
    check_law(engine, asked, reference, tolerance=1e-4)
    stats = engine.stats()
    note(f"prefix hit: {stats.prefixes.hits > 0}")
    note(f"preempted: {stats.num_preempted > 0}")
    assert stats.drafter_failures == stats.faults == 0


@pytest.mark.slow
def test_a_long_run_of_pooled_traffic_hits_prefixes_and_preempts() -> None:
    """B24: hundreds of requests, random arrivals, lengths and cancels, on one engine."""
    reference, target, _, narrow, _ = native("qwen3")
    shape = Shape(slots=5, spare_rows=12, page_rows=4, prefill_rows=16, width="random", seed=1)
    num_rows = shape.scheduler(2, reuse=True).rows_total
    pooled = PooledTarget(target.model, num_rows, narrow.taps)
    engine = make_engine(target, pooled, PooledDrafts(narrow, num_rows), shape)
    rng = random.Random(4)
    asked = [
        Asked(
            (*TEXTS[rng.randrange(2)][: rng.randrange(20)], *rng.choices(range(VOCAB), k=4)),
            partial(
                SamplingParams,
                max_new_tokens=rng.randint(1, MOST_NEW),
                temperature=rng.choice([0.0, 0.9]),
                seed=i,
                ignore_eos=True,
            ),
            arrival=rng.randrange(60),
            cancel_after=rng.randrange(12) if i % 6 == 0 else None,
        )
        for i in range(100)
    ]
    check_law(engine, asked, reference)
    stats = engine.stats()
    assert stats.prefixes.hits > 30 and stats.num_preempted > 5
    assert stats.acceptance.requests > 70


class RecordedDrafts(PooledDrafts):
    """Keeps what was drafted for whom."""

    def __init__(self, drafter: PackedDrafter, num_rows: int) -> None:
        super().__init__(drafter, num_rows)
        self.made: list[tuple[DraftRequest, Tensor | Draft]] = []

    def draft(self, requests: Sequence[DraftRequest]) -> DraftRows | list[Draft]:
        rows = super().draft(requests)
        if isinstance(rows, DraftRows):
            parts = cast(tuple[Tensor, ...], rows.logits.split(list(rows.num_slots)))
            self.made += zip(requests, parts, strict=True)
        else:
            self.made += zip(requests, rows, strict=True)
        return rows


@pytest.mark.parametrize(
    ("which", "seed"), [(2, 0), pytest.param(2, 1, marks=pytest.mark.slow), (3, 2), (4, 1)]
)
def test_the_drafter_sees_what_it_would_see_alone(which: int, seed: int) -> None:
    """L01, P04: the target hides a drafter's wrong context, so the drafts themselves are compared.

    Contexts taken in late, in pieces, copied from prefixes, moved, built again after preemption.
    """
    family = NATIVE[seed]
    target, drafter = native(family)[1], native(family)[which]
    assert isinstance(drafter, PackedDrafter)
    shape = Shape(slots=4, spare_rows=12, page_rows=4, prefill_rows=5, width="random", seed=seed)
    num_rows = shape.scheduler(drafter.block_size, reuse=True).rows_total
    drafts = RecordedDrafts(drafter, num_rows)
    pooled = PooledTarget(target.model, num_rows, drafter.taps)
    engine = make_engine(target, pooled, drafts, shape)
    rng = random.Random(seed)
    asked = [
        Asked(
            (*TEXTS[rng.randrange(2)][: rng.randrange(16)], *rng.choices(range(VOCAB), k=2)),
            partial(SamplingParams, max_new_tokens=rng.randint(3, MOST_NEW), ignore_eos=True),
            arrival=i // 2,
            cancel_after=9 if i % 6 == 5 else None,
        )
        for i in range(30)
    ]
    texts: list[tuple[int, ...]] = []
    contexts: list[Tensor] = []
    for request, commits in zip(asked, serve(engine, asked), strict=True):
        texts.append((*request.prompt, *(i for commit in commits for i in commit.ids)))
        features = target.open(drafter.taps).prefill(torch.tensor(texts[-1])).features
        assert features is not None
        contexts.append(features)
    assert len(drafts.made) > 60 and engine.stats().prefixes.hits > 2
    assert which != 3 or engine.stats().num_preempted > 0
    # A wrong context stays wrong for the drafts that follow, so every other one is enough.
    for drafted, made in drafts.made[::2]:
        text = texts[drafted.key]
        assert text[drafted.context_len] == drafted.anchor
        state = drafter.drafter.open()
        state.extend(text[: drafted.context_len], contexts[drafted.key][: drafted.context_len])
        alone = state.propose(drafted.anchor, drafted.width)
        if isinstance(made, Tensor):
            own = drafter.drafter.over_target_vocabulary(made)
            torch.testing.assert_close(own, logits_of(alone).to(own), atol=1e-8, rtol=0)
        else:
            assert isinstance(made, DraftLattice) and isinstance(alone, DraftLattice)
            assert made.pairs.shape == (drafted.width - 2, 4, 4)
            for ours, theirs in zip(made, alone, strict=True):
                torch.testing.assert_close(ours, theirs, atol=1e-8, rtol=0)


# The sampled law draws other numbers than plain decoding, so its distribution is compared.

LENGTH, NUM_TRIALS, ALPHA = 3, 1000, 1e-4
MARKOV = cache(hashed_logits(5, seed=3, scale=1.5))
START = (1, 3)


def joint_law(temperature: float) -> dict[tuple[int, ...], float]:
    """Probability of every continuation of `START`."""
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(LENGTH):
        longer: dict[tuple[int, ...], float] = {}
        for path, mass in law.items():
            probs = (MARKOV((*START, *path)) / temperature).softmax(-1)
            for token_id, p in enumerate(cast(list[float], probs.tolist())):
                longer[(*path, token_id)] = mass * p
        law = longer
    return law


def p_value(counts: Counter[tuple[int, ...]], law: dict[tuple[int, ...], float]) -> float:
    """Pearson's chi-square, continuations expected less than five times taken together."""
    total = sum(counts.values())
    cells = [(counts[path], p * total) for path, p in law.items() if p * total >= 5]
    cells.append((total - sum(n for n, _ in cells), total - sum(e for _, e in cells)))
    statistic = sum((n - e) * (n - e) / e for n, e in cells)
    half = torch.tensor([(len(cells) - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(cast(Tensor, torch.special.gammaincc(half[0], half[1])))


@pytest.mark.parametrize(
    ("width", "drafter"),
    [
        ("random", RandomDrafter(5, 3)),
        pytest.param("fixed", RandomDrafter(5, 3), marks=pytest.mark.slow),
        pytest.param("random", RandomLatticeDrafter(5, 3, 3), marks=pytest.mark.slow),
    ],
)
def test_the_sampled_law_has_the_target_s_distribution(width: str, drafter: Drafter) -> None:
    """S04, S06 through the engine: many requests at once, a drafter that knows nothing."""
    target = ScriptedTarget(MARKOV, 5)
    shape = Shape(slots=8, spare_rows=400, page_rows=4, prefill_rows=64, width=width, seed=2)
    drafts = StatefulDrafts(drafter)
    engine = make_engine(target, StatefulTarget(target, (), 1), drafts, shape)
    asked = [
        Asked(
            START,
            partial(
                SamplingParams,
                max_new_tokens=LENGTH,
                temperature=0.9,
                seed=seed,
                law="sampled",
            ),
        )
        for seed in range(NUM_TRIALS)
    ]
    outputs = Counter(
        tuple(token_id for commit in commits for token_id in commit.ids)
        for commits in serve(engine, asked)
    )
    assert engine.stats().acceptance.drafted_steps > NUM_TRIALS / 4
    assert p_value(outputs, joint_law(0.9)) > ALPHA
