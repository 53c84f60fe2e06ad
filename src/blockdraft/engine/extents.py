"""`TokenBudget`: which contiguous rows of the key/value pools belong to whom.

It decides on numbers only; the copying of rows is done by whoever executes the returned moves.

Rows of a pool, in whole pages of `page_rows`:

    [0, num_rows)                          the budget
    [base, base + capacity)                one extent; extents never overlap
    everything else                        holes, of any length; neighbors are one hole
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Move:
    """Copy `count` rows from row `source` on to row `destination` on; the ranges may overlap."""

    source: int
    destination: int
    count: int


class Extent(NamedTuple):
    """The rows [base, base + capacity)."""

    base: int
    capacity: int

    @property
    def end(self) -> int:
        return self.base + self.capacity


class TokenBudget:
    """First-fit allocation of extents; keys are request numbers."""

    def __init__(self, num_rows: int, page_rows: int = 16) -> None:
        self.page_rows = page_rows
        self.num_rows = num_rows // page_rows * page_rows
        self._extents: dict[int, Extent] = {}
        self._num_used = 0

    @property
    def num_used(self) -> int:
        """Rows that belong to some extent."""
        return self._num_used

    @property
    def num_free(self) -> int:
        return self.num_rows - self._num_used

    def __contains__(self, key: int) -> bool:
        return key in self._extents

    def __len__(self) -> int:
        return len(self._extents)

    def extent(self, key: int) -> Extent:
        """The extent of `key`. Raises KeyError when it has none."""
        return self._extents[key]

    def whole_pages(self, rows: int) -> int:
        """`rows` rounded up to whole pages, in rows."""
        return -(-rows // self.page_rows) * self.page_rows

    def allocate(self, key: int, rows: int, wanted: int | None = None) -> bool:
        """Give `key` at least `rows`, `wanted` where a hole is that long; False when none fits."""
        assert key not in self._extents
        extent = self._find_hole(rows, wanted)
        if extent is not None:
            self._put(key, extent)
        return extent is not None

    def grow(
        self, key: int, rows: int, *, used_rows: int, wanted: int | None = None
    ) -> list[Move] | None:
        """Enlarge to at least `rows`, up to `wanted` (default: twice the capacity) where free.

        In place when the rows to the right are free, else into a hole, which takes one move of the
        first `used_rows`. None, and nothing changed, when no hole is long enough (see `repack`).
        """
        old = self._extents[key]
        wanted = max(rows, 2 * old.capacity if wanted is None else wanted)
        if rows <= old.capacity:
            return []
        if self.num_free < self.whole_pages(rows) - old.capacity:
            return None
        reachable = self._free_until(old.end) - old.base
        if reachable >= self.whole_pages(rows):
            self._put(key, Extent(old.base, min(reachable, self.whole_pages(wanted))))
            return []
        extent = self._find_hole(rows, wanted)
        if extent is None:
            return None
        self._put(key, extent)
        return [Move(old.base, extent.base, used_rows)] if used_rows else []

    def shrink(self, key: int, rows: int) -> None:
        """Give back the pages behind the first `rows`."""
        extent = self._extents[key]
        self._put(key, Extent(extent.base, min(extent.capacity, self.whole_pages(rows))))

    def free(self, key: int) -> None:
        """Give back the extent of `key`. Raises KeyError when it has none."""
        self._num_used -= self._extents.pop(key).capacity

    def rename(self, key: int, new_key: int) -> None:
        """Hand the extent of `key`, with what its rows hold, to `new_key`."""
        assert new_key not in self._extents
        self._extents[new_key] = self._extents.pop(key)

    def repack(self, sizes: Mapping[int, int], used_rows: Mapping[int, int]) -> list[Move]:
        """Lay all extents out anew from row 0 on, in their present order, without holes between.

        `sizes` says how many rows each extent gets; of each, the first `used_rows` are moved.
        The moves are safe in list order. Extents that move left come first, by ascending base: the
        new place of one lies behind the new places of those before it, so it can cover only old
        rows that were moved already. Those that move right follow by descending base, for the
        mirrored reason. The two kinds can't disturb each other since the order of extents stays.
        """
        left: list[Move] = []
        right: list[Move] = []
        base = 0
        for key, old in self._by_base():
            new = Extent(base, self.whole_pages(sizes[key]))
            assert used_rows[key] <= min(old.capacity, new.capacity)
            if used_rows[key] and new.base != old.base:
                moved = Move(old.base, new.base, used_rows[key])
                (left if new.base < old.base else right).append(moved)
            self._put(key, new)
            base = new.end
        assert base <= self.num_rows
        return left + right[::-1]

    def audit(self) -> None:
        """Check our own invariants: pages whole, extents apart and inside, counts true."""
        end = 0
        for _, extent in self._by_base():
            assert extent.base >= end and extent.capacity > 0
            assert extent.base % self.page_rows == 0 and extent.capacity % self.page_rows == 0
            end = extent.end
        assert end <= self.num_rows
        assert self._num_used == sum(extent.capacity for extent in self._extents.values())

    def _put(self, key: int, extent: Extent) -> None:
        old = self._extents.get(key)
        self._num_used += extent.capacity - (0 if old is None else old.capacity)
        self._extents[key] = extent

    def _by_base(self) -> list[tuple[int, Extent]]:
        return sorted(self._extents.items(), key=lambda item: item[1])

    def _holes(self) -> Iterator[Extent]:
        end = 0
        for _, extent in self._by_base():
            if extent.base > end:
                yield Extent(end, extent.base - end)
            end = extent.end
        if end < self.num_rows:
            yield Extent(end, self.num_rows - end)

    def _find_hole(self, rows: int, wanted: int | None) -> Extent | None:
        """The start of the first hole of `wanted` rows, else of the longest with `rows`."""
        if self.num_free < rows:
            return None
        wanted = self.whole_pages(max(rows, wanted or rows))
        longest = Extent(0, 0)
        for hole in self._holes():
            if hole.capacity >= wanted:
                return Extent(hole.base, wanted)
            if hole.capacity > longest.capacity:
                longest = hole
        return longest if longest.capacity >= rows else None

    def _free_until(self, row: int) -> int:
        """The end of the free rows that start at `row`, or `row` when it is not free."""
        return min((e.base for e in self._extents.values() if e.base >= row), default=self.num_rows)
