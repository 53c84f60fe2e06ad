"""The engine under faults, cancels and long use; what it decodes is compared in tests/law.

Scripted targets and faulty drafters stand on both seams; rows and states are counted at the end.
"""

import gc
import logging
import random
import types
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from blockdraft.decoding import (
    Commit,
    Draft,
    Drafter,
    DraftIds,
    DraftLogits,
    DraftState,
    NoDrafter,
    SamplingParams,
    TargetModel,
    collect,
    decode,
)
from blockdraft.decoding.rows import Stateless
from blockdraft.drafter import BlockDrafter, DFlashDrafter, DrafterConfig
from blockdraft.engine import Engine, Event, Failed, WidthMode
from blockdraft.engine.alarm import AcceptanceAlarm
from blockdraft.engine.engine import EngineParts
from blockdraft.engine.plan import SchedulerConfig
from blockdraft.engine.pooled import PooledDrafts, PooledTarget
from blockdraft.engine.scheduler import Scheduler
from blockdraft.engine.sides import DraftSide, Extension, Feed, PassResult, TargetSide
from blockdraft.engine.stateful import StatefulDrafts, StatefulTarget
from blockdraft.engine.width import WidthController
from blockdraft.errors import EngineFault, Error, NumericsError, RequestError
from blockdraft.native import NativeTarget, PackedDrafter
from blockdraft.testing import (
    OracleDrafter,
    RandomDrafter,
    ScriptedTarget,
    TinySize,
    hashed_logits,
    tiny_model,
)

VOCAB = 11
TARGET = ScriptedTarget(hashed_logits(VOCAB, seed=5), VOCAB)
PARAMS = SamplingParams(max_new_tokens=12)


def engine_of(
    target: TargetModel = TARGET,
    drafts: DraftSide | None = None,
    *,
    side: TargetSide | None = None,
    slots: int = 4,
    rows: int = 400,
    width: WidthMode | None = None,
    prefill_rows: int = 16,
    block_size: int = 1,
) -> Engine:
    """A small engine; rows are reused only where both sides are pooled."""
    block_size = block_size if drafts is None else drafts.block_size
    if side is None:
        side = StatefulTarget(target, () if drafts is None else drafts.taps, 1)
    return Engine(
        EngineParts(
            spec=target.spec,
            target=side,
            drafts=drafts,
            scheduler=Scheduler(
                SchedulerConfig(
                    num_slots=slots,
                    num_rows=rows,
                    max_context=80,
                    page_rows=4,
                    rows_ahead=block_size,
                    prefill_rows=prefill_rows,
                    prefill_rows_alone=prefill_rows,
                    reuse_prefixes=side.can_copy and isinstance(drafts, PooledDrafts | None),
                )
            ),
            controller=WidthController(width or WidthMode("fixed", block_size), block_size),
            alarm=AcceptanceAlarm(None, block_size),
        )
    )


def run(engine: Engine, num_steps: int = 10_000) -> dict[int, list[Event]]:
    """Events by request, audited; stops at the end of the work or after `num_steps`."""
    events: dict[int, list[Event]] = {}
    for _ in range(num_steps):
        if not engine.has_work:
            break
        for event in engine.step():
            events.setdefault(event.key, []).append(event)
        engine.scheduler.audit()
    return events


def ids_of(events: Sequence[Event]) -> tuple[int, ...]:
    return tuple(i for e in events if isinstance(e.outcome, Commit) for i in e.outcome.ids)


def error_of(events: Sequence[Event]) -> Error | None:
    last = events[-1].outcome
    return last.error if isinstance(last, Failed) else None


def plain_ids(
    prompt: Sequence[int], params: SamplingParams = PARAMS, target: TargetModel = TARGET
) -> tuple[int, ...]:
    return collect(prompt, decode(target, NoDrafter(), prompt, params)).token_ids


def assert_empty(engine: Engine) -> None:
    """B28, R09: no slot, row or waiting request is left over."""
    assert not engine.has_work and engine.step() == []
    scheduler = engine.scheduler
    assert scheduler.num_running == scheduler.num_waiting == 0
    assert scheduler.rows_used == scheduler.rows_kept


def num_reachable(root: object) -> int:
    """How many objects hang on `root`: what is remembered of ended requests shows here."""
    gc.collect()
    seen: dict[int, object] = {}
    todo = [root]
    total = 0
    while todo:
        found = todo.pop()
        if id(found) in seen or isinstance(found, type | types.ModuleType | types.FunctionType):
            continue
        seen[id(found)] = found
        total += 1
        todo += gc.get_referents(found)
    return total


# Faults of the target


def poisoned_logits(prefix: tuple[int, ...]) -> Tensor:
    """NaN once a text that begins with 9 has six tokens."""
    logits = TARGET.logits_of(prefix)
    return torch.full_like(logits, torch.nan) if prefix[0] == 9 and len(prefix) >= 6 else logits


POISONED = ScriptedTarget(poisoned_logits, VOCAB)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("length", [2, 6])
def test_logits_that_are_not_finite_fail_their_request_alone(
    length: int, temperature: float
) -> None:
    """R08: at the prompt's last row, or in the middle of a block."""
    params = replace(PARAMS, temperature=temperature, seed=3)
    engine = engine_of(POISONED, StatefulDrafts(OracleDrafter(TARGET, 4)))
    prompts = [(1, 2), (9,) * length, (3,)]
    keys = [engine.submit(prompt, params) for prompt in prompts]
    events = run(engine)
    error = error_of(events[keys[1]])
    assert isinstance(error, NumericsError) and "not finite" in str(error)
    got = ids_of(events[keys[1]])
    assert len(got) <= 6 - length and got == plain_ids(prompts[1], params)[: len(got)]
    for i in (0, 2):
        assert ids_of(events[keys[i]]) == plain_ids(prompts[i], params)
    assert engine.stats().faults == 0
    assert_empty(engine)


class FaultySide(StatefulTarget):
    """Raises in the runs whose numbers are given, after it has fed the first request."""

    def __init__(self, target: TargetModel, faulty_runs: Sequence[int]) -> None:
        super().__init__(target, (), 1)
        self._faulty_runs = faulty_runs
        self._num_runs = 0

    def run(self, feeds: Sequence[Feed]) -> PassResult:
        self._num_runs += 1
        if self._num_runs in self._faulty_runs:
            super().run(feeds[:1])
            raise RuntimeError("out of luck")
        return super().run(feeds)


def test_a_fault_inside_a_step_costs_the_running_requests_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    drafts = StatefulDrafts(OracleDrafter(TARGET, 4, num_right=1))
    engine = engine_of(side=FaultySide(TARGET, [3]), drafts=drafts, slots=2)
    prompts = [(1, 2), (3, 4), (5,), (6, 7, 8)]
    keys = [engine.submit(prompt, PARAMS) for prompt in prompts]
    events = run(engine)
    for key in keys[:2]:
        error = error_of(events[key])
        assert isinstance(error, EngineFault)
        assert "RuntimeError: out of luck" in str(error) and "\n" not in str(error)
    for i in (2, 3):
        assert ids_of(events[keys[i]]) == plain_ids(prompts[i])
    assert engine.stats().faults == 1
    assert sum(record.exc_info is not None for record in caplog.records) == 1
    assert_empty(engine)
    again = engine.submit(prompts[0], PARAMS)
    assert ids_of(run(engine)[again]) == plain_ids(prompts[0])
    assert_empty(engine)


def test_one_fault_after_the_other() -> None:
    engine = engine_of(side=FaultySide(TARGET, range(1, 10)), slots=2)
    keys = [engine.submit((1, i % VOCAB), PARAMS) for i in range(20)]
    events = run(engine)
    assert [isinstance(error_of(events[key]), EngineFault) for key in keys] == [True] * 18 + [
        False
    ] * 2
    assert engine.stats().faults == 9
    assert_empty(engine)


def explode(logits: Tensor) -> Tensor:
    raise ValueError("a bug in somebody's processor")


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_broken_processor_fails_its_own_request(temperature: float) -> None:
    engine = engine_of(slots=3)
    params = replace(PARAMS, temperature=temperature, seed=1)
    bad = engine.submit((3,), replace(params, processors=(lambda: Stateless(explode),)))
    good = engine.submit((1, 2), params)
    events = run(engine, 50)
    assert ids_of(events[good]) == plain_ids((1, 2), params)
    error = error_of(events[bad])
    assert error is not None and "a bug in somebody's processor" in str(error)
    assert engine.stats().faults == 0
    assert_empty(engine)


def test_a_broken_codec_fails_its_own_request() -> None:
    """Text is decoded inside the step, by the request's own function."""

    calls = iter(range(100))

    def decode(ids: Sequence[int]) -> str:
        if next(calls) > 4:
            raise ValueError("no such token in the vocabulary")
        return "x" * len(ids)

    engine = engine_of(slots=3)
    bad = engine.submit((3,), PARAMS, decode)
    good = engine.submit((1, 2), PARAMS)
    events = run(engine, 50)
    assert ids_of(events[good]) == plain_ids((1, 2))
    error = error_of(events[bad])
    assert error is not None and "no such token" in str(error)
    assert engine.stats().faults == 0
    assert_empty(engine)


class FaultyCommit(StatefulTarget):
    """Raises when the rows of one request are to be kept."""

    def __init__(self, faulty_key: int) -> None:
        super().__init__(TARGET, (), 1)
        self._faulty_key = faulty_key

    def commit(self, feed: Feed, rows: Sequence[int]) -> None:
        if feed.key == self._faulty_key:
            raise RuntimeError("out of luck")
        super().commit(feed, rows)


def test_a_fault_after_another_request_ended_in_the_same_step_ends_both() -> None:
    """The last event of the one that ended must not be lost: it would seem to run for ever."""
    engine = engine_of(side=FaultyCommit(1))
    keys = [engine.submit((i,), replace(PARAMS, max_new_tokens=2)) for i in range(3)]
    events = run(engine, 50)
    assert_empty(engine)
    assert all(
        isinstance(event.outcome, Failed) or event.outcome.finish_reason is not None
        for event in (events[key][-1] for key in keys)
    )


def test_a_request_that_forbids_every_token_fails_alone() -> None:
    engine = engine_of(drafts=StatefulDrafts(RandomDrafter(VOCAB, 3)))
    good = engine.submit((1,), PARAMS)
    stuck = engine.submit((2,), replace(PARAMS, allowed_ids=(3,), bad_words=((3, 3),)))
    events = run(engine)
    assert isinstance(error_of(events[stuck]), RequestError)
    assert ids_of(events[stuck]) == (3,)
    assert ids_of(events[good]) == plain_ids((1,))
    assert_empty(engine)


# Faults of the drafter


class Faulty:
    """A drafter whose states raise in the calls that `fails` picks, by method and number."""

    def __init__(self, inner: Drafter, fails: Callable[[str, int], bool]) -> None:
        self.block_size, self.taps = inner.block_size, inner.taps
        self._inner = inner
        self._fails = fails
        self._calls = {"extend": 0, "propose": 0}

    def open(self) -> "FaultyState":
        return FaultyState(self, self._inner.open())

    def call(self, method: str) -> None:
        self._calls[method] += 1
        if self._fails(method, self._calls[method]):
            raise RuntimeError(f"{method} failed")


class FaultyState:
    def __init__(self, drafter: Faulty, inner: DraftState) -> None:
        self._drafter, self._inner = drafter, inner

    @property
    def context_len(self) -> int:
        return self._inner.context_len

    def extend(self, ids: Sequence[int], features: Tensor | None) -> None:
        self._drafter.call("extend")
        self._inner.extend(ids, features)

    def propose(self, anchor: int, width: int) -> Draft:
        self._drafter.call("propose")
        return self._inner.propose(anchor, width)


def test_a_drafter_that_raises_once_costs_one_step_s_drafts() -> None:
    """R13: the next step drafts again, and the failure is counted."""
    drafter = Faulty(OracleDrafter(TARGET, 4), lambda method, n: (method, n) == ("propose", 2))
    engine = engine_of(drafts=StatefulDrafts(drafter))
    key = engine.submit((1, 2), replace(PARAMS, max_new_tokens=14))
    events = run(engine)[key]
    assert ids_of(events) == plain_ids((1, 2), replace(PARAMS, max_new_tokens=14))
    widths = [len(e.outcome.ids) for e in events if isinstance(e.outcome, Commit)]
    assert widths == [1, 4, 1, 4, 4]
    stats = engine.stats()
    assert stats.drafter_failures == 1 and stats.faults == 0
    assert stats.widths["reasons"]["drafter-failed"] == 1
    assert_empty(engine)


def test_a_drafter_that_loses_a_context_no_longer_drafts_for_that_request() -> None:
    """What it took in is unknown, so it must not be asked again; others go on being drafted for."""
    drafter = Faulty(OracleDrafter(TARGET, 4), lambda method, n: (method, n) == ("extend", 2))
    engine = engine_of(drafts=StatefulDrafts(drafter))
    key = engine.submit((1, 2), PARAMS)
    events = run(engine)
    other = engine.submit((3, 4), PARAMS)
    events |= run(engine)
    assert ids_of(events[key]) == plain_ids((1, 2))
    assert ids_of(events[other]) == plain_ids((3, 4))
    widths = {
        k: [len(e.outcome.ids) for e in es if isinstance(e.outcome, Commit)]
        for k, es in events.items()
    }
    assert widths[key] == [1, 4] + [1] * 7 and widths[other] == [1, 4, 4, 3]
    assert engine.stats().drafter_failures == 1
    assert_empty(engine)


def test_a_drafter_that_always_raises_leaves_plain_decoding() -> None:
    for method in ("extend", "propose"):
        drafter = Faulty(OracleDrafter(TARGET, 4), lambda m, n, method=method: m == method)
        engine = engine_of(drafts=StatefulDrafts(drafter), slots=2)
        prompts = [(1, 2), (3,), (4, 5)]
        keys = [engine.submit(prompt, PARAMS) for prompt in prompts]
        events = run(engine)
        assert [ids_of(events[key]) for key in keys] == [plain_ids(p) for p in prompts]
        assert engine.stats().acceptance.drafted_steps == 0
        assert engine.stats().drafter_failures > 0
        assert_empty(engine)


class Fixed:
    """Always proposes the same draft, whatever it is."""

    taps: tuple[int, ...] = ()
    block_size = 4

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.context_len = 0

    def open(self) -> "Fixed":
        return Fixed(self._draft)

    def extend(self, ids: Sequence[int], features: Tensor | None) -> None:
        self.context_len += len(ids)

    def propose(self, anchor: int, width: int) -> Draft:
        return self._draft


@pytest.mark.parametrize("params", [PARAMS, replace(PARAMS, temperature=0.9, seed=1)])
@pytest.mark.parametrize(
    "draft",
    [
        DraftLogits(torch.full((3, VOCAB), torch.nan)),
        DraftLogits(torch.full((3, VOCAB), torch.inf)),
        DraftLogits(torch.full((3, VOCAB), -torch.inf)),
        DraftLogits(torch.zeros(40, VOCAB)),
        DraftLogits(torch.zeros(0, VOCAB)),
        DraftLogits(torch.zeros(3, VOCAB - 1)),
        DraftIds((-1, VOCAB, 5)),
        DraftIds((5,) * 30),
        DraftIds(()),
    ],
    ids=["nan", "inf", "-inf", "too many", "none", "other vocabulary", "no ids", "30 ids", "no id"],
)
def test_drafts_that_are_nonsense_never_reach_the_output(
    draft: Draft, params: SamplingParams
) -> None:
    """R07, R08, L13: useless slots, wrong widths, another vocabulary."""
    engine = engine_of(drafts=StatefulDrafts(Fixed(draft)), slots=2)
    prompts = [(1, 2), (3,), (4, 5)]
    keys = [engine.submit(prompt, params) for prompt in prompts]
    events = run(engine)
    assert [ids_of(events[key]) for key in keys] == [plain_ids(p, params) for p in prompts]
    assert engine.stats().faults == 0
    assert_empty(engine)


# Requests that can't be served, queues, cancels


def test_a_prompt_that_does_not_fit_fails_before_it_is_queued() -> None:
    engine = engine_of(ScriptedTarget(TARGET.logits_of, VOCAB, max_context_len=40))
    good = engine.submit((1,), PARAMS)
    for prompt, words in (
        ((1,) * 40, "context holds 40"),
        ((1,) * 81, "context holds 40"),
        ((), "no tokens"),
        ((VOCAB,), "outside the target's vocabulary"),
    ):
        with pytest.raises(RequestError, match=words):
            engine.submit(prompt, PARAMS)
    small = engine_of()
    with pytest.raises(RequestError, match="at most 79 fit"):
        small.submit((1,) * 80, PARAMS)
    assert engine.stats().num_waiting == 1
    assert ids_of(run(engine)[good]) == plain_ids((1,))
    last = engine.submit((1,) * 39, PARAMS)
    assert len(ids_of(run(engine)[last])) == 1
    assert_empty(engine)
    assert not small.has_work


def test_more_requests_than_slots_wait_in_order() -> None:
    engine = engine_of(slots=3, drafts=StatefulDrafts(OracleDrafter(TARGET, 4, num_right=1)))
    keys = [engine.submit((1, 2), PARAMS) for _ in range(10)]
    engine.step()
    assert (engine.stats().num_running, engine.stats().num_waiting) == (3, 7)
    ended = [
        event.key
        for step in iter(engine.step, [])
        for event in step
        if isinstance(event.outcome, Commit) and event.outcome.finish_reason
    ]
    assert ended == keys
    assert_empty(engine)


def test_running_requests_share_the_steps_evenly() -> None:
    """P03: eight streams of one length advance side by side."""
    engine = engine_of(slots=8)
    keys = [engine.submit((1, i), PARAMS) for i in range(8)]
    counts = dict.fromkeys(keys, 0)
    while engine.has_work:
        for event in engine.step():
            counts[event.key] += 1
        assert max(counts.values()) - min(counts.values()) <= 1
    assert_empty(engine)


def test_a_long_prompt_does_not_stall_the_others() -> None:
    """B27, R12: a prompt of many chunks; a running request gets a token in every step."""
    engine = engine_of(prefill_rows=4)
    first = engine.submit((1,), replace(PARAMS, max_new_tokens=20))
    engine.step()
    long = engine.submit((2, 3) * 30, PARAMS)
    for _ in range(12):
        assert first in [event.key for event in engine.step()]
    events = run(engine)
    assert ids_of(events[long]) == plain_ids((2, 3) * 30)
    assert_empty(engine)


@pytest.mark.parametrize("num_steps", range(8))
def test_a_cancel_at_any_point_frees_everything_at_once(num_steps: int) -> None:
    """R09: waiting, within the prompt, after the first token, between drafts."""
    engine = engine_of(
        drafts=StatefulDrafts(OracleDrafter(TARGET, 4, num_right=1)), slots=2, prefill_rows=4
    )
    others = [engine.submit((3,), replace(PARAMS, max_new_tokens=2)), engine.submit((4,), PARAMS)]
    gone = engine.submit((1, 2, 5, 6, 7, 8), PARAMS)
    last = engine.submit((9,), PARAMS)
    events = run(engine, num_steps)
    used = engine.scheduler.rows_used
    was_running = gone in engine.scheduler.running
    engine.cancel(gone)
    engine.scheduler.audit()
    assert (engine.scheduler.rows_used < used) == was_running
    engine.cancel(gone)
    engine.cancel(12345)
    for key, more in run(engine).items():
        events.setdefault(key, []).extend(more)
        assert key != gone
    assert ids_of(events[others[1]]) == plain_ids((4,))
    assert ids_of(events[last]) == plain_ids((9,))
    assert_empty(engine)


# Long use


SMALL_DRAFTER = DrafterConfig(
    hidden_size=16,
    intermediate_size=16,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    head_dim=8,
    rms_norm_eps=1e-6,
    vocab_size=VOCAB,
    block_size=4,
    mask_token_id=3,
    taps=(0, 1),
    layer_types=("full_attention",),
    max_position_embeddings=64,
)


def tiny_pooled(
    make_drafts: Callable[[PackedDrafter, int], PooledDrafts] = PooledDrafts, rows: int = 200
) -> tuple[NativeTarget, Engine]:
    """A native target with a random drafter of blocks of 4 on shared pools."""
    size = TinySize(vocab_size=VOCAB, hidden_size=16, max_context_len=128)
    target = NativeTarget(tiny_model("qwen3", size=size))
    model = BlockDrafter(SMALL_DRAFTER).requires_grad_(False).double()
    packed = PackedDrafter(DFlashDrafter(model, target), clock=lambda: 0.0)
    side = PooledTarget(target.model, rows, packed.taps)
    return target, engine_of(target, make_drafts(packed, rows), side=side, rows=rows)


def test_second_use_of_an_engine_equals_fresh_engines() -> None:
    """C07: long, short, long again, in turn, on one engine object."""
    target, engine = tiny_pooled()
    prompts = {"a": tuple(i * 7 % VOCAB for i in range(50)), "b": (5, 6), "c": (7,) * 20}
    want = {name: plain_ids(prompt, PARAMS, target) for name, prompt in prompts.items()}
    for name in "abacabbacc":
        key = engine.submit(prompts[name], PARAMS)
        assert ids_of(run(engine)[key]) == want[name]
    assert engine.stats().prefixes.hits >= 4
    assert_empty(engine)


def test_an_answer_sent_back_as_a_prompt_hits_and_equals_a_cold_run() -> None:
    """C08: the reused rows hold what they are taken for, of target and drafter."""
    target, engine = tiny_pooled()
    prompt = (1, 5, 6)
    params = replace(PARAMS, max_new_tokens=30, ignore_eos=True)
    key = engine.submit(prompt, params)
    first = ids_of(run(engine)[key])
    longer = (*prompt, *first)
    key = engine.submit(longer, PARAMS)
    assert ids_of(run(engine)[key]) == plain_ids(longer, PARAMS, target)
    counters = engine.stats().prefixes
    assert counters.hits == 1 and counters.hit_rows >= 28
    assert engine.stats().drafter_failures == 0


def commits_of(events: Sequence[Event]) -> list[Commit]:
    return [event.outcome for event in events if isinstance(event.outcome, Commit)]


def test_commits_say_how_much_of_the_prompt_was_reused() -> None:
    target, engine = tiny_pooled()
    prompt = (1, 5, 6, 7, 8, 9, 1, 2, 3)
    cold = engine.submit(prompt, PARAMS)
    assert {commit.num_cached for commit in commits_of(run(engine)[cold])} == {0}
    warm = engine.submit(prompt, PARAMS)
    commits = commits_of(run(engine)[warm])
    assert len(commits) > 1 and len({commit.num_cached for commit in commits}) == 1
    assert commits[0].num_cached == engine.stats().prefixes.hit_rows
    assert 0 < commits[0].num_cached < len(prompt)
    assert collect(prompt, commits).token_ids == plain_ids(prompt, PARAMS, target)


def test_what_a_preempted_request_reuses_of_itself_is_no_cached_prompt() -> None:
    target, engine = tiny_pooled(rows=64)
    params = replace(PARAMS, max_new_tokens=50, ignore_eos=True)
    prompts = [(1, 2, 3, 4, 5), (6, 7, 8, 9, 10)]
    keys = [engine.submit(prompt, params) for prompt in prompts]
    events = run(engine)
    assert engine.stats().num_preempted > 0
    for key, prompt in zip(keys, prompts, strict=True):
        assert {commit.num_cached for commit in commits_of(events[key])} == {0}
        assert ids_of(events[key]) == plain_ids(prompt, params, target)


class FailingExtend(PooledDrafts):
    """Raises in one call of `extend`."""

    fails_at = 0
    num_calls = 0

    def extend(self, extensions: Sequence[Extension]) -> None:
        self.num_calls += bool(extensions)
        if extensions and self.num_calls == self.fails_at:
            raise RuntimeError("extend failed")
        super().extend(extensions)


@pytest.mark.parametrize("fails_at", [1, 2, 3, 4, 5, 6])
def test_a_context_lost_after_a_prefix_hit_costs_its_drafts_only(
    fails_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that the drafter had before it failed stay reusable; nothing else is claimed."""
    monkeypatch.setattr(FailingExtend, "fails_at", fails_at)
    target, engine = tiny_pooled(FailingExtend)
    params = replace(PARAMS, ignore_eos=True)
    prompt = (1, 5, 6, 7, 8, 9, 1, 2)
    for length in (8, 5, 8, 3):
        key = engine.submit(prompt[:length], params)
        assert ids_of(run(engine)[key]) == plain_ids(prompt[:length], params, target)
    assert engine.stats().faults == 0 and engine.stats().drafter_failures == 1
    assert_empty(engine)


@pytest.mark.parametrize(
    "width",
    [
        WidthMode("fixed", 4),
        pytest.param(WidthMode("off"), marks=pytest.mark.slow),
        pytest.param(WidthMode("auto"), marks=pytest.mark.slow),
    ],
)
def test_nothing_is_remembered_of_requests_that_ended(width: WidthMode) -> None:
    """B24, B28, R10, R11: 300 requests with joins, cancels and faults leave no object behind."""
    drafter = Faulty(RandomDrafter(VOCAB, 4), lambda method, n: n % 97 == 0)
    engine = engine_of(
        side=FaultySide(TARGET, range(50, 5000, 151)),
        drafts=StatefulDrafts(drafter),
        slots=5,
        rows=120,
        width=width,
    )
    rng = random.Random(7)
    sizes: list[int] = []
    for part in range(3):
        live: list[int] = []
        for i in range(150):
            prompt = rng.choices(range(VOCAB), k=rng.randint(1, 30))
            params = SamplingParams(max_new_tokens=rng.randint(1, 9), seed=i)
            live.append(engine.submit(prompt, params))
            if i % 7 == 0:
                engine.cancel(rng.choice(live))
            run(engine, rng.randint(0, 2))
        run(engine)
        assert_empty(engine)
        if part:
            sizes.append(num_reachable(engine))
    # The tables of the width control depend on the clock, all else does not.
    assert sizes[1] <= sizes[0] + (40 if width.kind == "auto" else 4), sizes


def test_seeds_do_not_depend_on_neighbors() -> None:
    """S12: alone, or beside other seeds; different seeds differ."""
    sampled = [replace(PARAMS, temperature=1.0, seed=seed) for seed in (1, 2, 3, 1)]
    engine = engine_of(drafts=StatefulDrafts(RandomDrafter(VOCAB, 4)))
    keys = [engine.submit((1, 2), params) for params in sampled]
    events = run(engine)
    texts = [ids_of(events[key]) for key in keys]
    assert texts == [plain_ids((1, 2), params) for params in sampled]
    assert texts[0] == texts[3] and len(set(texts)) == 3


def test_past_the_drafter_s_positions_decoding_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """L13: the drafter's limit is 64, the engine's context 80; one warning, right tokens."""
    target, engine = tiny_pooled()
    params = replace(PARAMS, max_new_tokens=30, ignore_eos=True)
    prompts = [tuple(i * k % VOCAB for i in range(n)) for k, n in ((7, 50), (3, 70), (2, 5))]
    keys = [engine.submit(prompt, params) for prompt in prompts]
    events = run(engine)
    for key, prompt in zip(keys, prompts, strict=True):
        limited = replace(params, max_new_tokens=min(30, 80 - len(prompt)))
        assert ids_of(events[key]) == plain_ids(prompt, limited, target)
    assert sum("position limit" in record.message for record in caplog.records) == 1
    assert engine.stats().drafter_failures == 0
    assert_empty(engine)


def test_a_width_above_the_block_is_clamped_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    drafts = StatefulDrafts(OracleDrafter(TARGET, 4))
    engine = engine_of(drafts=drafts, width=WidthMode("fixed", 16))
    key = engine.submit((1,), PARAMS)
    assert ids_of(run(engine)[key]) == plain_ids((1,))
    assert [record.message for record in caplog.records] == [
        "width: fixed:16 is above the 4 tokens (anchor counted) that the drafter was trained for; "
        "drafting 4"
    ]


def test_stats_add_up() -> None:
    engine = engine_of(drafts=StatefulDrafts(OracleDrafter(TARGET, 4)), slots=2)
    for prompt in ((1,), (2, 3), (4,)):
        engine.submit(prompt, replace(PARAMS, max_new_tokens=9))
    run(engine)
    stats = engine.stats()
    assert stats.acceptance.requests == 3 and stats.acceptance.tokens == 27
    assert stats.acceptance.tau == 4.0
    assert stats.widths["widths"] == {"4x4": 6}
    assert (stats.rows_total, stats.rows_used, stats.rows_kept) == (400, 0, 0)
    assert stats.steps == 6
