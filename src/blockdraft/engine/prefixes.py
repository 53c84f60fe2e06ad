"""`PrefixIndex`: which held content shares the longest prefix with a prompt.

It knows token ids only; where the rows of a content lie, and how long it stays, is the ledger's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class PrefixMatch(NamedTuple):
    """The first `length` ids of the content `key` are those that were looked for."""

    key: int
    length: int


@dataclass(slots=True, eq=False)
class _Page:
    """A node of the tree of pages: what follows it, and the contents that run through it."""

    followers: "dict[tuple[int, ...], _Page]" = field(default_factory=lambda: {})
    keys: dict[int, None] = field(default_factory=lambda: {})


@dataclass(slots=True, eq=False)
class _Content:
    ids: list[int]
    path: list[_Page]
    """The root and one node for each whole page of `ids`."""


class PrefixIndex:
    """A tree whose edges are pages of `page_rows` ids, and the ids of each content.

    A lookup costs one dictionary access a page and compares single ids only inside the first page
    that differs. Matches shorter than one page are not reported: they are not worth a copy.
    """

    def __init__(self, page_rows: int) -> None:
        self._page_rows = page_rows
        self._root = _Page()
        self._contents: dict[int, _Content] = {}

    def __len__(self) -> int:
        return len(self._contents)

    def length(self, key: int) -> int:
        """How many ids of `key` are indexed, 0 for an unknown key."""
        content = self._contents.get(key)
        return 0 if content is None else len(content.ids)

    def extend(self, key: int, ids: Sequence[int], length: int) -> None:
        """Make ids[:length] the content of `key`; what was indexed before must be its start."""
        content = self._contents.get(key)
        if content is None:
            content = self._contents[key] = _Content([], [self._root])
        assert length >= len(content.ids)
        content.ids.extend(ids[len(content.ids) : length])
        size = self._page_rows
        for start in range((len(content.path) - 1) * size, length - size + 1, size):
            edge = tuple(content.ids[start : start + size])
            page = content.path[-1].followers.setdefault(edge, _Page())
            page.keys[key] = None
            content.path.append(page)

    def remove(self, key: int) -> None:
        """Forget `key`; an unknown key is ignored."""
        content = self._contents.pop(key, None)
        if content is None:
            return
        size = self._page_rows
        for depth in range(len(content.path) - 1, 0, -1):
            page = content.path[depth]
            del page.keys[key]
            if not page.keys:
                edge = tuple(content.ids[(depth - 1) * size : depth * size])
                del content.path[depth - 1].followers[edge]

    def longest(self, ids: Sequence[int], *, skip: int | None = None) -> PrefixMatch | None:
        """The content with the longest common prefix with `ids`, at least a page of it.

        Of equally good ones the earliest; the content `skip` is passed over.
        """
        size = self._page_rows
        page, depth = self._root, 0
        while (depth + 1) * size <= len(ids):
            follower = page.followers.get(tuple(ids[depth * size : (depth + 1) * size]))
            if follower is None or (len(follower.keys) == 1 and skip in follower.keys):
                break
            page, depth = follower, depth + 1
        if depth == 0:
            return None
        start = depth * size
        rest = ids[start : start + size]
        best: PrefixMatch | None = None
        for key in page.keys:
            if key == skip:
                continue
            length = start + _common(rest, self._contents[key].ids[start : start + size])
            if best is None or length > best.length:
                best = PrefixMatch(key, length)
        return best

    def audit(self) -> None:
        """Check our own invariants: the tree holds exactly the pages of the contents."""
        seen = {id(page) for content in self._contents.values() for page in content.path[1:]}
        pages = [self._root]
        num_found = 0
        while pages:
            followers = pages.pop().followers.values()
            num_found += len(followers)
            pages.extend(followers)
        assert num_found == len(seen)
        for content in self._contents.values():
            assert len(content.path) - 1 == len(content.ids) // self._page_rows


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    """The length of the common prefix."""
    num_common = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        num_common += 1
    return num_common
