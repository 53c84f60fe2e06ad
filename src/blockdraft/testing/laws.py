"""Next-token laws for `ScriptedTarget`: functions from the full prefix to a row of logits.

They hold no model and no state; the same prefix always gives the same logits, bit for bit.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float64
from torch import Tensor

LogitsOf = Callable[[tuple[int, ...]], Float64[Tensor, " vocab"]]
"""Maps the ids of the whole prefix (never empty) to the logits of the next token, in float64."""


def hashed_logits(
    vocab_size: int, *, seed: int = 0, order: int | None = None, scale: float = 2.0
) -> LogitsOf:
    """A random but fixed law: normal logits of width `scale`, seeded by the last `order` ids.

    `order=None` lets the whole prefix matter; a small `order` gives a Markov chain whose joint
    law can be written down.
    """

    def logits_of(prefix: tuple[int, ...]) -> Float64[Tensor, " vocab"]:
        suffix = prefix if order is None else prefix[max(0, len(prefix) - order) :]
        generator = torch.Generator().manual_seed(prefix_hash(suffix, seed))
        return scale * torch.randn(vocab_size, dtype=torch.float64, generator=generator)

    return logits_of


def table_logits(
    table: Mapping[tuple[int, ...], Sequence[float]], default: Sequence[float]
) -> LogitsOf:
    """The logits that `table` holds for the prefix, `default` for a prefix it does not hold."""

    def logits_of(prefix: tuple[int, ...]) -> Float64[Tensor, " vocab"]:
        return torch.tensor(table.get(prefix, default), dtype=torch.float64)

    return logits_of


def script_logits(vocab_size: int, ids: Sequence[int], after: int = 0) -> LogitsOf:
    """A law whose greedy text is `ids`: the token for position n is ids[n], whatever the prefix.

    `ids` starts with the prompt; positions beyond its end get `after`.
    """

    def logits_of(prefix: tuple[int, ...]) -> Float64[Tensor, " vocab"]:
        logits = torch.zeros(vocab_size, dtype=torch.float64)
        logits[ids[len(prefix)] if len(prefix) < len(ids) else after] = 8.0
        return logits

    return logits_of


def prefix_hash(ids: Sequence[int], seed: int = 0) -> int:
    """A 31-bit hash of `ids` in order; the same in every process."""
    value = seed * 2654435761 % 2147483647 + 1
    for token_id in ids:
        value = (value * 48271 + token_id + 1) % 2147483647
    return value
