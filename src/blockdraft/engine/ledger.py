"""`RowLedger`: who holds which rows, and how room is made for one more.

It keeps the books of extents, of the contents of finished requests ("kept") and of what can be
reused; who runs, waits or is preempted is the scheduler's decision.

Every change that needs rows copied returns moves. They are to be executed in the order in which
they were returned, before the next pass: each was made for the books as they stood after the one
before it. So a copy out of a content that is evicted right afterwards is fine.
"""

from collections import OrderedDict
from collections.abc import Iterable

from blockdraft.engine.extents import Extent, Move, TokenBudget
from blockdraft.engine.plan import PrefixCounters, SchedulerConfig
from blockdraft.engine.prefixes import PrefixIndex
from blockdraft.engine.tracked import TrackedRequest

SCATTERED = 8
"""How often a request must fit into the free rows, if they were one hole, before all is moved.

With fewer, a pool full of kept contents is moved every few dozen steps; more changes nothing.
"""


class RowLedger:
    """The books of one pool of rows."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._budget = TokenBudget(config.num_rows, config.page_rows)
        self._index = PrefixIndex(config.page_rows)
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._rows_kept = 0
        self._reuse = config.reuse_prefixes
        self.counters = PrefixCounters()

    @property
    def rows_used(self) -> int:
        return self._budget.num_used

    @property
    def rows_total(self) -> int:
        return self._budget.num_rows

    @property
    def rows_kept(self) -> int:
        """Rows of finished requests, which are given back whenever someone needs them."""
        return self._rows_kept

    def extent(self, key: int) -> Extent:
        """The rows of a running request or a kept content. Raises KeyError for another key."""
        return self._budget.extent(key)

    def is_kept(self, key: int) -> bool:
        return key in self._kept

    def has_room_for(self, request: TrackedRequest, running: Iterable[TrackedRequest]) -> bool:
        """Whether `request` and all of `running` could go on for some steps side by side."""
        return self._fits(request, running, num_reserved=0)

    def admit(self, request: TrackedRequest, running: Iterable[TrackedRequest]) -> list[Move]:
        """Give rows to `request` and start it with the longest reusable content.

        At least one row is left to prefill. Sets the lengths of `request`; `has_room_for` must
        have said yes.
        """
        running = list(running)
        wanted_ids = request.known[: request.prefill_len - 1]
        match = self._index.longest(wanted_ids) if self._reuse else None
        self._count(0 if match is None else match.length, request.prefill_len)
        source = None if match is None else match.key
        num_reused = 0 if match is None else match.length

        if source is not None and self._may_take_over(source, num_reused, request, running):
            self._forget(source)
            self._budget.rename(source, request.key)
            request.context_len = request.drafter_len = num_reused
            moves = self._make_room(request, running)
        else:
            if source in self._kept:
                self._kept.move_to_end(source)
            moves = self._make_room(request, running, pinned=source)
            request.context_len = request.drafter_len = num_reused
            if source is not None and moves is not None:
                held = self._budget.extent(source)
                moves.append(Move(held.base, self._budget.extent(request.key).base, num_reused))
        assert moves is not None
        self.record(request)
        return moves

    def ensure(
        self, request: TrackedRequest, running: Iterable[TrackedRequest]
    ) -> list[Move] | None:
        """Give a running request the rows it needs; None when only preemption can help."""
        if request.needed_rows <= self._budget.extent(request.key).capacity:
            return []
        others = [other for other in running if other is not request]
        return self._make_room(request, others)

    def record(self, request: TrackedRequest) -> None:
        """Note how many rows of `request` are complete, so that others may copy them."""
        if self._reuse:
            if request.reusable_len < self._index.length(request.key):
                self._index.remove(request.key)
            self._index.extend(request.key, request.known, request.reusable_len)

    def release(self, key: int) -> None:
        """Give back the rows of a running request, with what they hold."""
        self._index.remove(key)
        self._budget.free(key)

    def keep(self, request: TrackedRequest) -> None:
        """Turn a running request into kept content, or give its rows back.

        Of two contents of which one begins with the other only the longer is kept.
        """
        key, length = request.key, self._index.length(request.key)
        if length < self._budget.page_rows:
            self.release(key)
            return
        match = self._index.longest(request.known[:length], skip=key)
        if match is not None and match.key in self._kept:
            if match.length == length:
                self._kept.move_to_end(match.key)
                self.release(key)
                return
            if match.length == self._index.length(match.key):
                self._evict(match.key)
        self._budget.shrink(key, length)
        self._kept[key] = None
        self._rows_kept += self._budget.extent(key).capacity

    def forget_kept(self) -> None:
        """Give back all kept contents."""
        for key in list(self._kept):
            self._evict(key)

    def audit(self, running: Iterable[TrackedRequest]) -> None:
        """Check our own invariants: the rows belong to `running` and kept contents, no one else."""
        running = list(running)
        self._budget.audit()
        self._index.audit()
        for request in running:
            assert request.context_len <= self._budget.extent(request.key).capacity
            assert self._index.length(request.key) <= request.reusable_len
        keys = {request.key for request in running}
        assert not any(key in self._kept for key in keys)
        assert len(self._budget) == len(keys) + len(self._kept)
        assert all(key in self._budget for key in (*keys, *self._kept))
        assert len(self._index) <= len(self._budget)
        assert self._rows_kept == sum(self._budget.extent(key).capacity for key in self._kept)

    def _count(self, num_reused: int, prompt_rows: int) -> None:
        old = self.counters
        if self._reuse:
            self.counters = PrefixCounters(
                lookups=old.lookups + 1,
                hits=old.hits + (num_reused > 0),
                hit_rows=old.hit_rows + num_reused,
                prompt_rows=old.prompt_rows + prompt_rows,
            )

    def _may_take_over(
        self, source: int, length: int, request: TrackedRequest, running: list[TrackedRequest]
    ) -> bool:
        """Whether the extent itself is handed on instead of a copy of its rows.

        Only of a kept content: when all of it is wanted (a conversation that goes on: nothing is
        lost), or when there is no room for source and copy both (then it would be evicted anyway).
        """
        if source not in self._kept:
            return False
        num_reserved = self._budget.extent(source).capacity
        return length == self._index.length(source) or not self._fits(
            request, running, num_reserved
        )

    def _fits(
        self, request: TrackedRequest, running: Iterable[TrackedRequest], num_reserved: int
    ) -> bool:
        whole = self._budget.whole_pages
        rows = sum(whole(other.comfortable_rows) for other in running)
        return rows + whole(request.comfortable_rows) + num_reserved <= self._budget.num_rows

    def _make_room(
        self, request: TrackedRequest, others: list[TrackedRequest], *, pinned: int | None = None
    ) -> list[Move] | None:
        """Bring the extent of `request`, if any, to what it needs; None when that can't be done.

        The gentlest means first: free rows; kept contents but `pinned`, least recently used first;
        rows that others can spare while all stay comfortable; at last all that others can spare.
        Moving everything costs more than a kept content is worth on the average, so contents go
        first, until what is free would do many times over and is only scattered.
        """
        while True:
            moves = self._place(request)
            if moves is not None:
                return moves
            victim = next((key for key in self._kept if key != pinned), None)
            if victim is None or self._budget.num_free >= SCATTERED * request.needed_rows:
                moves = self._repack(request, others, comfortable=True)
                if moves is not None:
                    return moves
            if victim is None:
                return self._repack(request, others, comfortable=False)
            self._evict(victim)

    def _place(self, request: TrackedRequest) -> list[Move] | None:
        """Find free rows for `request` without touching anyone else's."""
        key, needed = request.key, request.needed_rows
        if key not in self._budget:
            wanted = min(request.final_rows, max(request.comfortable_rows, needed + needed // 2))
            return [] if self._budget.allocate(key, needed, wanted) else None
        wanted = min(request.final_rows, 2 * self._budget.extent(key).capacity)
        return self._budget.grow(key, needed, used_rows=request.context_len, wanted=wanted)

    def _repack(
        self, request: TrackedRequest, others: list[TrackedRequest], *, comfortable: bool
    ) -> list[Move] | None:
        """Take spare rows from all, close the holes, share out what is free then; None if too few.

        `request` is among those that share when it holds rows, else it gets the hole at the end.
        """
        whole, page_rows = self._budget.whole_pages, self._budget.page_rows
        has_rows = request.key in self._budget
        holders = [*others, request] if has_rows else others
        sizes = {
            holder.key: whole(holder.comfortable_rows if comfortable else holder.needed_rows)
            for holder in holders
        }
        to_place = 0 if has_rows else whole(request.needed_rows)
        num_spare = self._budget.num_rows - self._rows_kept - sum(sizes.values()) - to_place
        if num_spare < 0:
            return None
        if has_rows:
            share = num_spare // len(holders) // page_rows * page_rows
            for holder in holders:
                enough = max(sizes[holder.key], whole(holder.final_rows))
                sizes[holder.key] = min(sizes[holder.key] + share, enough)
        used = {holder.key: holder.context_len for holder in holders}
        for key in self._kept:
            sizes[key] = self._budget.extent(key).capacity
            used[key] = self._index.length(key)
        moves = self._budget.repack(sizes, used)
        if not has_rows:
            placed = self._place(request)
            assert placed == []
        return moves

    def _forget(self, key: int) -> None:
        """Strike a kept content from all books but that of the extents."""
        del self._kept[key]
        self._rows_kept -= self._budget.extent(key).capacity
        self._index.remove(key)

    def _evict(self, key: int) -> None:
        self._forget(key)
        self._budget.free(key)
