"""What the tests of the grid share: prompts, drafters, and texts of plain generation.

No checks of its own but that the texts are fit to judge by: long, varied and without near-ties.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import pytest

from blockdraft.decoding import Drafter
from blockdraft.target.hf import HFTarget
from blockdraft.testing import RandomDrafter
from blockdraft.testing.families import (
    GRID,
    TinyFamily,
    family_model,
    family_named,
    is_installed,
)
from blockdraft.testing.family_entry import VOCAB_SIZE
from blockdraft.testing.known_text import KnownTextDrafter
from blockdraft.testing.plain import PlainText, plain_text

DrafterKind = Literal["random", "oracle", "always wrong", "half right"]
DRAFTER_KINDS: tuple[DrafterKind, ...] = ("random", "oracle", "always wrong", "half right")
BLOCK_SIZES = (2, 7, 16)
NUM_TOKENS = 64

# The shortest prompt, one as long as a block, two beyond every window (6) and block; the whole grid
# leaves out the third.
PROMPTS: tuple[tuple[int, ...], ...] = (
    (5,),
    (5, 9, 13, 40, 7, 7, 11),
    tuple(range(10, 33)),
    tuple((7 * step + 3) % 93 + 3 for step in range(41)),
)

NEAR_TIE = 1e-4
"""Below this gap of two logits, fp32 rounding in another order may choose the other token. The
texts that we compare with have no such place, so that every difference is a failure."""

DECODED = tuple(family for family in GRID if family.refused is None)
REFUSED = tuple(family for family in GRID if family.refused is not None)


@dataclass(frozen=True, slots=True)
class Case:
    """A target and the texts that it must write."""

    target: HFTarget
    texts: tuple[PlainText, ...]


@cache
def texts_of(key: str) -> tuple[PlainText, ...]:
    """Plain generation for every prompt, by a model of its own."""
    model = family_model(family_named(key))
    return tuple(plain_text(model, PROMPTS[index], NUM_TOKENS) for index in (0, 1, 3))


@cache
def target_of(key: str) -> HFTarget:
    return HFTarget(family_model(family_named(key)), name=key)


def case_of(family: TinyFamily) -> Case:
    """Skips the test, by name, where the installed transformers lacks the family."""
    skip_missing(family)
    return Case(target_of(family.key), texts_of(family.key))


def skip_missing(family: TinyFamily) -> None:
    """Skips the test where the installed transformers lacks the family, if the table says so."""
    if not is_installed(family):
        assert family.newer_than is not None, f"{family.model_type} is missing"
        pytest.skip(f"the installed transformers has no {family.model_type}")


def make_drafter(
    kind: DrafterKind, texts: Sequence[PlainText], block_size: int, seed: int = 0
) -> Drafter:
    """A drafter that never asks the target; "half right": any number of drafts, by turns."""
    if kind == "random":
        return RandomDrafter(VOCAB_SIZE, block_size, seed=seed)
    known: Mapping[tuple[int, ...], Sequence[int]] = {text.prompt: text.ids for text in texts}
    num_right: dict[str, Callable[[int], int]] = {
        "oracle": lambda position: block_size,
        "always wrong": lambda position: 0,
        # 5 and most block sizes have no common divisor, so all of 0 to block_size - 1 come.
        "half right": lambda position: 5 * position % block_size,
    }
    return KnownTextDrafter(known, block_size, VOCAB_SIZE, num_right[kind])


def difference(
    expected: PlainText, found: Sequence[int], num_tokens: int = NUM_TOKENS
) -> str | None:
    """Where `found` leaves the text, in words; None when it is the same."""
    want = expected.ids[:num_tokens]
    if tuple(found) == want:
        return None
    pairs = enumerate(zip(want, found, strict=False))
    place = next((index for index, (a, b) in pairs if a != b), min(len(want), len(found)))
    margin = f"{expected.margins[place]:.1e}" if place < len(want) else "none"
    return (
        f"prompt of {len(expected.prompt)}: token {place} of {len(want)} (margin {margin}): "
        f"expected {want[place : place + 4]}, found {tuple(found)[place : place + 4]}"
    )
