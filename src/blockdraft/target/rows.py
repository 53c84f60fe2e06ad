"""The rows of one target pass: which ids may be fed, who follows whom, and who sees whom.

It runs no model and knows no cache; every target, the toy ones too, checks its input here.

A pass of n rows is described by `parents`: row i follows row parents[i] < i, or the context when
parents[i] is -1. A chain is (-1, 0, 1, .., n - 2).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from blockdraft.decoding.interfaces import TargetSpec
from blockdraft.errors import ConfigError, RequestError


def check_fed(ids: Int[Tensor, " rows"], context_len: int, spec: TargetSpec) -> None:
    """Raise RequestError unless `ids` can be fed after `context_len` tokens.

    An id outside the vocabulary would read foreign memory on some devices, so this is checked
    before every embedding lookup.
    """
    if ids.numel() == 0:
        raise RequestError(
            "no tokens to feed: give at least one token id (an empty prompt has none)"
        )
    lowest, highest = int(ids.min()), int(ids.max())
    if lowest < 0 or highest >= spec.vocab_size:
        wrong = lowest if lowest < 0 else highest
        raise RequestError(
            f"token id {wrong} is outside the vocabulary of {spec.name}: "
            f"use ids from 0 to {spec.vocab_size - 1}"
        )
    wanted = context_len + ids.numel()
    if spec.max_context_len is not None and wanted > spec.max_context_len:
        raise RequestError(
            f"{wanted} tokens exceed the context of {spec.name} ({spec.max_context_len}): "
            "shorten the prompt or lower the number of new tokens"
        )


def check_taps(taps: Sequence[int], spec: TargetSpec) -> None:
    """Raise ConfigError for a tap that is no layer of the target."""
    for tap in taps:
        if not 0 <= tap < spec.num_layers:
            raise ConfigError(
                f"tap {tap} is no layer of {spec.name}, which has layers 0 to {spec.num_layers - 1}"
            )


def check_pass_rows(num_rows: int, width: int) -> None:
    """Raise ConfigError for more rows than a batch-invariant pass of `width` rows has."""
    if num_rows > width:
        raise ConfigError(
            f"a pass of {num_rows} rows does not fit the fixed width {width}: "
            "load the target with a larger batch_invariant, or use a smaller block size"
        )


def chain_parents(num_rows: int) -> tuple[int, ...]:
    """The parents of a chain of `num_rows` rows."""
    return tuple(range(-1, num_rows - 1))


def resolve_parents(num_rows: int, parents: Sequence[int] | None) -> tuple[int, ...]:
    """`parents` itself, or a chain's when None; asserts that it describes a tree of `num_rows`."""
    if parents is None:
        return chain_parents(num_rows)
    assert len(parents) == num_rows, f"{len(parents)} parents for {num_rows} rows"
    for row, parent in enumerate(parents):
        assert -1 <= parent < row, f"row {row} can't follow row {parent}: parents come first"
    return tuple(parents)


def is_chain(parents: Sequence[int]) -> bool:
    """Whether each row follows the one before it."""
    return tuple(parents) == chain_parents(len(parents))


def path_to(row: int, parents: Sequence[int]) -> tuple[int, ...]:
    """The rows from the context down to `row`, itself included; empty for row -1."""
    path: list[int] = []
    while row >= 0:
        path.append(row)
        row = parents[row]
    return tuple(reversed(path))


def check_path(rows: Sequence[int], parents: Sequence[int]) -> None:
    """Assert that `rows` is a path from the context downwards, as `commit` requires."""
    previous = -1
    for row in rows:
        assert 0 <= row < len(parents), f"row {row} was not verified: the pass had {len(parents)}"
        assert parents[row] == previous, f"row {row} follows {parents[row]}, not {previous}"
        previous = row


def depths(parents: Sequence[int]) -> tuple[int, ...]:
    """How many rows lie between each row and the context."""
    result: list[int] = []
    for parent in parents:
        result.append(0 if parent < 0 else result[parent] + 1)
    return tuple(result)


def visible(parents: Sequence[int], context_len: int) -> Bool[Tensor, "rows keys"]:
    """Which keys each row attends to: the whole context, its ancestors and itself (True = sees).

    keys: [0, context_len) context | [context_len, context_len + rows) the rows of this pass
    """
    num_rows = len(parents)
    mask = torch.zeros(num_rows, context_len + num_rows, dtype=torch.bool)
    mask[:, :context_len] = True
    for row in range(num_rows):
        mask[row, [context_len + ancestor for ancestor in path_to(row, parents)]] = True
    return mask
