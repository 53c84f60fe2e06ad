"""The words a run ends with, and that real out-of-memory errors are known as such."""

import pytest
import torch

from blockdraft.errors import NumericsError
from blockdraft.training.run.failures import (
    check_gradient_finite,
    check_loss_finite,
    is_out_of_memory,
    out_of_memory,
)


def test_a_finite_loss_passes() -> None:
    check_loss_finite(3.5, [1, 2], step=7)
    check_gradient_finite(3.5, [1, 2], step=7)


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_names_step_and_rows(loss: float) -> None:
    with pytest.raises(NumericsError, match=r"step 7: the loss is (nan|inf) on sample rows 3, 9;"):
        check_loss_finite(loss, [3, 9], step=7)
    with pytest.raises(NumericsError, match=r"step 7: the gradient norm .* sample row 3;"):
        check_gradient_finite(loss, [3], step=7)


def test_many_rows_are_cut_short() -> None:
    with pytest.raises(NumericsError, match=r"rows 0, 1, 2, 3, 4, 5, 6, 7 and 92 more"):
        check_loss_finite(float("nan"), range(100), step=0)


def test_knows_the_allocators_own_error() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 55, dtype=torch.float32)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_out_of_memory_names_the_batch() -> None:
    text = str(out_of_memory(12, [4, 8], num_tokens=4096, num_anchors=512))
    assert text.startswith("step 12: out of memory on sample rows 4, 8 (4096 tokens, 512 anchors)")
