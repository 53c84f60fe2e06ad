"""What a draft costs by its length: a block in one pass, or token after token in as many passes.

The plot that explains block drafting: beside each block drafter, one that drafts a token at a time
is measured in the shape of EAGLE-3, with random weights, since the cost does not depend on them.
Everything runs in turn, after the same context, in one dtype, on one thread count.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import NamedTuple, cast

import torch

from blockdraft.decoding import Drafter
from blockdraft.decoding.interfaces import TargetModel
from blockdraft.drafter.dflash import DFlashDrafter
from blockdraft.drafter.eagle3 import Eagle3Drafter
from blockdraft.drafter.eagle3_random import ShapedTarget, eagle3_config, random_eagle3
from blockdraft.engine import fast_drafter
from blockdraft.engine.build import LoadedTarget, clock_for
from blockdraft.evaluation.speed import rotated
from blockdraft.native.drafting import PackedDrafter
from blockdraft.native.eagle3 import fast_kernels
from blockdraft.native.segments import Segment
from blockdraft.native.tuning import Clock

LENGTHS = (1, 2, 3, 4, 5, 7, 8, 11, 12, 15)
"""Drafted tokens; among them those of the widths that the presets measure."""

ROUNDS = 9
LEAST_ROUNDS = 3
MOST_SECONDS = 4.0
"""No round begins later, but for the least."""

RANDOM_NAME = "EAGLE-3 shape"
_SEED = 0
_ANCHOR = 1

Draft = Callable[[int], int]
"""Drafts so many tokens after a context that stays; returns how many it drafted."""


class DraftCost(NamedTuple):
    """Seconds in which a drafter drafts `tokens` for each of `requests` requests."""

    name: str
    kind: str
    weights: str
    requests: int
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A drafter with a context. Drafts longer than `most` go by `longer_name`, or are left out."""

    name: str
    kind: str
    weights: str
    most: int
    longer_name: str | None
    draft: Draft


def measure_lengths(
    target: LoadedTarget, drafters: Sequence[tuple[str, Drafter]], context_len: int
) -> tuple[DraftCost, ...]:
    """Medians by draft length of the block and EAGLE-3 drafters among `drafters`, by their names.

    Where a block drafter is measured and no EAGLE-3 drafter is given, one of random weights joins.
    Longer blocks than a drafter was trained for are timed on the same weights, under a name that
    says so. Nothing is measured where there is neither kind.
    """
    contenders = [
        made
        for name, drafter in drafters
        if (made := _contender(target, name, drafter, context_len)) is not None
    ]
    kinds = {one.kind for one in contenders}
    if kinds == {"block"} and isinstance(target, ShapedTarget):
        contenders.append(_random_contender(target, context_len, clock_for(target.device)))
    return time_lengths(contenders, clock_for(target.device))


def time_lengths(contenders: Sequence[Contender], clock: Clock) -> tuple[DraftCost, ...]:
    """Rounds over all lengths, every contender in turn; the first round warms up."""
    seconds: dict[tuple[int, int], list[float]] = {}
    orders = [
        (place, tokens)
        for tokens, place in product(LENGTHS, range(len(contenders)))
        if tokens <= contenders[place].most or contenders[place].longer_name is not None
    ]
    began = clock()
    for number in range(1 + ROUNDS if orders else 0):
        if number > LEAST_ROUNDS and clock() - began > MOST_SECONDS:
            break
        for place, tokens in rotated(orders, number):
            started = clock()
            drafted = contenders[place].draft(tokens)
            ended = clock()
            if number and drafted == tokens:  # a position limit may have cut it
                seconds.setdefault((place, tokens), []).append(ended - started)
    return tuple(
        DraftCost(_name(contenders[place], tokens), kind, weights, 1, tokens, median(times))
        for (place, tokens), times in sorted(seconds.items())
        for kind, weights in [(contenders[place].kind, contenders[place].weights)]
    )


def _name(contender: Contender, tokens: int) -> str:
    longer = contender.longer_name
    return contender.name if tokens <= contender.most or longer is None else longer


def _contender(
    target: LoadedTarget, name: str, drafter: Drafter, context_len: int
) -> Contender | None:
    drafter = fast_drafter(target, drafter)
    if isinstance(drafter, Eagle3Drafter):
        draft, kind = _chain(target, drafter, context_len), "autoregressive"
    elif isinstance(drafter, PackedDrafter):
        draft, kind = _packed(target, drafter, context_len), "block"
    elif isinstance(drafter, DFlashDrafter):
        draft, kind = _plain_block(target, drafter, context_len), "block"
    else:
        return None
    longer = f"{name}, beyond its block of {drafter.block_size}" if kind == "block" else None
    return Contender(
        name=name,
        kind=kind,
        weights="trained",
        most=drafter.block_size - 1,
        longer_name=longer,
        draft=draft,
    )


def _random_contender(target: ShapedTarget, context_len: int, clock: Clock) -> Contender:
    """With the kernels that the block drafter has, so that only the shape differs."""
    config = eagle3_config(target, block_size=1 + max(LENGTHS))
    drafter = random_eagle3(target, _SEED, config=config, kernels=fast_kernels(clock))
    return Contender(
        name=RANDOM_NAME,
        kind="autoregressive",
        weights="random",
        most=max(LENGTHS),
        longer_name=None,
        draft=_chain(target, drafter, context_len),
    )


def _chain(target: TargetModel, drafter: Eagle3Drafter, context_len: int) -> Draft:
    state = drafter.open()
    state.extend((_ANCHOR,) * context_len, _features(target, drafter, context_len))
    return lambda tokens: len(state.propose(_ANCHOR, tokens + 1).ids)


def _packed(target: TargetModel, drafter: PackedDrafter, context_len: int) -> Draft:
    """Its passes, past the cut to the trained block that `propose` makes."""
    pool = drafter.new_pool(context_len + 1 + max(LENGTHS))
    rows = range(context_len)
    drafter.project(_features(target, drafter, context_len), rows, rows, pool)

    def draft(tokens: int) -> int:
        context = Segment(0, context_len, tokens + 1)
        if drafter.has_selector:
            return drafter.draft_lattices([_ANCHOR], [context], pool)[0].candidates.shape[0]
        return len(_best(drafter.draft([_ANCHOR], [context], pool)))

    return draft


def _plain_block(target: TargetModel, drafter: DFlashDrafter, context_len: int) -> Draft:
    state = drafter.open()
    state.extend((_ANCHOR,) * context_len, _features(target, drafter, context_len))

    def draft(tokens: int) -> int:
        made = drafter.draft(state, _ANCHOR, tokens + 1)
        return len(_best(made[0]))

    return draft


def _features(target: TargetModel, drafter: Drafter, context_len: int) -> torch.Tensor:
    like = target.embed(torch.zeros(1, dtype=torch.long))
    return like.new_zeros(context_len, len(drafter.taps) * target.spec.hidden_size)


def _best(scores: torch.Tensor) -> list[int]:
    """The ids that greedy drafting would take: a chain has to find its own, too."""
    return cast("list[int]", scores.argmax(-1).tolist())
