"""The shape checks that `conftest.py` installs are really on, in both packages."""

import jaxtyping
import pytest
import torch

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
