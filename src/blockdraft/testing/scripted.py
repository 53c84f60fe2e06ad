"""`ScriptedTarget`: a target whose logits are a plain function of the whole prefix.

It has no weights and no cache, so what it says can be written down by hand; it does check the
protocol (ids in range, context limit, every `verify` followed by a `commit` of a path).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from blockdraft.decoding.interfaces import LMHead, TargetOutput, TargetSpec
from blockdraft.target.rows import check_fed, check_path, path_to, resolve_parents
from blockdraft.testing.laws import LogitsOf, prefix_hash

HIDDEN_SIZE = 8
NUM_LAYERS = 4


class ScriptedTarget:
    """A TargetModel that answers `logits_of(prefix)`; float64, trees supported.

    Embedding and head are small fixed tables and a feature is a fixed function of (prefix, layer),
    so that a real drafter runs on it; the logits do not come from the head.
    """

    def __init__(
        self,
        logits_of: LogitsOf,
        vocab_size: int,
        *,
        max_context_len: int | None = None,
        stop_ids: Sequence[int] = (),
    ) -> None:
        self.logits_of = logits_of
        self.spec = TargetSpec(
            name="scripted",
            vocab_size=vocab_size,
            hidden_size=HIDDEN_SIZE,
            num_layers=NUM_LAYERS,
            max_context_len=max_context_len,
            stop_ids=tuple(stop_ids),
        )
        self._table = fixed_table(vocab_size, HIDDEN_SIZE)

    def embed(self, ids: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows hidden"]:
        return self._table[ids]

    def head(self, vocab_ids: Int[Tensor, " subset"] | None = None) -> LMHead:
        rows = self._table if vocab_ids is None else self._table[vocab_ids]
        return lambda hidden: hidden.to(rows.dtype) @ rows.T

    def open(self, taps: Sequence[int] = ()) -> "ScriptedState":
        return ScriptedState(self, tuple(taps))


class ScriptedState:
    """The ids of one request, and those of the rows that wait for a commit."""

    def __init__(self, target: ScriptedTarget, taps: tuple[int, ...]) -> None:
        self._target = target
        self._taps = taps
        self.ids: tuple[int, ...] = ()
        self._pending: tuple[int, ...] | None = None
        self._parents: tuple[int, ...] = ()

    @property
    def context_len(self) -> int:
        return len(self.ids)

    def prefill(self, ids: Int[Tensor, " prompt"]) -> TargetOutput:
        output = self.verify(ids)
        self.commit(range(ids.numel()))
        return TargetOutput(output.logits[-1:], output.features)

    def verify(
        self, ids: Int[Tensor, " rows"], parents: Sequence[int] | None = None
    ) -> TargetOutput:
        assert self._pending is None, "the rows of the last verify wait for a commit"
        check_fed(ids, self.context_len, self._target.spec)
        self._parents = resolve_parents(ids.numel(), parents)
        self._pending = tuple(int(token_id) for token_id in ids)
        prefixes = [self._prefix(row) for row in range(ids.numel())]
        logits = torch.stack([self._target.logits_of(prefix) for prefix in prefixes])
        return TargetOutput(logits, self._features(prefixes))

    def commit(self, rows: Sequence[int]) -> None:
        assert self._pending is not None, "commit without a verify"
        check_path(rows, self._parents)
        self.ids += tuple(self._pending[row] for row in rows)
        self._pending = None

    def _prefix(self, row: int) -> tuple[int, ...]:
        assert self._pending is not None
        return self.ids + tuple(self._pending[r] for r in path_to(row, self._parents))

    def _features(
        self, prefixes: Sequence[tuple[int, ...]]
    ) -> Float64[Tensor, "fed feature"] | None:
        if not self._taps:
            return None
        return torch.stack([scripted_feature(prefix, self._taps) for prefix in prefixes])


def scripted_feature(prefix: tuple[int, ...], taps: Sequence[int]) -> Float64[Tensor, " feature"]:
    """The feature of the last token of `prefix`: normal numbers seeded by (prefix, layer)."""
    parts: list[Tensor] = []
    for tap in taps:
        generator = torch.Generator().manual_seed(prefix_hash(prefix, seed=tap + 1))
        parts.append(torch.randn(HIDDEN_SIZE, dtype=torch.float64, generator=generator))
    return torch.cat(parts)


def fixed_table(num_rows: int, width: int) -> Float64[Tensor, "rows width"]:
    """A table of distinct, well-scaled rows that needs no random numbers."""
    return torch.sin(torch.arange(1, num_rows * width + 1, dtype=torch.float64).sqrt() * 7.0).view(
        num_rows, width
    )
