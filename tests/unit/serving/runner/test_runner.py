"""The engine's thread and its tickets: right answers, nothing lost, nothing left over.

A gate in the target holds steps back, so no test depends on how fast anything is.
"""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from contextvars import Context
from dataclasses import replace
from functools import cache
from typing import TypeVar, TypeVarTuple, cast

import pytest

from blockdraft.decoding import Commit, Drafter, NoDrafter, SamplingParams, collect, decode
from blockdraft.decoding.rows import RowProcessor
from blockdraft.engine import Engine, WidthMode
from blockdraft.engine.alarm import AcceptanceAlarm
from blockdraft.engine.engine import EngineParts
from blockdraft.engine.plan import SchedulerConfig
from blockdraft.engine.scheduler import Scheduler
from blockdraft.engine.sides import Feed, PassResult
from blockdraft.engine.stateful import StatefulDrafts, StatefulTarget
from blockdraft.engine.width import WidthController
from blockdraft.errors import (
    ConfigError,
    Draining,
    EngineFault,
    Error,
    Overloaded,
    RequestError,
)
from blockdraft.serving.runner import EngineRunner, Observer, RequestRecord, Ticket, Unobserved
from blockdraft.testing import ListDrafter, OracleDrafter, ScriptedTarget, hashed_logits

VOCAB = 11
SLOTS = 4
TARGET = ScriptedTarget(cache(hashed_logits(VOCAB, seed=5)), VOCAB)
PARAMS = SamplingParams(max_new_tokens=12)
HANG = 60.0

T = TypeVar("T")
Args = TypeVarTuple("Args")


class GatedTarget(StatefulTarget):
    """Passes wait for a permit while the gate is closed; the next one raises `raises`."""

    def __init__(self) -> None:
        super().__init__(TARGET, (), 1)
        self.raises: BaseException | None = None
        self._is_open = True
        self._permits = threading.Semaphore(0)
        self._entered = threading.Semaphore(0)

    def close(self) -> None:
        self._is_open = False

    def open(self) -> None:
        self._is_open = True
        self._permits.release()

    def permit(self) -> None:
        """Let one pass through."""
        self._permits.release()

    async def entered(self) -> None:
        """Wait until one more pass has come to the closed gate."""
        await asyncio.to_thread(self._entered.acquire)

    def run(self, feeds: Sequence[Feed]) -> PassResult:
        if not self._is_open:
            self._entered.release()
            self._permits.acquire()
        error, self.raises = self.raises, None
        if error is not None:
            raise error
        return super().run(feeds)


class Bench:
    """A small engine that drafts, with a gate in its target, and the runner that owns it."""

    def __init__(
        self,
        *,
        slots: int = SLOTS,
        rows: int = 400,
        max_waiting: int = 10_000,
        observer: Observer | None = None,
        drafter: Drafter | None = None,
    ) -> None:
        drafter = drafter or OracleDrafter(TARGET, 4, num_right=2)
        self.gate = GatedTarget()
        scheduler = SchedulerConfig(
            num_slots=slots,
            num_rows=rows,
            max_context=80,
            page_rows=4,
            rows_ahead=4,
            prefill_rows=16,
            prefill_rows_alone=16,
            reuse_prefixes=False,
        )
        self.engine = Engine(
            EngineParts(
                spec=TARGET.spec,
                target=self.gate,
                drafts=StatefulDrafts(drafter),
                scheduler=Scheduler(scheduler),
                controller=WidthController(WidthMode("fixed", 4), 4),
                alarm=AcceptanceAlarm(None, 4),
            )
        )
        self.runner = EngineRunner(
            self.engine, max_waiting=max_waiting, observer=observer, num_slots=slots
        )

    def submit(
        self, prompt: Sequence[int], params: SamplingParams = PARAMS
    ) -> asyncio.Task[Ticket]:
        return asyncio.create_task(self.runner.submit(prompt, params))

    def assert_empty(self) -> None:
        """B28: no slot, row or place in the queue is left over."""
        stats = self.runner.stats()
        assert (stats.num_running, stats.num_waiting, stats.rows_used) == (0, 0, stats.rows_kept)


@contextmanager
def running(bench: Bench) -> Generator[Bench, None, None]:
    bench.runner.start()
    try:
        yield bench
    finally:
        bench.gate.open()
        bench.runner.stop()
        assert not bench.runner.is_alive


def run(main: Coroutine[object, object, T]) -> T:
    """Run on a fresh event loop; the limit is only there to turn a hang into a failure."""

    async def limited() -> T:
        return await asyncio.wait_for(main, HANG)

    return asyncio.run(limited())


async def read(ticket: Ticket) -> tuple[int, ...]:
    commits = [commit async for commit in ticket]
    assert commits[-1].finish_reason is not None
    return tuple(i for commit in commits for i in commit.ids)


async def ask(
    runner: EngineRunner, prompt: Sequence[int], params: SamplingParams = PARAMS
) -> tuple[int, ...]:
    return await read(await runner.submit(prompt, params))


async def let_run() -> None:
    """Let tasks that were just created run until they wait."""
    for _ in range(3):
        await asyncio.sleep(0)


def plain_ids(prompt: Sequence[int], params: SamplingParams = PARAMS) -> tuple[int, ...]:
    return collect(prompt, decode(TARGET, NoDrafter(), prompt, params)).token_ids


def random_request(rng: random.Random, most: int = 12) -> tuple[tuple[int, ...], SamplingParams]:
    prompt = tuple(rng.randrange(VOCAB) for _ in range(rng.randint(1, most)))
    return prompt, SamplingParams(
        max_new_tokens=rng.randint(1, most),
        temperature=rng.choice([0.0, 0.9]),
        seed=rng.randrange(1000),
    )


# Answers


def test_concurrent_requests_get_the_offline_answers() -> None:
    """More requests than slots, greedy and sampled, each with the reference decoder's tokens."""
    rng = random.Random(0)
    requests = [random_request(rng) for _ in range(60)]

    async def main(bench: Bench) -> list[tuple[int, ...]]:
        return await asyncio.gather(*(ask(bench.runner, *request) for request in requests))

    with running(Bench()) as bench:
        answers = run(main(bench))
        bench.assert_empty()
    for (prompt, params), answer in zip(requests, answers, strict=True):
        assert len(answer) <= params.max_new_tokens
        if params.is_greedy:
            assert answer == plain_ids(prompt, params)
    offline = Bench().engine
    for (prompt, params), answer in zip(requests, answers, strict=True):
        key = offline.submit(prompt, params)
        ids: list[int] = []
        while offline.knows(key):
            ids += [
                i for e in offline.step() if isinstance(e.outcome, Commit) for i in e.outcome.ids
            ]
        assert tuple(ids) == answer


def test_a_slow_reader_holds_nobody_up() -> None:
    async def main(bench: Bench) -> None:
        slow = await bench.runner.submit((1, 2), PARAMS)
        for prompt in ((3,), (4, 5), (6, 7, 8)):
            assert await ask(bench.runner, prompt) == plain_ids(prompt)
        assert await bench.runner.drain(None)
        bench.assert_empty()
        assert await read(slow) == plain_ids((1, 2))

    with running(Bench(slots=2)) as bench:
        run(main(bench))


def test_what_a_ticket_tells() -> None:
    async def main(bench: Bench) -> None:
        ticket = await bench.runner.submit((1, 2, 3), PARAMS, request_id="chat-7")
        other = await bench.runner.submit((4,), PARAMS)
        assert (ticket.request_id, ticket.prompt_len) == ("chat-7", 3)
        assert ticket.key != other.key and aiter(ticket) is ticket
        await read(ticket)
        assert ticket.queue_seconds >= 0.0 and ticket.num_cached == 0
        with pytest.raises(StopAsyncIteration):
            await anext(ticket)

    with running(Bench()) as bench:
        run(main(bench))


def test_a_request_may_have_its_own_text() -> None:
    async def main(bench: Bench) -> None:
        ticket = await bench.runner.submit((1, 2), PARAMS, lambda ids: "x" * len(ids))
        commits = [commit async for commit in ticket]
        assert "".join(commit.text for commit in commits) == "x" * PARAMS.max_new_tokens

    with running(Bench()) as bench:
        run(main(bench))


def test_loops_on_several_threads_share_one_engine() -> None:
    rng = random.Random(1)
    requests = [[(random_request(rng)[0], PARAMS) for _ in range(10)] for _ in range(4)]
    got: dict[int, list[tuple[int, ...]]] = {}

    async def main(bench: Bench, which: int) -> None:
        asked = (ask(bench.runner, *request) for request in requests[which])
        got[which] = await asyncio.gather(*asked)

    def answer(bench: Bench, which: int) -> None:
        run(main(bench, which))

    with running(Bench()) as bench:
        threads = [threading.Thread(target=answer, args=(bench, which)) for which in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG)
        bench.assert_empty()
    for which in range(4):
        assert got[which] == [plain_ids(prompt) for prompt, _ in requests[which]]


# Requests that fail, are canceled or are left behind


def test_a_bad_request_is_refused_and_the_others_go_on() -> None:
    def broken() -> RowProcessor:
        raise ValueError("no such grammar")

    async def main(bench: Bench) -> None:
        good = bench.submit((1, 2))
        for prompt, params in (
            ((), PARAMS),
            ((VOCAB,), PARAMS),
            ((-1,), PARAMS),
            ((1,) * 80, PARAMS),
            ((1,), replace(PARAMS, stop_ids=(VOCAB,))),
        ):
            with pytest.raises(RequestError):
                await bench.runner.submit(prompt, params)
        with pytest.raises(RequestError, match="no such grammar"):
            await bench.runner.submit((1,), replace(PARAMS, processors=(broken,)))
        nonsense = cast(Callable[[], RowProcessor], object)
        with pytest.raises(EngineFault, match="could not be set up"):
            await bench.runner.submit((1,), replace(PARAMS, processors=(nonsense,)))
        assert await read(await good) == plain_ids((1, 2))
        bench.assert_empty()

    with running(Bench()) as bench:
        run(main(bench))


@pytest.mark.parametrize("num_commits", range(4))
def test_a_cancel_frees_the_slot_before_the_next_step(num_commits: int) -> None:
    """R09: right after submission, after the first token, in the middle."""

    async def main(bench: Bench) -> None:
        bench.gate.close()
        first = bench.submit((1, 2))
        second = bench.submit((3, 4))
        for _ in range(num_commits + 1):
            await bench.gate.entered()
            bench.gate.permit()
        await bench.gate.entered()
        ticket = await first
        for _ in range(num_commits):
            await anext(ticket)
        ticket.cancel()
        ticket.cancel()
        bench.gate.open()
        with pytest.raises(RequestError, match="canceled"):
            await anext(ticket)
        assert await read(await second) == plain_ids((3, 4))
        bench.assert_empty()

    with running(Bench(slots=1)) as bench:
        run(main(bench))


def test_a_reader_that_waits_learns_of_the_cancel() -> None:
    async def main(bench: Bench) -> None:
        bench.gate.close()
        task = bench.submit((1, 2))
        await bench.gate.entered()
        bench.gate.permit()
        await bench.gate.entered()
        ticket = await task
        await anext(ticket)
        reader = asyncio.create_task(anext_of(ticket))
        await let_run()
        ticket.cancel()
        with pytest.raises(RequestError, match="canceled"):
            await reader
        bench.gate.open()
        assert await bench.runner.drain(None)
        bench.assert_empty()

    with running(Bench()) as bench:
        run(main(bench))


async def anext_of(ticket: Ticket) -> Commit:
    return await anext(ticket)


def test_a_caller_that_no_longer_waits_for_submit_gives_the_request_up() -> None:
    async def main(bench: Bench) -> None:
        bench.gate.close()
        task = bench.submit((1, 2))
        await bench.gate.entered()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        bench.gate.open()
        assert await bench.runner.drain(None)
        bench.assert_empty()

    with running(Bench()) as bench:
        run(main(bench))


def test_a_caller_that_is_canceled_while_a_refusal_arrives() -> None:
    """Nobody is left to hear the refusal, which must not be reported as forgotten."""

    async def main(bench: Bench) -> None:
        for turns in range(4):
            task = bench.submit((VOCAB,))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises((asyncio.CancelledError, RequestError)):
                await task
        assert await bench.runner.drain(None)

    with running(Bench()) as bench:
        run(main(bench))
        bench.assert_empty()


def test_a_loop_that_was_closed_leaves_nothing_behind() -> None:
    async def leave(bench: Bench) -> None:
        await bench.runner.submit((1, 2), PARAMS)

    async def main(bench: Bench) -> None:
        assert await ask(bench.runner, (3,)) == plain_ids((3,))
        assert await bench.runner.drain(None)
        bench.assert_empty()

    with running(Bench()) as bench:
        for _ in range(3):
            run(leave(bench))
        run(main(bench))


@cache
def first_five(prompt: tuple[int, ...]) -> tuple[int, ...]:
    return plain_ids(prompt, SamplingParams(max_new_tokens=5))


@pytest.mark.slow
def test_two_thousand_requests_with_random_aborts_leave_nothing_behind() -> None:
    """B24, B28, R10: random arrival, lengths and aborts; answers that are read are right."""
    rng = random.Random(7)
    num_done = 0

    async def client(bench: Bench) -> None:
        nonlocal num_done
        while num_done < 2000:
            num_done += 1
            params = random_request(rng, most=5)[1]
            prompt = tuple(rng.randrange(3) for _ in range(rng.randint(1, 3)))
            num_read = rng.choice([0, 1, 2, 99, 99])
            task = asyncio.create_task(bench.runner.submit(prompt, params))
            if rng.random() < 0.1:
                await asyncio.sleep(0)
                task.cancel()
            try:
                ticket = await task
            except asyncio.CancelledError:
                continue
            commits: list[Commit] = []
            async for commit in ticket:
                commits.append(commit)
                if len(commits) > num_read:
                    break
            if commits[-1].finish_reason is None:
                ticket.cancel()
            elif params.is_greedy:
                ids = collect(prompt, commits).token_ids
                assert ids == first_five(prompt)[: params.max_new_tokens]

    async def main(bench: Bench) -> None:
        await asyncio.gather(*(client(bench) for _ in range(30)))
        assert await bench.runner.drain(None)
        bench.assert_empty()
        bench.engine.scheduler.audit()

    drafter = ListDrafter([(1, 2, 3)] * 5, 4)
    with running(Bench(slots=8, rows=160, drafter=drafter)) as bench:
        run(main(bench))
        assert bench.runner.stats().faults == 0


# Faults


def test_a_fault_in_a_step_fails_the_running_requests_only() -> None:
    async def main(bench: Bench) -> None:
        bench.gate.close()
        tasks = [bench.submit((i, i + 1)) for i in range(4)]
        for _ in range(2):
            await bench.gate.entered()
            bench.gate.permit()
        await bench.gate.entered()
        bench.gate.raises = RuntimeError("out of luck")
        bench.gate.open()
        for task in tasks[:2]:
            with pytest.raises(EngineFault, match="out of luck"):
                await read(await task)
        for i in (2, 3):
            assert await read(await tasks[i]) == plain_ids((i, i + 1))
        assert bench.runner.is_alive and bench.runner.is_ready
        assert "out of luck" in str(bench.runner.last_fault)
        assert bench.runner.stats().faults == 1
        bench.assert_empty()

    with running(Bench(slots=2)) as bench:
        assert bench.runner.last_fault is None
        run(main(bench))


@pytest.mark.parametrize("death", [KeyboardInterrupt(), SystemExit(3), GeneratorExit("gone")])
def test_when_the_thread_dies_everyone_is_told(death: BaseException) -> None:
    async def main(bench: Bench) -> None:
        bench.gate.close()
        tasks = [bench.submit((i,)) for i in range(3)]
        await bench.gate.entered()
        bench.gate.permit()
        await bench.gate.entered()
        tasks.append(bench.submit((9,)))
        await let_run()
        drained = asyncio.create_task(bench.runner.drain(None))
        await let_run()
        bench.gate.raises = death
        bench.gate.open()
        for task in tasks:
            with pytest.raises(EngineFault, match="thread ended"):
                await read(await task)
        assert await drained
        assert not bench.runner.is_alive and not bench.runner.is_ready
        assert type(death).__name__ in str(bench.runner.last_fault)
        with pytest.raises(EngineFault, match="restart the server"):
            await bench.runner.submit((1,), PARAMS)
        assert bench.runner.stats().num_running == bench.runner.stats().num_waiting == 0

    with running(Bench(slots=2)) as bench:
        run(main(bench))


class BrokenObserver(Unobserved):
    """Raises in the method that is named."""

    def __init__(self, method: str) -> None:
        def broken(*args: object) -> None:
            raise ArithmeticError(f"can't count {len(args)}")

        setattr(self, method, broken)


@pytest.mark.parametrize("method", ["submitted", "admitted", "committed", "stepped"])
def test_a_broken_observer_leaves_nobody_waiting(method: str) -> None:
    async def main(bench: Bench) -> None:
        tasks = [bench.submit((i,)) for i in range(3)]
        for task in tasks:
            with pytest.raises(EngineFault, match="can't count"):
                await read(await task)
        assert await bench.runner.drain(None)

    with running(Bench(slots=2, observer=BrokenObserver(method))) as bench:
        run(main(bench))


# Limits and the end


def test_a_full_queue_refuses_until_someone_leaves_it() -> None:
    async def main(bench: Bench) -> None:
        bench.gate.close()
        tasks = [bench.submit((i,)) for i in range(3)]
        await let_run()
        with pytest.raises(Overloaded, match="try again"):
            await bench.runner.submit((4,), PARAMS)
        await bench.gate.entered()
        with pytest.raises(Overloaded):
            await bench.runner.submit((4,), PARAMS)
        tasks[1].cancel()
        await let_run()
        bench.gate.permit()
        await bench.gate.entered()
        tasks.append(bench.submit((5,)))
        await let_run()
        with pytest.raises(Overloaded):
            await bench.runner.submit((6,), PARAMS)
        bench.gate.open()
        for i, prompt in ((0, (0,)), (2, (2,)), (3, (5,))):
            assert await read(await tasks[i]) == plain_ids(prompt)
        bench.assert_empty()
        assert await ask(bench.runner, (4,)) == plain_ids((4,))

    with running(Bench(slots=1, max_waiting=2)) as bench:
        run(main(bench))


def test_drain_lets_everyone_finish_and_takes_no_more() -> None:
    async def main(bench: Bench) -> None:
        bench.gate.close()
        tasks = [bench.submit((i,)) for i in range(3)]
        await bench.gate.entered()
        assert not await bench.runner.drain(0.0)
        assert bench.runner.is_alive and not bench.runner.is_ready
        with pytest.raises(Draining):
            await bench.runner.submit((4,), PARAMS)
        drained = asyncio.create_task(bench.runner.drain(None))
        await let_run()
        assert not drained.done()
        bench.gate.open()
        assert await drained
        for i, task in enumerate(tasks):
            assert await read(await task) == plain_ids((i,))
        assert await bench.runner.drain(0.0)

    with running(Bench(slots=2)) as bench:
        run(main(bench))


def test_stop_fails_what_is_left() -> None:
    async def main(bench: Bench) -> None:
        bench.gate.close()
        tasks = [bench.submit((i,)) for i in range(3)]
        await bench.gate.entered()
        bench.gate.permit()
        await bench.gate.entered()
        tasks.append(bench.submit((9,)))
        await let_run()
        stopped = asyncio.create_task(asyncio.to_thread(bench.runner.stop))
        while bench.runner.is_ready:
            await asyncio.sleep(0)
        bench.gate.open()
        await stopped
        for task in tasks:
            with pytest.raises(Draining, match="send it again"):
                await read(await task)
        with pytest.raises(Draining):
            await bench.runner.submit((1,), PARAMS)
        bench.assert_empty()

    with running(Bench(slots=2)) as bench:
        run(main(bench))
        bench.runner.stop()


def test_a_runner_that_was_not_started_refuses() -> None:
    bench = Bench()
    assert not bench.runner.is_alive and not bench.runner.is_ready
    with pytest.raises(EngineFault, match="start"):
        run(bench.runner.submit((1,), PARAMS))
    bench.runner.stop()
    with pytest.raises(ConfigError, match="at least 1"):
        EngineRunner(bench.engine, max_waiting=0)


# Thrift


def test_an_idle_engine_uses_no_processor_time() -> None:
    if not hasattr(time, "pthread_getcpuclockid"):
        pytest.skip("this system does not tell a thread's processor time")
    with running(Bench()) as bench:
        run(ask(bench.runner, (1, 2)))
        run(idle(bench))
        ident = bench.runner.thread_id
        assert ident is not None
        clock = time.pthread_getcpuclockid(ident)
        before = time.clock_gettime(clock)
        time.sleep(0.3)
        assert time.clock_gettime(clock) - before < 0.002


async def idle(bench: Bench) -> None:
    """The request before this one was handed over, so the thread goes to sleep next."""
    with pytest.raises(RequestError):
        await bench.runner.submit((), PARAMS)


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts how often other threads wake it."""

    num_wakes = 0

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.Handle:
        self.num_wakes += 1
        return super().call_soon_threadsafe(callback, *args, context=context)


def test_a_loop_is_woken_once_a_step() -> None:
    async def main(bench: Bench) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, CountingLoop)
        prompts = [(i, i + 1) for i in range(8)]
        bench.gate.close()
        tasks = [asyncio.create_task(ask(bench.runner, prompt)) for prompt in prompts]
        await let_run()
        bench.gate.open()
        assert await asyncio.gather(*tasks) == [plain_ids(prompt) for prompt in prompts]
        stats = bench.runner.stats()
        num_commits = stats.acceptance.requests + stats.acceptance.steps
        assert num_commits > loop.num_wakes > 0
        assert loop.num_wakes <= stats.steps

    with running(Bench()) as bench, asyncio.Runner(loop_factory=CountingLoop) as loop:
        loop.run(main(bench))


# What observers are told


class Journal(Unobserved):
    """What was told, by request."""

    def __init__(self) -> None:
        self.told: dict[str, list[str]] = {}
        self.refusals: list[str] = []
        self.records: list[RequestRecord] = []
        self.num_step_tokens = 0

    def refused(self, reason: str) -> None:
        self.refusals.append(reason)

    def submitted(self, record: RequestRecord) -> None:
        self.records.append(record)
        self.told[record.request_id] = ["submitted"]

    def admitted(self, record: RequestRecord) -> None:
        assert record.admitted is not None and record.admitted >= record.submitted
        self.told[record.request_id].append("admitted")

    def committed(self, record: RequestRecord, commit: Commit, now: float) -> None:
        assert record.last_token is None or record.last_token <= now
        assert record.stats.tokens == record.num_tokens
        self.told[record.request_id].append("committed")

    def ended(self, record: RequestRecord, reason: str, now: float) -> None:
        self.told[record.request_id].append(reason)

    def stepped(self, step: tuple[int, int, float]) -> None:
        self.num_step_tokens += step[0] + step[1]


def test_observers_are_told_everything_once_and_in_order() -> None:
    rng = random.Random(3)
    journal = Journal()

    async def client(bench: Bench, name: str, error: type[Error] | None) -> None:
        prompt, params = random_request(rng)
        prompt = (VOCAB,) if error else prompt
        try:
            ticket = await bench.runner.submit(prompt, params, request_id=name)
        except Error:
            return
        await anext(ticket)
        if rng.random() < 0.4:
            ticket.cancel()
        else:
            async for _ in ticket:
                pass

    async def main(bench: Bench) -> None:
        kinds = [RequestError if i % 10 == 9 else None for i in range(60)]
        clients = [client(bench, str(i), kind) for i, kind in enumerate(kinds)]
        await asyncio.gather(*clients, return_exceptions=True)
        assert await bench.runner.drain(None)
        with pytest.raises(Draining):
            await bench.runner.submit((1,), PARAMS)

    with running(Bench(rows=100, observer=journal)) as bench:
        run(main(bench))
    assert journal.refusals == ["invalid"] * 6 + ["draining"]
    assert len(journal.told) == len(journal.records) == 54
    for told in journal.told.values():
        assert told[:2] == ["submitted", "admitted"]
        assert set(told[2:-1]) <= {"committed"} and told[-1] in {"stop", "length", "abort"}
    tokens = sum(r.num_tokens + r.prompt_len for r in journal.records)
    assert journal.num_step_tokens == tokens
