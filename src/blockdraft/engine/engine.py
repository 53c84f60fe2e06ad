"""`Engine`: continuous batching, one `step()` at a time: plan, draft, verify, commit.

It owns no models (the two sides do), no rows (the scheduler does) and no thread: whoever calls
`step` drives it. docs/engine.md walks through a step.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import cast

from blockdraft.decoding.interfaces import TargetSpec
from blockdraft.decoding.params import SamplingParams
from blockdraft.decoding.request import open_request
from blockdraft.decoding.stats import AcceptanceStats
from blockdraft.decoding.text import DecodeText
from blockdraft.engine.alarm import AcceptanceAlarm
from blockdraft.engine.context import DrafterContexts
from blockdraft.engine.plan import PrefixCounters
from blockdraft.engine.running import Event, Failed, Running
from blockdraft.engine.scheduler import Scheduler
from blockdraft.engine.sides import DraftSide, TargetSide
from blockdraft.engine.step import Step
from blockdraft.engine.width import StepOutcome, WidthController
from blockdraft.errors import EngineFault, RequestError

_LOGGER = logging.getLogger("blockdraft")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """What an engine is made of. `drafts` None: plain decoding, nothing is tapped.

    `reuses`: whether prefixes are, so that what the drafter lacks at the end is worth computing.
    `observe` is told of every step that decoded, as the width control is.
    """

    spec: TargetSpec
    target: TargetSide
    drafts: DraftSide | None
    scheduler: Scheduler
    controller: WidthController
    alarm: AcceptanceAlarm
    reuses: bool = True
    decode_text: DecodeText | None = None
    clock: Callable[[], float] = time.perf_counter
    observe: Callable[[StepOutcome], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Figures since the engine was made; `acceptance` covers requests that ended with an answer."""

    acceptance: AcceptanceStats
    prefixes: PrefixCounters
    widths: dict[str, dict[str, int]]
    steps: int
    num_preempted: int
    drafter_failures: int
    faults: int
    num_running: int
    num_waiting: int
    rows_used: int
    rows_kept: int
    rows_total: int


class Engine:
    """Serves many requests; each gets exactly the tokens that the reference decoder would give."""

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self._contexts = None if parts.drafts is None else DrafterContexts(parts.drafts)
        self._requests: dict[int, Running] = {}
        self._keys = count()
        self._acceptance = AcceptanceStats()
        self._steps = self._num_preempted = self._drafter_failures = self._faults = 0
        warning = parts.controller.clamp_warning
        if warning is not None:
            _LOGGER.warning(warning)

    @property
    def has_work(self) -> bool:
        """Whether any request waits or runs."""
        return bool(self._requests)

    @property
    def scheduler(self) -> Scheduler:
        """For looking at; only the engine may change it."""
        return self._parts.scheduler

    def submit(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        decode_text: DecodeText | None = None,
    ) -> int:
        """Queue a request; its key. Raises RequestError for one that can't be served.

        `decode_text` makes this request's text, None = as the engine's other requests.
        """
        for token_id in cast(Sequence[object], prompt_ids):
            if isinstance(token_id, bool) or not isinstance(token_id, int):
                raise RequestError(f"the prompt holds {token_id!r}; token ids are whole numbers")
        scheduler = self._parts.scheduler
        limit = scheduler.limit(len(prompt_ids))
        if limit >= 1:
            params = replace(params, max_new_tokens=min(params.max_new_tokens, limit))
        decode_text = decode_text or self._parts.decode_text
        request = open_request(self._parts.spec, prompt_ids, params, decode_text)
        key = next(self._keys)
        scheduler.submit(key, prompt_ids, request.emission.remaining)
        self._requests[key] = Running(key, params, request, len(prompt_ids))
        return key

    def cancel(self, key: int) -> None:
        """Drop a request at any point; slot and rows are free at once (unknown keys too)."""
        if self._requests.pop(key, None) is None:
            return
        self._parts.scheduler.cancel(key)
        self._forget(key)

    def step(self) -> list[Event]:
        """Run one step; what it did to each request, in order of arrival.

        A fault inside the step (not of one request) fails the running requests; those that wait
        go on, and so does the engine.
        """
        if not self._requests:
            return []
        self._steps += 1
        step = Step(self._parts, self._contexts, self._requests)
        try:
            events = step.run()
        except Exception as error:
            _LOGGER.error("a step of the engine failed; its requests are given up", exc_info=error)
            events = self._give_up(error, step.outcomes)
        except BaseException as interrupt:
            # Half a step is carried out (Ctrl-C): whatever it may have touched is dropped.
            for event in self._give_up(interrupt, {}):
                self._take_leave(event)
            raise
        self._num_preempted += step.num_preempted
        self._drafter_failures += step.drafter_failed
        for event in events:
            self._take_leave(event)
        return events

    def knows(self, key: int) -> bool:
        """Whether a request waits or runs: it has not ended, failed or been canceled."""
        return key in self._requests

    def stats(self) -> EngineStats:
        scheduler = self._parts.scheduler
        return EngineStats(
            acceptance=self._acceptance,
            prefixes=scheduler.prefix_counters,
            widths=self._parts.controller.stats.as_dict(),
            steps=self._steps,
            num_preempted=self._num_preempted,
            drafter_failures=self._drafter_failures,
            faults=self._faults,
            num_running=scheduler.num_running,
            num_waiting=scheduler.num_waiting,
            rows_used=scheduler.rows_used,
            rows_kept=scheduler.rows_kept,
            rows_total=scheduler.rows_total,
        )

    def _give_up(self, error: BaseException, outcomes: Mapping[int, Event]) -> list[Event]:
        """Fail every running request after a fault that is nobody's in particular."""
        self._faults += 1
        scheduler = self._parts.scheduler
        running = frozenset(scheduler.running)
        fault = EngineFault(
            f"the engine failed in a step of this request ({type(error).__name__}: {error}); "
            "send it again, and report the traceback in the log if it happens again"
        )
        events: list[Event] = []
        for key in self._requests:
            if key in running:
                scheduler.fail(key)
            elif scheduler.is_live(key):
                # It waits; if this very step preempted it, its states are still there.
                self._forget_states(key)
                continue
            # Those that are not live ended in this very step, before it broke off.
            ended = None if key in running else outcomes.get(key)
            events.append(Event(key, Failed(fault)) if ended is None else ended)
        # Kept rows may be half moved.
        scheduler.forget_kept()
        return events

    def _take_leave(self, event: Event) -> None:
        """Forget a request whose last event this is."""
        if isinstance(event.outcome, Failed):
            self._requests.pop(event.key, None)
            self._forget(event.key)
        elif event.outcome.finish_reason is not None:
            self._acceptance = self._acceptance.merge(event.outcome.stats)
            del self._requests[event.key]
            self._forget(event.key)

    def _forget(self, key: int) -> None:
        self._parts.controller.forget(key)
        self._forget_states(key)

    def _forget_states(self, key: int) -> None:
        self._parts.target.forget(key)
        if self._contexts is not None:
            self._contexts.forget(key)
