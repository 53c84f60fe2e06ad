"""`Scheduler`: which requests run, which rows they feed in the next step, and where those rows lie.

Pure Python on numbers: it runs no model, knows no text and no sampling, and copies no rows itself.

A step of the engine: `plan()`, execute the moves, one pass over chunks and decoding rows, then
`advance_prefill`, `first_token` and `commit` for what the pass did, `finish` or `fail` for whom it
ended. `submit` and `cancel` may come between any two of these. Rows that are given back in the
middle of a step are not handed out again before the next `plan()`.

Order: requests run in the order of arrival, so at any time those that run arrived before those
that wait. A preempted request is the one that arrived last among the running, and waits in front.
The one that arrived first is never preempted, which is why everyone finishes.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from blockdraft.engine.extents import Move
from blockdraft.engine.ledger import RowLedger
from blockdraft.engine.plan import (
    Admission,
    PrefillChunk,
    PrefixCounters,
    SchedulerConfig,
    StepPlan,
)
from blockdraft.engine.tracked import TrackedRequest
from blockdraft.errors import RequestError


class Scheduler:
    """Keys name requests; each is used once. All lengths are in tokens = rows."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self._ledger = RowLedger(config)
        self._waiting: OrderedDict[int, TrackedRequest] = OrderedDict()
        self._running: dict[int, TrackedRequest] = {}

    def limit(self, prompt_len: int) -> int:
        """How many tokens a request with that prompt may emit; below 1 = it can't be served."""
        config = self._config
        return min(config.max_context, config.total_rows - config.rows_ahead) - prompt_len

    def submit(self, key: int, prompt_ids: Sequence[int], max_tokens: int) -> None:
        """Queue a request. Raises RequestError when it could never run to its end."""
        assert not self.is_live(key) and not self._ledger.is_kept(key)
        prompt_len, limit = len(prompt_ids), self.limit(len(prompt_ids))
        if prompt_len < 1 or max_tokens < 1:
            raise RequestError(
                f"the prompt has {prompt_len} tokens and {max_tokens} new tokens are asked for; "
                "both must be at least 1"
            )
        if limit < 1:
            raise RequestError(
                f"the prompt has {prompt_len} tokens but at most {prompt_len + limit - 1} fit; "
                "shorten it, or give the engine a larger context (--max-context, --kv-memory)"
            )
        if max_tokens > limit:
            raise RequestError(
                f"{max_tokens} new tokens are asked for but only {limit} fit behind a prompt of "
                f"{prompt_len}; ask for fewer, or give the engine a larger context (--max-context, "
                "--kv-memory)"
            )
        self._waiting[key] = TrackedRequest(
            key=key,
            prompt_len=prompt_len,
            max_tokens=max_tokens,
            rows_ahead=self._config.rows_ahead,
            known=list(prompt_ids),
            prefill_len=prompt_len,
        )

    def cancel(self, key: int) -> bool:
        """Drop a request at any point, with its slot and rows; False when it is not live."""
        if self._waiting.pop(key, None) is not None:
            return True
        if self._running.pop(key, None) is None:
            return False
        self._ledger.release(key)
        return True

    def fail(self, key: int) -> None:
        """Drop a live request because of a fault. Raises KeyError when it is not live."""
        if not self.cancel(key):
            raise KeyError(key)

    def finish(self, key: int) -> None:
        """End a running request; its complete rows stay as kept content until others need them."""
        self._ledger.keep(self._running.pop(key))

    def forget_kept(self) -> None:
        """Give back all kept contents (after a step that broke off: they may be half moved)."""
        self._ledger.forget_kept()

    def plan(self) -> StepPlan:
        """Decide the next step. Every running request that has an anchor takes part in it.

        Nothing may be pending: the results of the step before are reported, or its requests failed.
        """
        moves: list[Move] = []
        preempted = self._grow(moves)
        decoding = tuple(r.key for r in self._running.values() if not r.is_prefilling)
        assert all(self._running[key].num_emitted for key in decoding), "a first token is missing"
        config = self._config
        num_left = config.prefill_rows if decoding else config.prefill_rows_alone
        chunks: list[PrefillChunk] = []
        admitted: list[Admission] = []
        for request in self._feeding(moves, admitted, may_admit=not preempted):
            start = request.context_len
            was_decoded = start >= request.prompt_len
            end = request.prefill_len if was_decoded else request.prompt_len
            count = min(num_left, end - start)
            is_last = start + count == request.prefill_len
            needs_token = is_last and not request.num_emitted
            chunks.append(
                PrefillChunk(request.key, start, count, is_last, needs_token, was_decoded)
            )
            num_left -= count
            if not num_left:
                break
        return StepPlan(tuple(moves), tuple(chunks), decoding, preempted, tuple(admitted))

    def advance_prefill(self, key: int, count: int, drafter_rows: int) -> None:
        """A chunk of `count` rows was fed; the drafter's rows [0, drafter_rows) are complete."""
        request = self._running[key]
        assert request.context_len + count <= request.prefill_len
        self._advance(request, count, drafter_rows)

    def first_token(self, key: int, token_id: int) -> None:
        """The last chunk of a fresh request decided its first token."""
        request = self._running[key]
        assert not request.is_prefilling and not request.num_emitted
        request.known.append(token_id)

    def commit(self, key: int, num_rows: int, new_ids: Sequence[int], drafter_rows: int) -> None:
        """A decoding request emitted `new_ids` and kept `num_rows` of the rows it fed.

        The last known id is the anchor again. `drafter_rows` as in `advance_prefill`; it may lag
        behind the context while features are buffered, and fall back after a fault of the drafter.
        """
        request = self._running[key]
        assert not request.is_prefilling
        request.known.extend(new_ids)
        assert request.context_len + num_rows == len(request.known) - 1
        self._advance(request, num_rows, drafter_rows)

    def is_live(self, key: int) -> bool:
        """Whether a request waits or runs."""
        return key in self._waiting or key in self._running

    def base(self, key: int) -> int:
        """The first row of a running request, valid until the next `plan()`."""
        return self._ledger.extent(key).base

    def context_len(self, key: int) -> int:
        """The rows of a live request that are committed; 0 while it waits."""
        return self._live(key).context_len

    def known_ids(self, key: int) -> Sequence[int]:
        """Prompt and emitted tokens of a live request: a view, not to be changed."""
        return self._live(key).known

    def num_emitted(self, key: int) -> int:
        return self._live(key).num_emitted

    @property
    def running(self) -> tuple[int, ...]:
        """Keys of the running requests, in order of arrival."""
        return tuple(self._running)

    @property
    def waiting(self) -> tuple[int, ...]:
        """Keys of the waiting requests, in order of arrival."""
        return tuple(self._waiting)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def rows_used(self) -> int:
        """Rows of running requests and of kept contents."""
        return self._ledger.rows_used

    @property
    def rows_kept(self) -> int:
        """Rows of kept contents, which are free for whoever needs them."""
        return self._ledger.rows_kept

    @property
    def rows_total(self) -> int:
        return self._ledger.rows_total

    @property
    def prefix_counters(self) -> PrefixCounters:
        return self._ledger.counters

    def audit(self) -> None:
        """Check our own invariants (tests call it after every step)."""
        self._ledger.audit(self._running.values())
        assert len(self._running) <= self._config.num_slots
        assert not self._running.keys() & self._waiting.keys()
        for request in (*self._running.values(), *self._waiting.values()):
            assert 0 <= request.num_emitted <= request.max_tokens
            assert request.context_len <= len(request.known)
            assert len(request.known) <= self._config.max_context

    def _live(self, key: int) -> TrackedRequest:
        return self._running[key] if key in self._running else self._waiting[key]

    def _advance(self, request: TrackedRequest, num_rows: int, drafter_rows: int) -> None:
        request.context_len += num_rows
        assert request.context_len <= self._ledger.extent(request.key).capacity
        assert 0 <= drafter_rows <= request.context_len
        request.drafter_len = drafter_rows
        self._ledger.record(request)

    def _grow(self, moves: list[Move]) -> tuple[int, ...]:
        """Give every decoding request room for its next rows; who had to make way for that."""
        preempted: list[int] = []
        for request in list(self._running.values()):
            while request.key in self._running and not request.is_prefilling:
                grown = self._ledger.ensure(request, self._running.values())
                if grown is not None:
                    moves.extend(grown)
                    break
                preempted.append(self._preempt_last())
        return tuple(preempted)

    def _preempt_last(self) -> int:
        key, request = self._running.popitem()
        self._ledger.release(key)
        request.restart()
        self._waiting[key] = request
        self._waiting.move_to_end(key, last=False)
        return key

    def _feeding(
        self, moves: list[Move], admitted: list[Admission], *, may_admit: bool
    ) -> Iterable[TrackedRequest]:
        """Those with rows to prefill, in order of arrival; waiting ones are admitted as asked for.

        So a request gets a slot only when the step can feed a row of it: later it may find more to
        reuse. None is admitted in a step that preempts, nor when others would soon have to make
        way for it.
        """
        yield from [r for r in self._running.values() if r.is_prefilling]
        while may_admit and self._waiting and len(self._running) < self._config.num_slots:
            request = next(iter(self._waiting.values()))
            if not self._ledger.has_room_for(request, self._running.values()):
                return
            moves.extend(self._ledger.admit(request, self._running.values()))
            self._running[request.key] = self._waiting.pop(request.key)
            admitted.append(Admission(request.key, request.context_len))
            yield request
