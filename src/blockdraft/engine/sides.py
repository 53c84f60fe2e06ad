"""The two seams of the engine: `TargetSide` runs passes, `DraftSide` drafts, for many requests.

Protocols and plain values. `pooled.py` implements both for the native models (rows of a shared
pool), `stateful.py` for any `TargetModel` and `Drafter` (a state of its own for each request).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from jaxtyping import Float, Int
from torch import Tensor

from blockdraft.decoding.interfaces import Draft
from blockdraft.engine.extents import Move


@dataclass(frozen=True, slots=True)
class Feed:
    """Rows of one request in a pass: `ids` after its `context_len` committed tokens.

    `base` is the first row of its extent. `parents` None is a chain; otherwise a tree, as in
    `TargetState.verify`. A prompt chunk is committed as it is fed; rows to be
    verified stay pending until `TargetSide.commit`. `was_decoded`: a prompt chunk of ids that the
    request had emitted before it was preempted.
    """

    key: int
    base: int
    context_len: int
    ids: tuple[int, ...]
    is_prompt: bool
    wants_logits: bool
    parents: tuple[int, ...] | None = None
    was_decoded: bool = False


class PassResult(NamedTuple):
    """Logits and features of a pass.

    `logits` holds, feed after feed, the last row of a prompt chunk or all rows to be verified, of
    those feeds that want logits. `features` holds all rows fed (None without taps).
    """

    logits: Float[Tensor, "asked vocab"]
    features: Float[Tensor, "fed feature"] | None


class TargetSide(Protocol):
    """Runs the target over feeds and keeps what was committed."""

    @property
    def can_copy(self) -> bool:
        """Whether rows can be copied, which prefix reuse needs."""
        ...

    @property
    def can_batch(self) -> bool:
        """Whether the feeds of a pass are computed together."""
        ...

    @property
    def bytes_per_token(self) -> int: ...

    def move(self, moves: Sequence[Move]) -> None:
        """Copy rows, in order."""
        ...

    def run(self, feeds: Sequence[Feed]) -> PassResult: ...

    def commit(self, feed: Feed, rows: Sequence[int]) -> None:
        """Keep `rows` of a verified feed, a path from the context downwards; forget the rest."""
        ...

    def forget(self, key: int) -> None:
        """Drop a request's state; unknown keys are ignored."""
        ...


@dataclass(frozen=True, slots=True)
class Extension:
    """Committed tokens [start, start + len(ids)) of a request that a drafter is to take in."""

    key: int
    base: int
    start: int
    ids: tuple[int, ...]
    features: Float[Tensor, "new feature"] | None


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """A block wanted: `width` counts the anchor, at position `context_len`."""

    key: int
    base: int
    context_len: int
    anchor: int
    width: int


class DraftRows(NamedTuple):
    """Drafts of several requests as one tensor of slots over the draft vocabulary.

    `num_slots[i]` slots belong to request i. `to_target` maps draft ids to target ids (None: they
    are the same).
    """

    logits: Float[Tensor, "slots draft_vocab"]
    num_slots: tuple[int, ...]
    to_target: Int[Tensor, " draft_vocab"] | None


class DraftSide(Protocol):
    """Drafts for many requests and keeps their contexts."""

    @property
    def block_size(self) -> int: ...

    @property
    def taps(self) -> tuple[int, ...]: ...

    @property
    def can_copy(self) -> bool:
        """Whether rows can be copied, which prefix reuse needs."""
        ...

    @property
    def bytes_per_token(self) -> int: ...

    def move(self, moves: Sequence[Move]) -> None: ...

    def extend(self, extensions: Sequence[Extension]) -> None:
        """Take in committed tokens of several requests, together where that is faster."""
        ...

    def draft(self, requests: Sequence[DraftRequest]) -> DraftRows | list[Draft]:
        """One draft a request; a pooled side gives all of them as `DraftRows`."""
        ...

    def forget(self, key: int) -> None: ...
