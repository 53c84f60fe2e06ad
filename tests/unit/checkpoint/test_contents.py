"""The list of published tensors."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from blockdraft.checkpoint import DrafterCheckpoint
from blockdraft.checkpoint.contents import expected_shapes
from blockdraft.drafter import BlockDrafter, DrafterConfig


@pytest.mark.parametrize("bias", [False, True])
def test_names_and_shapes_are_the_models(config: DrafterConfig, bias: bool) -> None:
    config = replace(config, attention_bias=bias)
    state = BlockDrafter(config).state_dict()
    assert {name: tuple(t.shape) for name, t in state.items()} == expected_shapes(config)


@pytest.mark.parametrize(("num_layers", "num_tensors"), [(5, 58), (8, 91)])
def test_number_of_tensors(config: DrafterConfig, num_layers: int, num_tensors: int) -> None:
    """3 + 11 a layer, as published."""
    config = replace(config, num_layers=num_layers, layer_types=("full_attention",) * num_layers)
    assert len(expected_shapes(config)) == num_tensors


def test_dtype_is_the_fusions(
    config: DrafterConfig, make_checkpoint: Callable[[DrafterConfig], DrafterCheckpoint]
) -> None:
    checkpoint = make_checkpoint(config)
    assert checkpoint.dtype == checkpoint.state["fc.weight"].dtype
