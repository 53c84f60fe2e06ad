"""The scheduler, driven by a tiny engine whose "keys and values" are the token ids themselves.

A pool is a list with one cell a row. The engine executes moves, feeds rows and decides tokens from
what the pool holds, so a wrong move, a wrong prefix hit or a shared row shows as a wrong token.
"""

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockdraft.engine.extents import Move
from blockdraft.engine.plan import Admission, PrefillChunk, PrefixCounters, SchedulerConfig
from blockdraft.engine.scheduler import Scheduler
from blockdraft.errors import ConfigError, RequestError

CONFIG = SchedulerConfig(
    num_slots=3,
    num_rows=64,
    max_context=40,
    page_rows=4,
    rows_ahead=4,
    prefill_rows=5,
    prefill_rows_alone=12,
)
LIMIT_TOKENS = 4
"""Vocabulary of the tests: small, so that prefixes are shared by chance."""


def next_token(context: Sequence[int]) -> int:
    return zlib.crc32(bytes(context)) % LIMIT_TOKENS


def continue_prompt(prompt: Sequence[int], num_tokens: int) -> list[int]:
    """The oracle: what any engine must emit."""
    known = list(prompt)
    for _ in range(num_tokens):
        known.append(next_token(known))
    return known[len(prompt) :]


@dataclass(frozen=True)
class Asked:
    prompt: tuple[int, ...]
    max_tokens: int
    gap: int = 0
    """Steps between the arrival of the request before it and its own."""
    cancel_after: int | None = None
    """Steps after its arrival."""
    is_canceled_inside: bool = False
    """Whether the cancel comes between plan and result of a step."""
    fails: bool = False
    """Whether a fault ends it after its first token."""


@dataclass
class TinyEngine:
    """Both pools of an engine as lists, and the checks that hold after every step."""

    config: SchedulerConfig
    choose: random.Random
    scheduler: Scheduler = field(init=False)
    outputs: dict[int, list[int]] = field(default_factory=lambda: {})
    asked: dict[int, Asked] = field(default_factory=lambda: {})
    drafter_len: dict[int, int] = field(default_factory=lambda: {})
    num_preempted: int = 0
    broken: list[int] = field(default_factory=lambda: [])
    first_admissions: list[int] = field(default_factory=lambda: [])

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.config)
        self.target_pool = [-1] * self.config.num_rows
        self.drafter_pool = [-1] * self.config.num_rows

    def submit(self, key: int, asked: Asked) -> None:
        self.scheduler.submit(key, asked.prompt, asked.max_tokens)
        self.asked[key] = asked

    def step(self, canceled_inside: Sequence[int] = ()) -> None:
        """One step; requests `canceled_inside` leave while their rows are being written."""
        scheduler = self.scheduler
        oldest = next(iter((*scheduler.running, *scheduler.waiting)), None)
        ran_before = scheduler.running
        plan = scheduler.plan()
        for move in plan.moves:
            assert move.count > 0 and move.source != move.destination
            for pool in (self.target_pool, self.drafter_pool):
                rows = pool[move.source : move.source + move.count]
                pool[move.destination : move.destination + move.count] = rows
        for admission in plan.admitted:
            self.drafter_len[admission.key] = admission.num_reused
            if admission.key not in self.first_admissions:
                self.first_admissions.append(admission.key)
        self.check()

        # No starvation: whoever has an anchor takes part, and the oldest always gets on.
        chunk_keys = [chunk.key for chunk in plan.prefill]
        assert oldest is None or oldest in (*plan.decoding, *chunk_keys)
        assert set(plan.decoding) | set(chunk_keys) <= set(scheduler.running)
        assert list(plan.decoding) == sorted(plan.decoding)
        for key in ran_before:
            assert (key in plan.preempted) != (key in scheduler.running)
        limit = self.config.prefill_rows if plan.decoding else self.config.prefill_rows_alone
        assert sum(chunk.count for chunk in plan.prefill) <= limit
        self.num_preempted += len(plan.preempted)

        for key in canceled_inside:
            if key in scheduler.running:
                start = scheduler.base(key) + scheduler.context_len(key)
                block = [98] * self.config.rows_ahead
                self.target_pool[start : start + len(block)] = block
            self.cancel(key)
        for chunk in plan.prefill:
            if chunk.key in self.asked:
                self.prefill(chunk)
        for key in plan.decoding:
            if key in self.asked:
                self.decode(key)
        self.check()

    def break_off(self) -> None:
        """A step that dies in the middle of its moves: those that run get an error."""
        moves = self.scheduler.plan().moves
        for move in moves[: len(moves) // 2]:
            self.target_pool[move.destination : move.destination + move.count] = [97] * move.count
        for key in self.scheduler.running:
            self.scheduler.fail(key)
            self.broken.append(key)
            del self.asked[key]
        self.scheduler.forget_kept()
        self.check()
        assert self.scheduler.rows_used == 0

    def prefill(self, chunk: PrefillChunk) -> None:
        scheduler, key = self.scheduler, chunk.key
        assert chunk.start == scheduler.context_len(key) and chunk.count > 0
        ids = scheduler.known_ids(key)[chunk.start : chunk.start + chunk.count]
        start = scheduler.base(key) + chunk.start
        self.target_pool[start : start + chunk.count] = ids
        covered = self.extend_drafter(key, chunk.start + chunk.count)
        scheduler.advance_prefill(key, chunk.count, covered)
        assert chunk.needs_token == (chunk.is_last and scheduler.num_emitted(key) == 0)
        if chunk.needs_token:
            token = next_token(self.rows(self.target_pool, key, chunk.start + chunk.count))
            scheduler.first_token(key, token)
            self.settle(key)

    def decode(self, key: int) -> None:
        scheduler = self.scheduler
        context_len, anchor = scheduler.context_len(key), scheduler.known_ids(key)[-1]
        context = self.rows(self.target_pool, key, context_len)
        num_left = self.asked[key].max_tokens - scheduler.num_emitted(key)
        num_kept = self.choose.randint(1, min(self.config.rows_ahead, num_left))
        fed = [anchor]
        for _ in range(num_kept - 1):
            fed.append(next_token([*context, *fed]))
        emitted = [*fed[1:], next_token([*context, *fed])]
        # Rejected rows are written too: the whole block must lie in the request's own rows.
        fed += [99] * (self.config.rows_ahead - num_kept)
        start = scheduler.base(key) + context_len
        self.target_pool[start : start + len(fed)] = fed
        covered = self.extend_drafter(key, context_len + num_kept, (*context, *fed))
        scheduler.commit(key, num_kept, emitted, covered)
        self.settle(key)

    def extend_drafter(self, key: int, length: int, ids: Sequence[int] | None = None) -> int:
        """Complete some more rows of the drafter; its features may be buffered for a while."""
        old = self.drafter_len[key]
        if self.choose.random() < 0.02:
            self.drafter_len[key] = 0  # a fault: what the drafter has of it is unknown
            return 0
        new = self.choose.choice((old, length, length))
        known = self.scheduler.known_ids(key) if ids is None else ids
        base = self.scheduler.base(key)
        self.drafter_pool[base + old : base + new] = known[old:new]
        self.drafter_len[key] = new
        return new

    def settle(self, key: int) -> None:
        scheduler, asked = self.scheduler, self.asked[key]
        if asked.fails:
            scheduler.fail(key)
            del self.asked[key]
        elif scheduler.num_emitted(key) == asked.max_tokens:
            self.outputs[key] = list(scheduler.known_ids(key)[len(asked.prompt) :])
            scheduler.finish(key)
            del self.asked[key]

    def cancel(self, key: int) -> None:
        assert self.scheduler.cancel(key) == (key in self.asked)
        self.asked.pop(key, None)

    def rows(self, pool: list[int], key: int, length: int) -> list[int]:
        base = self.scheduler.base(key)
        return pool[base : base + length]

    def check(self) -> None:
        scheduler = self.scheduler
        scheduler.audit()
        assert scheduler.num_running + scheduler.num_waiting == len(self.asked)
        for key in scheduler.running:
            length = scheduler.context_len(key)
            known = list(scheduler.known_ids(key))
            assert self.rows(self.target_pool, key, length) == known[:length]
            covered = self.drafter_len[key]
            assert self.rows(self.drafter_pool, key, covered) == known[:covered]


def serve(
    config: SchedulerConfig,
    requests: Sequence[Asked],
    seed: int = 0,
    breaks_at: int | None = None,
) -> TinyEngine:
    """Run all requests to their ends; keys are their places in `requests`.

    Step `breaks_at` dies halfway.
    """
    engine = TinyEngine(config, random.Random(seed))
    arrivals: list[tuple[int, int]] = []
    now = 0
    for key, asked in enumerate(requests):
        now += asked.gap
        arrivals.append((now, key))
    bound = now + sum(len(a.prompt) + 2 * a.max_tokens + 2 for a in requests)
    cancels: dict[int, list[int]] = {}
    for step in range(bound + 1):
        while arrivals and arrivals[0][0] <= step:
            key = arrivals.pop(0)[1]
            engine.submit(key, requests[key])
            after = requests[key].cancel_after
            if after is not None:
                cancels.setdefault(step + after, []).append(key)
        leaving = cancels.pop(step, [])
        for key in leaving:
            if not requests[key].is_canceled_inside:
                engine.cancel(key)
                engine.check()
        if not arrivals and not engine.asked:
            break
        if step == breaks_at:
            engine.break_off()
        engine.step([key for key in leaving if requests[key].is_canceled_inside])
    assert not arrivals and not engine.asked, "starved"
    assert engine.first_admissions == sorted(engine.first_admissions)
    assert engine.scheduler.rows_used == engine.scheduler.rows_kept
    engine.scheduler.forget_kept()
    assert engine.scheduler.rows_used == 0 and engine.scheduler.num_running == 0
    return engine


@st.composite
def workloads(draw: st.DrawFn) -> tuple[SchedulerConfig, list[Asked]]:
    rows_ahead = draw(st.integers(1, 5))
    page_rows = draw(st.integers(1, 5))
    num_rows = draw(st.integers(rows_ahead + 2 * page_rows + 2, 90))
    config = SchedulerConfig(
        num_slots=draw(st.integers(1, 5)),
        num_rows=num_rows,
        max_context=draw(st.integers(4, 60)),
        page_rows=page_rows,
        rows_ahead=rows_ahead,
        prefill_rows=draw(st.integers(1, 6)),
        prefill_rows_alone=draw(st.integers(1, 20)),
        reuse_prefixes=draw(st.sampled_from((True, True, False))),
    )
    limit = min(config.max_context, config.total_rows - rows_ahead)
    start = draw(st.lists(st.integers(0, 3), max_size=20))
    requests: list[Asked] = []
    for _ in range(draw(st.integers(1, 10))):
        rest = draw(st.lists(st.integers(0, 3), min_size=1, max_size=12))
        prompt = tuple([*start[: draw(st.integers(0, 20))], *rest][: limit - 1])
        requests.append(
            Asked(
                prompt,
                max_tokens=draw(st.integers(1, min(20, limit - len(prompt)))),
                gap=draw(st.integers(0, 4)),
                cancel_after=draw(st.none() | st.integers(0, 12)),
                is_canceled_inside=draw(st.booleans()),
                fails=draw(st.sampled_from((False, False, False, True))),
            )
        )
    return config, requests


@settings(max_examples=150, deadline=None)
@given(workloads(), st.integers(0, 9999), st.none() | st.integers(0, 30))
def test_every_request_gets_its_own_tokens_and_everything_is_given_back(
    workload: tuple[SchedulerConfig, list[Asked]], seed: int, breaks_at: int | None
) -> None:
    """B28, R09: joins, cancels, faults, lags and tiny budgets change no token and leak no row."""
    config, requests = workload
    engine = serve(config, requests, seed, breaks_at)
    for key, asked in enumerate(requests):
        if asked.cancel_after is None and not asked.fails and key not in engine.broken:
            assert engine.outputs[key] == continue_prompt(asked.prompt, asked.max_tokens)
    counters = engine.scheduler.prefix_counters
    assert counters.hits <= counters.lookups
    assert counters.hit_rows >= counters.hits * config.page_rows
    assert counters.hit_rows <= counters.prompt_rows
    if not config.reuse_prefixes:
        assert counters == PrefixCounters()


@settings(max_examples=50, deadline=None)
@given(workloads(), st.randoms(use_true_random=False))
def test_the_order_of_arrival_changes_no_tokens(
    workload: tuple[SchedulerConfig, list[Asked]], choose: random.Random
) -> None:
    config, requests = workload
    requests = [replace(asked, cancel_after=None, fails=False) for asked in requests]
    places = list(range(len(requests)))
    choose.shuffle(places)
    straight = serve(config, requests).outputs
    shuffled = serve(config, [requests[place] for place in places], seed=1).outputs
    assert {place: shuffled[i] for i, place in enumerate(places)} == straight


@pytest.mark.parametrize("reuse_prefixes", [True, False])
def test_five_hundred_requests_leave_all_rows_free(reuse_prefixes: bool) -> None:
    """B28: the pool is as large after 500 requests, a third of them canceled, as at the start."""
    choose = random.Random(3)
    system = tuple(choose.randrange(LIMIT_TOKENS) for _ in range(12))
    requests = [
        Asked(
            system + tuple(choose.randrange(LIMIT_TOKENS) for _ in range(choose.randint(1, 8))),
            max_tokens=choose.randint(1, 30),
            gap=choose.randint(0, 2),
            cancel_after=choose.choice((None, None, choose.randint(0, 20))),
        )
        for _ in range(500)
    ]
    config = replace(CONFIG, max_context=50, rows_ahead=2, reuse_prefixes=reuse_prefixes)
    engine = serve(config, requests)
    counters = engine.scheduler.prefix_counters
    if reuse_prefixes:
        assert counters.hits > 300 and counters.hit_rows > counters.prompt_rows // 2
    assert engine.num_preempted > 0


def run_until_idle(engine: TinyEngine) -> None:
    while engine.asked:
        engine.step()


def tiny(config: SchedulerConfig = CONFIG) -> TinyEngine:
    return TinyEngine(config, random.Random(0))


PROMPT = (1, 2, 3, 0, 1, 2, 3, 3, 2, 1)


def test_a_prompt_is_fed_in_chunks_while_others_decode() -> None:
    engine = tiny()
    engine.submit(0, Asked(PROMPT, max_tokens=20))
    plan_before = engine.scheduler.num_waiting
    engine.step()
    assert (plan_before, engine.scheduler.num_running) == (1, 1)
    engine.submit(1, Asked((3,) * 9, max_tokens=2))
    plan = engine.scheduler.plan()
    assert plan.decoding == (0,)
    assert plan.prefill == (PrefillChunk(1, 0, 5, is_last=False, needs_token=False),)
    assert plan.admitted == (Admission(1, 0),)


def test_with_little_room_a_new_request_waits_and_does_not_displace_others() -> None:
    engine = tiny(replace(CONFIG, num_rows=32))
    engine.submit(0, Asked(PROMPT, max_tokens=18))
    engine.submit(1, Asked(PROMPT, max_tokens=18))
    engine.step()
    assert engine.scheduler.running == (0,) and engine.scheduler.waiting == (1,)
    assert engine.scheduler.context_len(1) == 0
    run_until_idle(engine)
    assert engine.num_preempted == 0


def test_more_requests_than_slots_are_queued_in_order() -> None:
    engine = tiny(replace(CONFIG, num_rows=1000))
    for key in range(5):
        engine.submit(key, Asked((key % 4, 1), max_tokens=3))
    engine.step()
    assert engine.scheduler.running == (0, 1, 2) and engine.scheduler.waiting == (3, 4)


def test_the_youngest_is_preempted_and_resumes_where_it_was() -> None:
    config = replace(CONFIG, num_rows=100, max_context=90, rows_ahead=2, reuse_prefixes=False)
    engine = tiny(config)
    engine.submit(0, Asked(PROMPT, max_tokens=60))
    engine.submit(1, Asked(PROMPT[::-1], max_tokens=60))
    while not engine.num_preempted:
        engine.step()
    assert engine.scheduler.running == (0,) and engine.scheduler.waiting == (1,)
    assert engine.scheduler.num_emitted(1) > 0 and engine.scheduler.context_len(1) == 0
    run_until_idle(engine)
    assert engine.outputs[1] == continue_prompt(PROMPT[::-1], 60)


def finish_one(engine: TinyEngine, key: int, prompt: tuple[int, ...], max_tokens: int = 1) -> None:
    """Serve a request alone, with every drafter row complete."""
    scheduler = engine.scheduler
    scheduler.submit(key, prompt, max_tokens)
    while scheduler.is_live(key):
        plan = scheduler.plan()
        for chunk in plan.prefill:
            scheduler.advance_prefill(key, chunk.count, chunk.start + chunk.count)
            if chunk.needs_token:
                scheduler.commit(key, 0, [0], chunk.start + chunk.count)
        for _ in plan.decoding:
            scheduler.commit(key, 1, [0], scheduler.context_len(key) + 1)
        if scheduler.num_emitted(key) == max_tokens:
            scheduler.finish(key)
        scheduler.audit()


def test_kept_content_is_copied_and_at_least_one_row_is_fed() -> None:
    engine = tiny()
    finish_one(engine, 0, PROMPT)
    assert engine.scheduler.rows_kept == 12  # ten rows in whole pages
    engine.scheduler.submit(1, PROMPT, 3)
    plan = engine.scheduler.plan()
    assert plan.admitted == (Admission(1, 9),)
    assert plan.moves == (Move(0, engine.scheduler.base(1), 9),)
    assert plan.prefill == (PrefillChunk(1, 9, 1, is_last=True, needs_token=True),)
    assert engine.scheduler.prefix_counters == PrefixCounters(2, 1, 9, 20)


def test_a_conversation_that_goes_on_takes_the_rows_over() -> None:
    engine = tiny()
    finish_one(engine, 0, PROMPT)
    engine.scheduler.submit(1, (*PROMPT, 0, 1, 1), 3)
    plan = engine.scheduler.plan()
    assert plan.moves == () and engine.scheduler.base(1) == 0
    assert plan.admitted == (Admission(1, 10),) and engine.scheduler.rows_kept == 0


def test_without_room_for_two_the_source_is_taken_over_too() -> None:
    engine = tiny(replace(CONFIG, num_rows=32))
    finish_one(engine, 0, (*PROMPT, 1, 1, 1))
    engine.scheduler.submit(1, (*PROMPT, 2, 2), 10)
    assert engine.scheduler.plan().admitted == (Admission(1, 10),)
    assert engine.scheduler.rows_kept == 0
    engine.scheduler.audit()


def test_running_requests_are_sources_too() -> None:
    engine = tiny()
    engine.scheduler.submit(0, PROMPT, 3)
    chunk = engine.scheduler.plan().prefill[0]
    engine.scheduler.advance_prefill(0, chunk.count, 8)  # the drafter lags behind
    engine.scheduler.first_token(0, 1)
    engine.scheduler.submit(1, PROMPT, 3)
    assert engine.scheduler.plan().admitted == (Admission(1, 8),)


def test_a_source_between_holes_is_moved_before_it_is_copied() -> None:
    engine = tiny()
    finish_one(engine, 0, (0,) * 13)
    finish_one(engine, 1, PROMPT * 2)
    engine.scheduler.submit(2, (*PROMPT, *(0,) * 16), 2)
    plan = engine.scheduler.plan()
    assert plan.moves == (Move(16, 0, 20), Move(0, 20, 10))
    assert plan.admitted == (Admission(2, 10),)
    engine.scheduler.audit()


def test_rows_that_the_drafter_lost_are_no_source() -> None:
    engine = tiny()
    engine.scheduler.submit(0, PROMPT, 3)
    engine.scheduler.plan()
    engine.scheduler.advance_prefill(0, 9, 9)
    engine.scheduler.advance_prefill(0, 1, 0)
    engine.scheduler.first_token(0, 1)
    engine.scheduler.submit(1, PROMPT, 3)
    assert engine.scheduler.plan().admitted == (Admission(1, 0),)


def test_of_equal_contents_one_is_kept_and_the_longer_one_of_two() -> None:
    engine = tiny()
    finish_one(engine, 0, PROMPT, max_tokens=5)
    rows_kept = engine.scheduler.rows_kept
    finish_one(engine, 1, PROMPT, max_tokens=5)
    assert engine.scheduler.rows_kept == rows_kept == 16
    finish_one(engine, 2, PROMPT, max_tokens=9)
    assert engine.scheduler.rows_kept == 20


def test_least_recently_used_content_goes_first() -> None:
    engine = tiny()
    for key, first in enumerate((1, 2, 3)):
        finish_one(engine, key, (first, *PROMPT))
    for key, first in ((3, 1), (4, 2)):
        engine.scheduler.submit(key, (first, *PROMPT), 2)
        assert engine.scheduler.plan().admitted == (Admission(key, 10),)
        engine.scheduler.cancel(key)
    engine.scheduler.submit(5, (0,) * 30, 2)
    engine.scheduler.plan()
    engine.scheduler.cancel(5)
    for key, first, hit in ((6, 1, 10), (7, 2, 10), (8, 3, 0)):
        engine.scheduler.submit(key, (first, *PROMPT), 1)
        assert engine.scheduler.plan().admitted == (Admission(key, hit),)
        engine.scheduler.cancel(key)


def test_content_shorter_than_a_page_is_not_kept() -> None:
    engine = tiny()
    finish_one(engine, 0, (1, 2, 3))
    assert engine.scheduler.rows_used == 0


def test_cancel_and_fail_tell_whether_there_was_something() -> None:
    """R09: at any point, and twice."""
    scheduler = Scheduler(CONFIG)
    scheduler.submit(0, PROMPT, 3)
    assert scheduler.cancel(0) and not scheduler.cancel(0)
    scheduler.submit(1, PROMPT, 3)
    scheduler.plan()
    assert scheduler.rows_used > 0
    scheduler.fail(1)
    assert scheduler.rows_used == 0 and scheduler.rows_total == 64
    with pytest.raises(KeyError):
        scheduler.fail(1)


def test_a_step_that_lost_a_first_token_is_noticed() -> None:
    scheduler = Scheduler(CONFIG)
    scheduler.submit(0, PROMPT, 3)
    scheduler.plan()
    scheduler.advance_prefill(0, len(PROMPT), 0)
    with pytest.raises(AssertionError, match="first token"):
        scheduler.plan()


@pytest.mark.parametrize(
    ("prompt_len", "max_tokens", "words"),
    [
        (0, 1, "at least 1"),
        (5, 0, "at least 1"),
        (40, 1, "at most 39 fit"),
        (30, 11, "only 10 fit behind a prompt of 30"),
    ],
)
def test_what_can_never_run_is_refused(prompt_len: int, max_tokens: int, words: str) -> None:
    scheduler = Scheduler(CONFIG)
    with pytest.raises(RequestError, match=words) as raised:
        scheduler.submit(0, [1] * prompt_len, max_tokens)
    assert "\n" not in str(raised.value)
    assert not scheduler.is_live(0)


def test_the_limit_is_the_smaller_of_context_and_rows() -> None:
    assert Scheduler(CONFIG).limit(10) == 30
    assert Scheduler(replace(CONFIG, num_rows=33)).limit(10) == 32 - 4 - 10


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_slots": 0}, "num_slots is 0 but must be at least 1"),
        ({"prefill_rows": -1}, "prefill_rows is -1"),
        ({"num_rows": 7}, "num_rows is 7 .whole pages: 4. but one request needs at least 6"),
        ({"max_context": 1}, "max_context is 1"),
    ],
)
def test_contradictory_limits_are_refused(changes: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        replace(CONFIG, **changes)
