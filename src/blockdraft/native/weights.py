"""The parameters of a native decoder, fused: q, k and v in one product, gate and up in one.

Taken from a loaded transformers model, layer by layer, so that no second copy of all weights is
ever alive. A layer computes what concerns no other row; attention is in `model.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from blockdraft.native.config import NativeConfig
from blockdraft.native.linear import Linear
from blockdraft.native.norm import RMSNormWeight

MakeLinear = Callable[[Float[Tensor, "out in"], Float[Tensor, " out"] | None], Linear]


@dataclass(slots=True)
class LayerWeights:
    """One decoder layer, a target's or a drafter's.

    `qk_norm` holds a row for each query head, then for each key head.
    """

    input_norm: RMSNormWeight
    qkv: Linear
    qk_norm: Float[Tensor, "heads dim"] | None
    out: Linear
    mlp_norm: RMSNormWeight
    gate_up: Linear
    down: Linear

    @property
    def linears(self) -> tuple[Linear, ...]:
        return (self.qkv, self.out, self.gate_up, self.down)

    def heads(
        self, hidden: Float[Tensor, "rows hidden"], head_dim: int, eps: float
    ) -> Float[Tensor, "rows heads dim"]:
        """Query, key and value heads, in this order; queries and keys normed, none rotated."""
        return self.heads_of(self.input_norm(hidden), head_dim, eps)

    def heads_of(
        self, normed: Float[Tensor, "rows hidden"], head_dim: int, eps: float
    ) -> Float[Tensor, "rows heads dim"]:
        """`heads` of rows that went through the input norm already."""
        heads = self.qkv(normed).view(normed.shape[0], -1, head_dim)
        if self.qk_norm is not None:
            turned = heads[:, : self.qk_norm.shape[0]]
            turned.copy_(functional.rms_norm(turned, (head_dim,), eps=eps) * self.qk_norm)
        return heads

    def feed_forward(self, hidden: Float[Tensor, "rows hidden"]) -> Float[Tensor, "rows hidden"]:
        """The gated MLP with its norm and residual."""
        return self.gated(self.mlp_norm(hidden), hidden)

    def gated(
        self,
        normed: Float[Tensor, "rows hidden"],
        residual: Float[Tensor, "rows hidden"] | None,
    ) -> Float[Tensor, "rows hidden"]:
        """The gated MLP of rows that went through its norm already, `residual` added."""
        gate, up = self.gate_up(normed).chunk(2, dim=-1)
        return self.down(functional.silu(gate) * up, residual)


@dataclass(slots=True)
class NativeWeights:
    """All parameters.

    `head_weight` is kept beside the head's kernels because drafters of a reduced vocabulary take
    rows of it; a tied model's is its embedding.
    """

    embedding: Float[Tensor, "vocab hidden"]
    layers: list[LayerWeights]
    norm: RMSNormWeight
    head: Linear
    head_weight: Float[Tensor, "vocab hidden"]
    head_bias: Float[Tensor, " vocab"] | None
    inverse_frequencies: Float[Tensor, " freqs"]
    rotary_scale: float

    @property
    def linears(self) -> tuple[Linear, ...]:
        return (*(linear for layer in self.layers for linear in layer.linears), self.head)


def take_weights(model: nn.Module, config: NativeConfig, make: MakeLinear) -> NativeWeights:
    """Move the parameters out of `model`, whose layers are emptied on the way.

    `make` turns a weight and a bias into a product (dense, or quantized).
    """
    inner = _module(model, "model")
    layers = inner.get_submodule("layers")
    assert isinstance(layers, nn.ModuleList)
    embedding = _parameter(inner, "embed_tokens.weight")
    head = _parameter(model, "lm_head.weight")
    rotary = inner.get_submodule("rotary_emb")
    frequencies = rotary.get_buffer("inv_freq")
    scale = getattr(rotary, "attention_scaling", 1.0)
    assert isinstance(scale, float | int)
    weights = NativeWeights(
        embedding=embedding,
        layers=[],
        norm=RMSNormWeight(_parameter(inner, "norm.weight"), config.rms_norm_eps),
        head=make(head, _optional(model, "lm_head.bias")),
        head_weight=head,
        head_bias=_optional(model, "lm_head.bias"),
        inverse_frequencies=frequencies.detach().clone(),
        rotary_scale=float(scale),
    )
    for layer in layers:
        weights.layers.append(_take_layer(layer, config, make))
        layer.to("meta")
    return weights


def _take_layer(layer: nn.Module, config: NativeConfig, make: MakeLinear) -> LayerWeights:
    def fused(*names: str) -> Linear:
        weight = torch.cat([_parameter(layer, f"{name}.weight") for name in names])
        biases = [_optional(layer, f"{name}.bias") for name in names]
        present = [bias for bias in biases if bias is not None]
        assert len(present) in (0, len(names)), f"only some of {names} have a bias"
        return make(weight, torch.cat(present) if present else None)

    def norm(name: str) -> RMSNormWeight:
        return RMSNormWeight(_parameter(layer, name), config.rms_norm_eps)

    return LayerWeights(
        input_norm=norm("input_layernorm.weight"),
        qkv=fused("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        qk_norm=_take_qk_norm(layer, config),
        out=fused("self_attn.o_proj"),
        mlp_norm=norm("post_attention_layernorm.weight"),
        gate_up=fused("mlp.gate_proj", "mlp.up_proj"),
        down=fused("mlp.down_proj"),
    )


def _take_qk_norm(layer: nn.Module, config: NativeConfig) -> Tensor | None:
    query_norm = _optional(layer, "self_attn.q_norm.weight")
    key_norm = _optional(layer, "self_attn.k_norm.weight")
    if query_norm is None or key_norm is None:
        return None
    rows = (
        query_norm.expand(config.num_heads, -1),
        key_norm.expand(config.num_kv_heads, -1),
    )
    return torch.cat(rows)


def _module(module: nn.Module, name: str) -> nn.Module:
    return module.get_submodule(name)


def _parameter(module: nn.Module, name: str) -> Tensor:
    return module.get_parameter(name).detach()


def _optional(module: nn.Module, name: str) -> Tensor | None:
    owner, _, last = name.rpartition(".")
    try:
        found = module.get_submodule(owner)
    except AttributeError:
        return None
    value = getattr(found, last, None)
    return value.detach() if isinstance(value, Tensor) else None
