"""The shape checks that `conftest.py` installs are really on, in both packages."""

from collections.abc import Iterator
from dataclasses import dataclass

import jaxtyping
import pytest
import torch
from beartype import beartype
from jaxtyping import (
    Float,
    jaxtyped,  # pyright: ignore[reportUnknownVariableType]: any kind of type checker
)
from torch import Tensor

from blockdraft.decoding.accept import draw
from blockdraft.drafter.layers import RMSNorm


def test_a_wrong_dtype_is_refused() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        draw(torch.zeros(3, dtype=torch.long), torch.zeros(()))


def test_shapes_must_agree_with_each_other() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        draw(torch.zeros(3, 5), torch.zeros(4))


def test_the_drafter_is_checked_too() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        RMSNorm(4, 1e-6)(torch.zeros(4, dtype=torch.long))


@jaxtyped(typechecker=beartype)
def first_rows(rows: Float[Tensor, "rows hidden"], count: int) -> Float[Tensor, "rows hidden"]:
    return rows[:count]


@jaxtyped(typechecker=beartype)
def half(rows: Float[Tensor, "rows hidden"]) -> Float[Tensor, " rows"]:
    return first_rows(rows[:2], 2)[0, :1].expand(len(rows))


@jaxtyped(typechecker=beartype)
def words(count: int) -> str:
    return "word " * count


@jaxtyped(typechecker=beartype)
def drafts(rows: Float[Tensor, "rows hidden"]) -> Iterator[Tensor]:
    yield from rows


@jaxtyped(typechecker=beartype)
@dataclass
class Rows:
    values: Float[Tensor, "rows hidden"]
    of: Float[Tensor, " rows"]


def test_results_are_checked_against_the_arguments() -> None:
    assert len(first_rows(torch.zeros(3, 5), 3)) == 3
    with pytest.raises(jaxtyping.TypeCheckError):
        first_rows(torch.zeros(3, 5), 2)


def test_each_call_has_axes_of_its_own() -> None:
    for num_rows in (2, 4):
        assert half(torch.zeros(num_rows, num_rows)).shape == (num_rows,)


def test_what_holds_no_shape_is_checked_too() -> None:
    assert words(2) == "word word "
    with pytest.raises(jaxtyping.TypeCheckError):
        words("2")  # pyright: ignore[reportArgumentType]: wrong on purpose


def test_a_generator_is_checked_when_it_is_called() -> None:
    assert len(list(drafts(torch.zeros(3, 5)))) == 3
    with pytest.raises(jaxtyping.TypeCheckError):
        drafts(torch.zeros(3))


def test_the_fields_of_a_dataclass_are_checked() -> None:
    assert Rows(torch.zeros(3, 5), torch.zeros(3)).of.shape == (3,)
    with pytest.raises(jaxtyping.TypeCheckError):
        Rows(torch.zeros(3, 5), torch.zeros(4))
