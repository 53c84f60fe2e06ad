"""The order of prepared conversations, and which of them are held out; both by the seed alone.

Rows come as numbers here; what they say is of no concern.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from blockdraft.errors import ConfigError

Holdout = int | float
"""Rows to hold out: a number of at least 1, or a fraction between 0 and 1."""


class Split(NamedTuple):
    """Row numbers, in the order in which they are written."""

    train: list[int]
    heldout: list[int]


def shuffled(ids: Sequence[str], rows: Sequence[int], seed: int) -> list[int]:
    """`rows` in an order that depends on the seed and their ids only.

    So other rows, added or left out, don't change the order of two rows.
    """

    def rank(row: int) -> bytes:
        return hashlib.blake2b(f"{seed}:{ids[row]}".encode(), digest_size=16).digest()

    return sorted(rows, key=rank)


def num_heldout(holdout: Holdout, num_rows: int) -> int:
    """The number of rows that `holdout` asks for; ConfigError unless some are left to train on."""
    wanted = holdout if isinstance(holdout, int) else round(holdout * num_rows)
    if not 1 <= wanted < num_rows:
        raise ConfigError(
            f"holding out {holdout} of {num_rows} rows gives {wanted}: hold out at least 1 and "
            "leave some to train on"
        )
    return wanted


def split(rows: Sequence[int], group_of: Sequence[int], wanted: int) -> Split:
    """Hold out `wanted` of `rows`, or fewer where groups don't fit; a group is never divided.

    Groups are taken in the order of their first rows, those that are too large for what is still
    wanted are passed over.
    """
    groups: dict[int, list[int]] = {}
    for row in rows:
        groups.setdefault(group_of[row], []).append(row)
    heldout: set[int] = set()
    for group in groups.values():
        if len(group) <= wanted - len(heldout):
            heldout.update(group)
    return Split([row for row in rows if row not in heldout], [r for r in rows if r in heldout])
