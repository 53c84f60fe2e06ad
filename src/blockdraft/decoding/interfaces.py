"""The two seams of the algorithm as Protocols: a target that verifies, a drafter that drafts.

Nothing here is executable; the decoder in `loop.py` is written against these types only.

Shape legend: rows = tokens fed in one pass, vocab = target vocabulary, feature = num_taps * hidden.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

LMHead = Callable[[Float[Tensor, "*rows hidden"]], Float[Tensor, "*rows vocab"]]
"""Maps final hidden states to logits, over the whole vocabulary or over a fixed subset of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    """What a drafter, a request check and the decoder need to know of a target.

    `max_context_len` counts prompt and output tokens together; None means no limit is known.
    `stop_ids` are the end-of-sequence ids of the model's own generation configuration.
    """

    name: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    max_context_len: int | None = None
    stop_ids: tuple[int, ...] = ()


class TargetOutput(NamedTuple):
    """What one target pass yields.

    `logits` are unmodified, in the dtype the target computes in, one row for each row asked for;
    each says what follows the token of its row. `features` are the outputs of the tapped
    layers (before the next norm), concatenated in tap order, one row for each token fed; None when
    no layer is tapped.
    """

    logits: Float[Tensor, "rows vocab"]
    features: Float[Tensor, "fed feature"] | None


@runtime_checkable
class TargetState(Protocol):
    """A target's memory of one request. States of one model are independent of each other.

    Token ranges: committed context [0, context_len); after `verify` of n rows, the pending rows
    [context_len, context_len + n), which exist until `commit` says which of them stay.
    """

    @property
    def context_len(self) -> int:
        """Number of committed tokens. Pending rows of a `verify` do not count."""
        ...

    def prefill(self, ids: Int[Tensor, " prompt"]) -> TargetOutput:
        """Feed and commit `ids`. Logits of the last row only ([1, vocab]); features of all rows.

        May be called again on a non-empty state (the prompt in chunks); never with pending rows.
        """
        ...

    def verify(
        self, ids: Int[Tensor, " rows"], parents: Sequence[int] | None = None
    ) -> TargetOutput:
        """Feed `ids` after the committed context without committing; logits of every row.

        `parents` is None for a chain (row i follows row i - 1). Otherwise `parents[i]` < i is the
        row that row i follows, -1 for one that follows the context: a row sees the context, its
        ancestors and itself, at position context_len + depth. Raises UnsupportedTarget for a
        target that can't mask a tree.
        """
        ...

    def commit(self, rows: Sequence[int]) -> None:
        """Make the state as if exactly `rows` of the last `verify` had been fed, in that order.

        `rows` is a path from the context downwards ([0, 1, .., n - 1] for a chain); the other
        pending rows are forgotten. An empty path rolls the whole pass back.
        """
        ...


@runtime_checkable
class TargetModel(Protocol):
    """The frozen language model whose output law must be preserved."""

    @property
    def spec(self) -> TargetSpec: ...

    def embed(self, ids: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows hidden"]:
        """Rows of the input embedding table, without any scale the model applies on top."""
        ...

    def head(self, vocab_ids: Int[Tensor, " subset"] | None = None) -> LMHead:
        """The LM head (its bias included), restricted to the rows `vocab_ids` when given."""
        ...

    def open(self, taps: Sequence[int] = ()) -> TargetState:
        """A fresh, empty state whose passes also yield the features of the layers `taps`."""
        ...


class DraftLogits(NamedTuple):
    """A draft as logits over the target's vocabulary, one row a slot; -inf = can't be drafted."""

    logits: Float[Tensor, "slots vocab"]


class DraftIds(NamedTuple):
    """A draft as token ids (a proposal that puts all its probability on one token a slot)."""

    ids: tuple[int, ...]


class DraftLattice(NamedTuple):
    """A draft as a path through candidates: what a slot's ids are worth depends on the id before.

    `candidates` are target ids. `first[j]` is the score of candidate j of the first slot, after
    the anchor; `pairs[t - 1, i, j]` that of candidate j of slot t, after candidate i of slot t - 1.
    Scores are used as logits over a slot's candidates; -inf = can't be drafted. later = slots - 1.
    """

    candidates: Int[Tensor, "slots k"]
    first: Float[Tensor, " k"]
    pairs: Float[Tensor, "later k k"]


Draft = DraftLogits | DraftIds | DraftLattice


@runtime_checkable
class DraftState(Protocol):
    """A drafter's memory of one request.

    It covers exactly the committed tokens before the anchor: `context_len` equals the position of
    the anchor whenever `propose` is called.
    """

    @property
    def context_len(self) -> int: ...

    def extend(self, ids: Sequence[int], features: Float[Tensor, "new feature"] | None) -> None:
        """Take in newly committed tokens and their features (None when the drafter has no taps)."""
        ...

    def propose(self, anchor: int, width: int) -> Draft:
        """Draft at most `width` - 1 tokens to follow `anchor`; fewer, or none, is allowed.

        `width` counts the anchor, as the published `block_size` does. Leaves the state unchanged.
        """
        ...


@runtime_checkable
class Drafter(Protocol):
    """A proposer. It may be as bad as it likes: the output law does not depend on it."""

    @property
    def block_size(self) -> int:
        """The widest block it drafts, anchor included; 1 = it never drafts."""
        ...

    @property
    def taps(self) -> tuple[int, ...]:
        """Zero-based target layers whose outputs it wants as context features."""
        ...

    def open(self) -> DraftState: ...
