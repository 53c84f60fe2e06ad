"""The EAGLE-3 transformer of one request: fuse features, run rows through its one layer, score.

It has no state and chooses no tokens; `eagle3.py` does. Written once against `Kernels`, so that
faster products serve the same arithmetic (`native/eagle3.py`).

Shape legend: rows = tokens fed in one pass, feature = num_taps * target_hidden, dim = head_dim,
kv = key/value heads.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from blockdraft.drafter.eagle3_config import Eagle3Config
from blockdraft.drafter.rope import Rotation, inverse_frequencies, rotate, rotation

Product = Callable[[Float[Tensor, "rows in"]], Float[Tensor, "rows out"]]
"""x -> x W^T."""

Norm = Callable[[Float[Tensor, "rows size"]], Float[Tensor, "rows size"]]

_QUERY, _KEY, _VALUE = (f"midlayer.self_attn.{part}_proj.weight" for part in "qkv")
_OUT = "midlayer.self_attn.o_proj.weight"
_GATE, _UP, _DOWN = (f"midlayer.mlp.{part}_proj.weight" for part in ("gate", "up", "down"))
_HEAD = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class Kernels:
    """How weights become callables: all products of a model at once, and one norm (weight, eps)."""

    products: Callable[[Sequence[Float[Tensor, "out in"]]], Sequence[Product]]
    norm: Callable[[Float[Tensor, " size"], float], Norm]


def eagle3_shapes(config: Eagle3Config) -> dict[str, tuple[int, ...]]:
    """Published name and shape of every tensor that the drafter needs."""
    hidden, inner, dim = config.hidden_size, config.intermediate_size, config.head_dim
    query, kv = config.num_heads * dim, config.num_kv_heads * dim
    return {
        "fc.weight": (hidden, len(config.taps) * config.target_hidden_size),
        "midlayer.input_layernorm.weight": (hidden,),
        "midlayer.hidden_norm.weight": (hidden,),
        "midlayer.post_attention_layernorm.weight": (hidden,),
        _QUERY: (query, 2 * hidden),
        _KEY: (kv, 2 * hidden),
        _VALUE: (kv, 2 * hidden),
        _OUT: (hidden, query),
        _GATE: (inner, hidden),
        _UP: (inner, hidden),
        _DOWN: (hidden, inner),
        "norm.weight": (hidden,),
        _HEAD: (config.draft_vocab_size, hidden),
    }


class Eagle3Cache:
    """Keys and values of one request's rows, overwritten in place; grows by doubling."""

    def __init__(self, config: Eagle3Config, dtype: torch.dtype, device: torch.device) -> None:
        shape = (2, 1, config.num_kv_heads, 0, config.head_dim)
        self._kept = torch.empty(shape, dtype=dtype, device=device)

    def write(self, start: int, new: Float[Tensor, "2 1 kv rows dim"]) -> Tensor:
        """Put `new` at rows [start, ..); keys and values [2, 1, kv, end, dim] up to there."""
        end = start + new.shape[3]
        if end > self._kept.shape[3]:
            capacity = max(64, end, 2 * self._kept.shape[3])
            larger = self._kept.new_zeros((*self._kept.shape[:3], capacity, new.shape[4]))
            larger[:, :, :, :start] = self._kept[:, :, :, :start]
            self._kept = larger
        self._kept[:, :, :, start:end] = new
        return self._kept[:, :, :, :end]


class Eagle3Model:
    """The drafter's weights, laid out by `kernels`; `state` has the names of `eagle3_shapes`."""

    def __init__(self, config: Eagle3Config, state: Mapping[str, Tensor], kernels: Kernels) -> None:
        shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
        assert shapes == eagle3_shapes(config)  # whoever reads files checks them
        self.config = config
        self.dtype, self.device = state["fc.weight"].dtype, state["fc.weight"].device
        self._fc, self._qkv, self._out, self._gate_up, self._down, self._head = kernels.products(
            [
                state["fc.weight"],
                torch.cat([state[_QUERY], state[_KEY], state[_VALUE]]),
                state[_OUT],
                torch.cat([state[_GATE], state[_UP]]),
                state[_DOWN],
                state[_HEAD],
            ]
        )

        def norm(name: str) -> Norm:
            return kernels.norm(state[name], config.rms_norm_eps)

        self._token_norm = norm("midlayer.input_layernorm.weight")
        self._hidden_norm = norm("midlayer.hidden_norm.weight")
        self._mlp_norm = norm("midlayer.post_attention_layernorm.weight")
        self._norm = norm("norm.weight")
        self._frequencies = inverse_frequencies(config.rope, config.head_dim)

    def new_cache(self) -> Eagle3Cache:
        """An empty cache of this model's dtype and device."""
        return Eagle3Cache(self.config, self.dtype, self.device)

    def fuse(self, features: Float[Tensor, "rows feature"]) -> Float[Tensor, "rows hidden"]:
        """The tapped layers of committed tokens as one state each."""
        return self._fc(features.to(device=self.device, dtype=self.dtype))

    def rotation(self, start: int, rows: int) -> Rotation:
        """Of the positions [start, start + rows)."""
        inverse = self._frequencies.inverse.to(self.device)
        positions = torch.arange(start, start + rows, device=self.device)[None]
        return rotation(self._frequencies._replace(inverse=inverse), positions, self.dtype)

    def run(
        self,
        tokens: Float[Tensor, "rows hidden"],
        states: Float[Tensor, "rows hidden"],
        start: int,
        cache: Eagle3Cache,
        by: Rotation,
    ) -> Float[Tensor, "rows hidden"]:
        """The layer's outputs for rows at positions [start, ..), which `cache` then holds.

        A row is a token's embedding beside the state of the position before it: a fused feature,
        or the output of the row before.
        """
        normed = self._hidden_norm(states)
        joined = torch.cat((self._token_norm(tokens.to(self.dtype)), normed), dim=-1)
        residual = normed if self.config.norm_before_residual else states
        attended = self._attend(self._qkv(joined), start, cache, by)
        states = residual + self._out(attended)
        gate, up = self._gate_up(self._mlp_norm(states)).chunk(2, dim=-1)
        return states + self._down(functional.silu(gate) * up)

    def scores(self, states: Float[Tensor, "rows hidden"]) -> Float[Tensor, "rows draft_vocab"]:
        """Logits over the draft vocabulary of the token that follows each row."""
        return self._head(self._norm(states))

    def _attend(
        self, qkv: Float[Tensor, "rows width"], start: int, cache: Eagle3Cache, by: Rotation
    ) -> Float[Tensor, "rows query"]:
        config, rows = self.config, qkv.shape[0]
        num_heads, num_kv = config.num_heads, config.num_kv_heads
        heads = qkv.view(1, rows, -1, config.head_dim).transpose(1, 2)
        turned = rotate(heads[:, : num_heads + num_kv], by)
        new = torch.stack((turned[:, num_heads:], heads[:, num_heads + num_kv :]))
        keys, values = cache.write(start, new).unbind()
        # Query heads of one key/value head become rows of it, so that its keys are read once.
        groups = num_heads // num_kv
        queries = turned[:, :num_heads].reshape(1, num_kv, groups * rows, config.head_dim)
        mask = None if rows == 1 else self._mask(rows, start).repeat(groups, 1)
        attended = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        by_head = attended.reshape(1, num_heads, rows, config.head_dim)
        return by_head.transpose(1, 2).reshape(rows, -1)

    def _mask(self, rows: int, start: int) -> Bool[Tensor, "rows keys"]:
        sees = torch.ones(rows, start + rows, dtype=torch.bool, device=self.device)
        return sees.tril(start)
