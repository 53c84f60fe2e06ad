"""A block drafter's weights laid out for `drafting.py`: its layers and its candidate selector.

It copies what it fuses and shares the rest; it computes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from blockdraft.drafter.convolution import BlockConvolution
from blockdraft.drafter.model import BlockDrafter, DrafterLayer
from blockdraft.drafter.selector import CandidateSelector
from blockdraft.native.convolution import PackedConvolution
from blockdraft.native.linear import Linear, dense_linear
from blockdraft.native.norm import RMSNormWeight
from blockdraft.native.weights import LayerWeights


@dataclass(slots=True)
class PackedLayer(LayerWeights):
    """A drafter's layer; the convolutions are those of DFlash 2."""

    attention_conv: PackedConvolution | None
    mlp_conv: PackedConvolution | None

    @property
    def all_linears(self) -> tuple[Linear, ...]:
        """Its products, those of the convolutions included."""
        convolutions = (self.attention_conv, self.mlp_conv)
        return (*self.linears, *(each.projection for each in convolutions if each is not None))


def pack_layer(layer: DrafterLayer, eps: float) -> PackedLayer:
    """One layer, its projections of the same rows fused; `eps` is that of its norms."""
    attention, mlp = layer.self_attn, layer.mlp
    config_heads = attention.q_proj.out_features // attention.head_dim
    key_heads = attention.k_proj.out_features // attention.head_dim
    norms = (
        attention.q_norm.weight.detach().expand(config_heads, -1),
        attention.k_norm.weight.detach().expand(key_heads, -1),
    )
    return PackedLayer(
        input_norm=RMSNormWeight(layer.input_layernorm.weight.detach(), eps),
        qkv=fused([attention.q_proj, attention.k_proj, attention.v_proj]),
        qk_norm=torch.cat(norms),
        out=fused([attention.o_proj]),
        mlp_norm=RMSNormWeight(layer.post_attention_layernorm.weight.detach(), eps),
        gate_up=fused([mlp.gate_proj, mlp.up_proj]),
        down=fused([mlp.down_proj]),
        attention_conv=_pack_convolution(layer.attention_conv),
        mlp_conv=_pack_convolution(layer.mlp_conv),
    )


def _pack_convolution(convolution: BlockConvolution | None) -> PackedConvolution | None:
    return None if convolution is None else PackedConvolution(convolution)


def share_selector(model: BlockDrafter) -> CandidateSelector | None:
    """The model's selector, its weights shared, so that they outlive `release_weights`."""
    config = model.config
    if model.candidate_selector is None or config.dflash2 is None:
        return None
    with torch.device("meta"):
        selector = CandidateSelector(config.hidden_size, config.vocab_size, config.dflash2)
    selector.load_state_dict(model.candidate_selector.state_dict(), assign=True)
    return selector.requires_grad_(False)


def fused(parts: Sequence[torch.nn.Linear]) -> Linear:
    """One product for several projections of the same input."""
    weight = torch.cat([part.weight.detach() for part in parts])
    biases = [
        bias.detach() for part in parts for name, bias in part.named_parameters() if name == "bias"
    ]
    return dense_linear(weight, torch.cat(biases) if biases else None)
