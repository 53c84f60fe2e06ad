"""Near duplicates: sets of shingles that share more than half.

Hashes in, row numbers out; texts are in `words.py`. Rows are near duplicates of one another when
more than half of the larger set is shared (`share_most`). Texts that must not be repeated at all
are held to a stricter measure, more than half of the smaller set (`overlap`). Shingles that very
many texts hold, such as those of an instruction that stands in each, are no evidence and left out.

In both cases two sets with n <= m shingles share at least n // 2 + 1. So of any n - n // 2 shingles
of the smaller one at least one is shared (else n // 2 at most would be left to share), and it is
enough to look up the rarest ones. This is prefix filtering (Chaudhuri, Ganti and Kaushik 2006).
"""

import heapq
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, cast

import torch
from jaxtyping import Int
from torch import Tensor

MOST_TEXTS = 20
"""A shingle of more texts than these is left out, unless it is in less than 1% of the rows."""

Measure = Callable[[set[int], set[int]], bool]
"""Whether two sets of shingles are too similar."""


def share_most(first: set[int], second: set[int]) -> bool:
    """More than half of the larger set is shared."""
    return 2 * len(first & second) > max(len(first), len(second))


def overlap(first: set[int], second: set[int]) -> bool:
    """More than half of the smaller set is shared, so that it may stand inside of the other."""
    return 2 * len(first & second) > min(len(first), len(second))


class ShingleSets(Protocol):
    """The shingles of each row."""

    def __getitem__(self, row: int, /) -> Sequence[int]: ...


class NearIndex:
    """Rows by their shingles. `num_others` tells how many other rows may hold a shingle.

    `sets` must give, for every row that was added, the shingles that it was added with.
    """

    def __init__(
        self, sets: ShingleSets, num_others: Callable[[int], int], measure: Measure
    ) -> None:
        self._sets = sets
        self._measure = measure
        self._num_others = num_others
        self._by_any: dict[int, list[int]] = {}
        self._by_rare: dict[int, list[int]] = {}

    def add(self, row: int) -> None:
        """Take `row` in. Rows are added in ascending order."""
        shingles = self._sets[row]
        for shingle in shingles:
            if self._num_others(shingle):
                self._by_any.setdefault(shingle, []).append(row)
        for shingle in self._rarest(shingles):
            if self._num_others(shingle):
                self._by_rare.setdefault(shingle, []).append(row)

    def matches(self, shingles: Sequence[int]) -> Iterator[int]:
        """The rows that are near duplicates of a set of shingles, in ascending order."""
        smaller_rows = [self._by_rare.get(shingle, []) for shingle in shingles]
        larger_rows = [self._by_any.get(shingle, []) for shingle in self._rarest(shingles)]
        own = set(shingles)
        previous = -1
        for row in heapq.merge(*filter(None, [*smaller_rows, *larger_rows])):
            if row != previous and self._measure(own, set(self._sets[row])):
                yield row
            previous = row

    def _rarest(self, shingles: Sequence[int]) -> list[int]:
        num_looked_up = len(shingles) - len(shingles) // 2
        return sorted(shingles, key=self._num_others)[:num_looked_up]


class ShingleTable:
    """The shingles of many rows in little memory: 8 bytes each until `close`, 16 after it.

    After `close` shingles are numbered, and those that only one row holds are known.
    """

    def __init__(self) -> None:
        self._hashes = array("q")
        self._ends = array("q", [0])
        self._numbers = torch.empty(0, dtype=torch.int64)
        self._counts = array("q")

    def __len__(self) -> int:
        return len(self._ends) - 1

    def append(self, shingles: Iterable[int]) -> None:
        """Add a row; its shingles must differ from one another."""
        self._hashes.extend(shingles)
        self._ends.append(len(self._hashes))

    def close(self) -> None:
        """Number the shingles. No row can be added afterwards."""
        if len(self._hashes):
            hashes: Int[Tensor, " shingles"] = torch.frombuffer(self._hashes, dtype=torch.int64)
            _, numbers, counts = cast(
                "tuple[Tensor, Tensor, Tensor]",
                torch.unique(hashes, return_inverse=True, return_counts=True),
            )
            self._numbers = numbers
            # In parts: a list of all of them would take several times the memory.
            for part in torch.split(counts, 1 << 20):
                self._counts.extend(cast("list[int]", part.tolist()))

    def __getitem__(self, row: int) -> Sequence[int]:
        start, end = self._ends[row], self._ends[row + 1]
        shingles = cast("list[int]", self._numbers[start:end].tolist())
        most = max(MOST_TEXTS, len(self) // 100)
        return _telling(shingles, self._counts.__getitem__, most)

    def num_others(self, shingle: int) -> int:
        """How many rows besides one hold the shingle."""
        return self._counts[shingle] - 1


def find_near(table: ShingleTable) -> dict[int, int]:
    """The rows to drop so that no near duplicates are left, each with the earlier row it repeats.

    Rows are looked at in order; one that nearly repeats a row that was kept is dropped.
    """
    index = NearIndex(table, table.num_others, share_most)
    repeated: dict[int, int] = {}
    for row in range(len(table)):
        original = next(index.matches(table[row]), None)
        if original is None:
            index.add(row)
        else:
            repeated[row] = original
    return repeated


def group_near(table: ShingleTable) -> list[int]:
    """For each row the first row of its group; near duplicates, and theirs, share a group."""
    index = NearIndex(table, table.num_others, share_most)
    first = list(range(len(table)))

    def root(row: int) -> int:
        while first[row] != row:
            first[row] = first[first[row]]
            row = first[row]
        return row

    for row in range(len(table)):
        for other in index.matches(table[row]):
            low, high = sorted((root(other), root(row)))
            first[high] = low
        index.add(row)
    return [root(row) for row in range(len(table))]


class KnownTexts:
    """Texts that others may not repeat, such as evaluation prompts; the measure is `overlap`."""

    def __init__(self, sets: Sequence[Sequence[int]]) -> None:
        # The same text may be given several times, which does not make its words common ones.
        different = dict.fromkeys(frozenset(shingles) for shingles in sets)
        self._counts = Counter(shingle for shingles in different for shingle in shingles)
        telling = [self._telling(shingles) for shingles in sets]
        self._index = NearIndex(telling, self._counts.__getitem__, overlap)
        for row in range(len(sets)):
            self._index.add(row)

    def find(self, shingles: Sequence[int]) -> int | None:
        """The first text that `shingles` nearly repeat."""
        return next(self._index.matches(self._telling(shingles)), None)

    def _telling(self, shingles: Sequence[int]) -> Sequence[int]:
        return _telling(shingles, self._counts.__getitem__, MOST_TEXTS)


def _telling(shingles: Sequence[int], count: Callable[[int], int], most: int) -> Sequence[int]:
    """The shingles that at most `most` texts hold; all of them where none is left."""
    return [shingle for shingle in shingles if count(shingle) <= most] or shingles
