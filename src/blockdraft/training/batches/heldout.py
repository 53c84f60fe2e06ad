"""Which answers are held out of a training: whole conversations, the same number of each category.

Chosen by a hash of the conversation's name, so that the choice neither depends on the order of
answers nor changes when more are added in front of them.
"""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple


class Named(NamedTuple):
    """A row of the answers, with the conversation that it belongs to."""

    row: int
    conversation: str
    category: str | None


def choose_heldout(answers: Iterable[Named], share: float, most: int) -> tuple[int, ...]:
    """Rows of at most `most` answers (one more conversation never goes beyond it) and at most
    `share` of all; ascending. Categories take turns."""
    by_category: dict[str | None, dict[str, list[int]]] = {}
    total = 0
    for row, conversation, category in answers:
        total += 1
        by_category.setdefault(category, {}).setdefault(conversation, []).append(row)
    queues = [
        sorted(conversations.items(), key=lambda item: _digest(item[0]), reverse=True)
        for _, conversations in sorted(by_category.items(), key=lambda item: item[0] or "")
    ]
    room = min(most, int(total * share))
    chosen: list[int] = []
    while any(queues):
        for queue in queues:
            if not queue:
                continue
            _, rows = queue.pop()
            if len(chosen) + len(rows) > room:
                return tuple(sorted(chosen))
            chosen += rows
    return tuple(sorted(chosen))


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=8).digest()
