"""Both sides over shared pools: the native target and the packed drafter, batched.

Target and drafter use the same row numbers, so one extent holds a request in both pools.
"""

from collections.abc import Iterator, Sequence

import torch

from blockdraft.decoding.interfaces import Draft
from blockdraft.engine.extents import Move
from blockdraft.engine.sides import DraftRequest, DraftRows, Extension, Feed, PassResult
from blockdraft.native.drafting import PackedDrafter
from blockdraft.native.model import NativeModel
from blockdraft.native.pool import TokenPool
from blockdraft.native.segments import Segment
from blockdraft.native.static import StaticPasses


class PooledTarget:
    """A `TargetSide`: the feeds of a step are the segments of one native pass."""

    can_copy = True
    can_batch = True

    def __init__(
        self, model: NativeModel, num_rows: int, taps: Sequence[int], *, compiled: bool = False
    ) -> None:
        """`compiled` runs verification in fixed shapes through torch.compile."""
        self._model = model
        self._taps = tuple(taps)
        # One row more than is given out, for what fixed shapes pad.
        self._pool = model.new_pool(num_rows + 1)
        self._static: StaticPasses | None = None
        if compiled or model.device.type == "cuda":
            # Gathered keys that nobody wrote are masked, which needs them to be finite.
            self._pool.tensor.zero_()
            self._static = StaticPasses(model, self._pool, taps, compiled=compiled)

    @property
    def bytes_per_token(self) -> int:
        return self._pool.bytes_per_token

    def move(self, moves: Sequence[Move]) -> None:
        _move(self._pool, moves)

    def run(self, feeds: Sequence[Feed]) -> PassResult:
        segments = [Segment(f.base, f.context_len, len(f.ids), f.parents) for f in feeds]
        ids = torch.tensor([token_id for feed in feeds for token_id in feed.ids])
        output = None
        if self._static is not None and not any(feed.is_prompt for feed in feeds):
            output = self._static.run(ids, segments)
        if output is None:
            output = self._model.forward(
                ids, segments, self._pool, taps=self._taps, asked=asked_rows(feeds)
            )
        return PassResult(output.logits, output.features)

    def commit(self, feed: Feed, rows: Sequence[int]) -> None:
        """Gather the kept rows behind the context; those of a chain lie there already."""
        self._pool.gather(feed.base + feed.context_len, rows)

    def forget(self, key: int) -> None:
        """Nothing to do: whoever gets the rows next overwrites them."""


def asked_rows(feeds: Sequence[Feed]) -> list[int]:
    """The rows of a pass whose logits are wanted."""
    asked: list[int] = []
    start = 0
    for feed in feeds:
        end = start + len(feed.ids)
        if feed.wants_logits:
            asked += [end - 1] if feed.is_prompt else range(start, end)
        start = end
    return asked


class PooledDrafts:
    """A `DraftSide` on the packed drafter."""

    can_copy = True

    def __init__(self, drafter: PackedDrafter, num_rows: int) -> None:
        self._packed = drafter
        self._pool = drafter.new_pool(num_rows)

    @property
    def block_size(self) -> int:
        return self._packed.block_size

    @property
    def taps(self) -> tuple[int, ...]:
        return self._packed.taps

    @property
    def bytes_per_token(self) -> int:
        return self._pool.bytes_per_token

    def move(self, moves: Sequence[Move]) -> None:
        _move(self._pool, moves)

    def extend(self, extensions: Sequence[Extension]) -> None:
        """One product for all of them. Positions past the drafter's limit are not kept (L13)."""
        limit = self._packed.config.position_limit
        positions: list[int] = []
        rows: list[int] = []
        features: list[torch.Tensor] = []
        for extension in extensions:
            end = min(extension.start + len(extension.ids), limit)
            if extension.features is None or end <= extension.start:
                continue
            positions += range(extension.start, end)
            rows += range(extension.base + extension.start, extension.base + end)
            features.append(extension.features[: end - extension.start])
        if features:
            joined = features[0] if len(features) == 1 else torch.cat(features)
            self._packed.project(joined, positions, rows, self._pool)

    def draft(self, requests: Sequence[DraftRequest]) -> DraftRows | list[Draft]:
        """One pass for each width that occurs (a drafter's position limit may cut some)."""
        drafter = self._packed.drafter
        widths = [drafter.usable_width(r.context_len, r.width) for r in requests]
        if self._packed.has_selector:
            return self._lattices(requests, widths)
        slots = tuple(max(0, width - 1) for width in widths)
        parts: dict[int, torch.Tensor] = {}
        for width, members in _by_width(widths):
            logits = self._packed.draft(*_blocks(requests, members, width), self._pool)
            if len(members) == len(requests):
                return DraftRows(logits, slots, drafter.draft_to_target)
            for rank, i in enumerate(members):
                parts[i] = logits[rank * (width - 1) : (rank + 1) * (width - 1)]
        joined = [parts[i] for i in sorted(parts)]
        logits = torch.cat(joined) if joined else drafter.no_draft().logits
        return DraftRows(logits, slots, drafter.draft_to_target)

    def _lattices(self, requests: Sequence[DraftRequest], widths: Sequence[int]) -> list[Draft]:
        """The drafts of a DFlash 2 drafter, each a lattice of its own."""
        drafts: list[Draft] = [self._packed.drafter.no_draft() for _ in requests]
        for width, members in _by_width(widths):
            made = self._packed.draft_lattices(*_blocks(requests, members, width), self._pool)
            for i, lattice in zip(members, made, strict=True):
                drafts[i] = lattice
        return drafts

    def forget(self, key: int) -> None:
        """Nothing to do: whoever gets the rows next overwrites them."""


def _by_width(widths: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Each width of at least 2, with the places where it stands."""
    for width in dict.fromkeys(width for width in widths if width >= 2):
        yield width, [i for i, own in enumerate(widths) if own == width]


def _blocks(
    requests: Sequence[DraftRequest], members: Sequence[int], width: int
) -> tuple[list[int], list[Segment]]:
    """Anchors and blocks of some requests."""
    chosen = [requests[i] for i in members]
    return [r.anchor for r in chosen], [Segment(r.base, r.context_len, width) for r in chosen]


def _move(pool: TokenPool, moves: Sequence[Move]) -> None:
    for move in moves:
        pool.move(move.source, move.destination, move.count)
