"""Features are the raw outputs of the tapped layers, and the hooks never stay behind."""

from typing import cast

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from blockdraft.errors import RequestError, UnsupportedTarget
from blockdraft.target.capture import Captured, capture, find_decoder_layers
from blockdraft.target.hf import HFTarget
from blockdraft.testing.tiny import FAMILIES, Family, tiny_model

IDS = torch.tensor([5, 9, 13, 40, 7, 7, 2])


def layers_of(model: PreTrainedModel) -> nn.ModuleList:
    return find_decoder_layers(model.base_model, 3)


def num_hooks(model: nn.Module) -> int:
    """Read off a private attribute: torch has no public count."""
    return sum(len(getattr(module, "_forward_hooks")) for module in model.modules())  # noqa: B009


def outputs_by_plain_hooks(model: PreTrainedModel) -> list[Tensor]:
    """What each block returns, read by hooks of the test's own."""
    outputs: list[Tensor] = []

    def keep(module: nn.Module, args: object, output: Tensor) -> None:
        outputs.append(output[0])

    handles = [layer.register_forward_hook(keep) for layer in layers_of(model)]
    with torch.no_grad():
        model(input_ids=IDS[None])
    for handle in handles:
        handle.remove()
    return outputs


@pytest.mark.parametrize("family", FAMILIES)
def test_features_are_what_the_blocks_return(family: Family) -> None:
    model = tiny_model(family)
    expected = outputs_by_plain_hooks(model)
    target = HFTarget(model)
    prefilled = target.open(taps=(0, 2)).prefill(IDS)
    assert prefilled.features is not None
    torch.testing.assert_close(prefilled.features, torch.cat([expected[0], expected[2]], -1))
    state = target.open(taps=(2, 0, 2))
    state.prefill(IDS[:3])
    verified = state.verify(IDS[3:])
    assert verified.features is not None
    in_order = torch.cat([expected[2], expected[0], expected[2]], -1)
    torch.testing.assert_close(verified.features, in_order[3:], atol=1e-6, rtol=1e-6)


def test_last_layer_is_tapped_before_the_final_norm_l03() -> None:
    """L03: `hidden_states[-1]` is already normed, the block's own output is not."""
    model = tiny_model("qwen3")
    features = HFTarget(model).open(taps=(0, 2)).prefill(IDS).features
    assert features is not None
    with torch.no_grad():
        output = model(input_ids=IDS[None], output_hidden_states=True)
    hidden_states = cast(tuple[Tensor, ...], output.hidden_states)
    torch.testing.assert_close(features[:, :32], hidden_states[1][0])
    assert not torch.allclose(features[:, 32:], hidden_states[-1][0], atol=0.1)
    norm = cast(nn.Module, model.base_model.norm)
    torch.testing.assert_close(norm(features[:, 32:]), hidden_states[-1][0])


def test_untapped_passes_have_no_features() -> None:
    assert HFTarget(tiny_model()).open().prefill(IDS).features is None


def test_hooks_are_gone_after_a_pass_and_after_an_error() -> None:
    model = tiny_model()
    before = num_hooks(model)
    state = HFTarget(model).open(taps=(0, 1))
    state.prefill(IDS)
    with pytest.raises(RequestError):
        state.verify(torch.tensor([10**6]))
    assert num_hooks(model) == before
    layers = layers_of(model)
    with pytest.raises(ZeroDivisionError), capture(layers, (0, 1, 1)):
        assert num_hooks(model) == before + 2
        raise ZeroDivisionError
    assert num_hooks(model) == before
    with pytest.raises(IndexError), capture(layers, (0, 99)):
        pass
    assert num_hooks(model) == before


def test_capture_takes_tuples_and_refuses_other_shapes() -> None:
    captured = Captured((0,))
    captured.store(0, (torch.ones(1, 2, 4), None))
    assert captured.features() is not None
    for output in ("text", torch.ones(2, 4), torch.ones(1, 2, 2, 4), (None,)):
        with pytest.raises(UnsupportedTarget, match="layer 3"):
            captured.store(3, output)


def test_a_model_without_a_known_layer_list_is_refused() -> None:
    with pytest.raises(UnsupportedTarget, match="no list of 3 decoder layers"):
        find_decoder_layers(nn.Linear(2, 2), 3)
    with pytest.raises(UnsupportedTarget, match="no list of 4 decoder layers"):
        find_decoder_layers(tiny_model().base_model, 4)
