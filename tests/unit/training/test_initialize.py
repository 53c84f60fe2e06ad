"""First weights: random ones by seed, or exactly the target's layers."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from blockdraft.drafter import BlockDrafter, DrafterConfig
from blockdraft.errors import ConfigError, UnsupportedTarget
from blockdraft.target import HFTarget
from blockdraft.testing import tiny_model
from blockdraft.testing.tiny import Family
from blockdraft.training.initialize import copy_target_layers, new_drafter, spread_layers

CONFIG = DrafterConfig(
    hidden_size=32,
    intermediate_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    rms_norm_eps=1e-6,
    vocab_size=96,
    block_size=4,
    mask_token_id=0,
    taps=(0, 1),
    num_target_layers=3,
    layer_types=("full_attention", "full_attention"),
    max_position_embeddings=512,
)


def test_random_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = new_drafter(CONFIG, 5).state_dict()
    torch.manual_seed(2)

    again, other = new_drafter(CONFIG, 5).state_dict(), new_drafter(CONFIG, 6).state_dict()
    for name, tensor in first.items():
        assert torch.equal(tensor, again[name]) and tensor.dtype == torch.float32
        assert tensor.ndim == 1 or not torch.equal(tensor, other[name])


def test_sizes_of_random_weights() -> None:
    drafter = new_drafter(replace(CONFIG, hidden_size=64, intermediate_size=256), 0)
    for name, parameter in drafter.named_parameters():
        if parameter.ndim == 1:
            assert parameter.eq(1).all(), name
        else:
            expected = 0.02 / (math.sqrt(4) if "o_proj" in name or "down_proj" in name else 1)
            assert float(parameter.detach().std()) == pytest.approx(expected, rel=0.1), name


@pytest.mark.parametrize(
    ("layers", "count", "expected"),
    [
        (30, 5, (1, 8, 14, 20, 27)),
        (36, 5, (1, 9, 17, 25, 33)),
        (30, 1, (15,)),
        (4, 2, (1, 1)),
        (5, 2, (1, 2)),
    ],
)
def test_spread_layers(layers: int, count: int, expected: tuple[int, ...]) -> None:
    if len(set(expected)) < count:
        with pytest.raises(ConfigError, match=f"{count} taps from a target of {layers} layers"):
            spread_layers(layers, count)
    else:
        assert spread_layers(layers, count) == expected


def test_spread_layers_ascend_for_every_size() -> None:
    for layers in range(4, 80):
        for count in range(1, layers - 3):
            chosen = spread_layers(layers, count)
            assert len(chosen) == count and list(chosen) == sorted(set(chosen))
            assert chosen[0] >= 0 and chosen[-1] < layers - 1


def tensors_of(family: Family) -> dict[str, Tensor]:
    return dict(tiny_model(family, dtype=torch.float32).state_dict())


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_layers_of_the_target_are_copied(family: Family) -> None:
    tensors = tensors_of(family)
    drafter = new_drafter(CONFIG, 0)
    copy_target_layers(drafter, tensors, (2, 0))
    for layer, source in zip(drafter.decoder_layers(), (2, 0), strict=True):
        for name, parameter in layer.named_parameters():
            expected = tensors.get(f"model.layers.{source}.{name}")
            if expected is None:
                assert family == "llama" and ("q_norm" in name or "k_norm" in name)
                assert bool((parameter == parameter[0]).all()) and float(parameter[0].detach()) > 0
            else:
                assert torch.equal(parameter, expected), name
    assert torch.equal(drafter.norm.weight, tensors["model.norm.weight"])
    assert all(p.requires_grad and p.is_leaf for p in drafter.parameters())
    copied = next(next(iter(drafter.decoder_layers())).parameters())
    assert all(copied.data_ptr() != tensor.data_ptr() for tensor in tensors.values())


def test_a_copied_layer_sees_the_target_s_own_keys() -> None:
    # Features of the tap below, fused and normed, give the keys that the layer had in the target.
    model = tiny_model("qwen3", dtype=torch.float32)
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = HFTarget(model).open((1,))
    features = state.prefill(torch.arange(5, 25)).features
    assert features is not None
    shape = replace(CONFIG, num_layers=1, taps=(1,), layer_types=("full_attention",))
    drafter = new_drafter(shape, 0)
    copy_target_layers(drafter, tensors, (2,))
    size = features.square().mean(-1, keepdim=True).add(CONFIG.rms_norm_eps).sqrt()
    normed = features / size * tensors["model.layers.2.input_layernorm.weight"]
    expected = normed @ tensors["model.layers.2.self_attn.k_proj.weight"].T
    attention = next(drafter.decoder_layers()).self_attn
    with torch.no_grad():
        found: Tensor = attention.k_proj(drafter.fuse(features[None]))[0]
    assert float((found - expected).norm() / expected.norm()) < 0.05


def test_layers_that_do_not_fit_are_refused() -> None:
    tensors = tensors_of("llama")
    with pytest.raises(ConfigError, match="1 target layers for a drafter of 2"):
        copy_target_layers(new_drafter(CONFIG, 0), tensors, (0,))
    with pytest.raises(UnsupportedTarget, match=r"has no model\.layers\.9\..*start from scratch"):
        copy_target_layers(new_drafter(CONFIG, 0), tensors, (0, 9))
    narrow = BlockDrafter(replace(CONFIG, intermediate_size=48))
    with pytest.raises(UnsupportedTarget, match=r"mlp.* is \[.*64.*\], the drafter's is \[.*48"):
        copy_target_layers(narrow, tensors, (0, 1))
