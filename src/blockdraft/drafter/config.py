"""The shape and rules of a block drafter, validated when made.

It does not read or write config.json; `checkpoint/format.py` maps the published keys to it.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from blockdraft.errors import ConfigError

LayerType = Literal["full_attention", "sliding_attention"]
RopeType = Literal["default", "linear", "yarn", "llama3"]


class MaskRule(NamedTuple):
    """Who sees whom in one layer, by absolute position.

    A query at `q` sees a key at `k` unless `causal` and k > q, or |q - k| >= `window`.
    """

    causal: bool
    window: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary embedding parameters; those that `rope_type` does not use keep their defaults.

    `attention_factor` None means: computed from `factor`, `mscale` and `mscale_all_dim` (YaRN).
    """

    rope_type: RopeType = "default"
    theta: float = 10_000.0
    factor: float = 1.0
    original_max_position_embeddings: int | None = None
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    def __post_init__(self) -> None:
        _require(self.theta > 1, "rope theta", self.theta, "greater than 1")
        _require(self.factor >= 1, "rope factor", self.factor, "at least 1")
        _require(self.beta_fast > 0, "beta_fast", self.beta_fast, "positive")
        _require(self.beta_slow > 0, "beta_slow", self.beta_slow, "positive")
        if self.rope_type in ("yarn", "llama3"):
            original_len = self.original_max_position_embeddings
            _require(
                original_len is not None and original_len > 0,
                "original_max_position_embeddings",
                original_len,
                f"a positive number ({self.rope_type} RoPE needs it)",
            )
        if self.rope_type == "llama3":
            _require(
                0 < self.low_freq_factor < self.high_freq_factor,
                "low_freq_factor",
                self.low_freq_factor,
                f"between 0 and high_freq_factor {self.high_freq_factor}",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DFlash2Config:
    """What DFlash 2 adds to every layer and to the choice of tokens (docs/algorithm.md).

    A convolution has `conv_kernel_size` taps and dynamic weights for groups of `conv_group_size`
    channels. The selector scores pairs among the `selector_top_k` best ids of neighboring slots by
    products of `selector_rank` numbers.
    """

    conv_kernel_size: int
    conv_group_size: int
    selector_rank: int
    selector_top_k: int

    def __post_init__(self) -> None:
        sizes = {
            "conv_kernel_size": self.conv_kernel_size,
            "conv_group_size": self.conv_group_size,
            "selector_rank": self.selector_rank,
            "selector_top_k": self.selector_top_k,
        }
        for name, size in sizes.items():
            _require(size > 0, name, size, "positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterConfig:
    """A block drafter as published checkpoints describe it.

    `vocab_size`, `hidden_size` and `num_target_layers` (None = not recorded) are the target's.
    `block_size` counts the anchor. `taps` are zero-based target layers whose outputs, after the
    layer and before the next norm, are the context features. `is_causal` None leaves causality to
    the layer type. `draft_vocab_size` None means that the target's whole vocabulary is drafted.
    `dflash2` None is the first version: no convolutions, no candidate selector.
    """

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    vocab_size: int
    block_size: int
    mask_token_id: int
    taps: tuple[int, ...]
    layer_types: tuple[LayerType, ...]
    max_position_embeddings: int
    num_target_layers: int | None = None
    rope: RopeConfig = field(default_factory=RopeConfig)
    sliding_window: int | None = None
    is_causal: bool | None = None
    attention_bias: bool = False
    input_embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    final_logit_softcapping: float | None = None
    draft_vocab_size: int | None = None
    dflash2: DFlash2Config | None = None

    def __post_init__(self) -> None:
        self._check_sizes()
        self._check_layers()
        if self.dflash2 is not None:
            self._check_dflash2(self.dflash2)
        check_taps(self.taps, self.num_target_layers)
        _require(
            0 <= self.mask_token_id < self.vocab_size,
            "mask_token_id",
            self.mask_token_id,
            f"inside the vocabulary of {self.vocab_size}",
        )
        softcap = self.final_logit_softcapping
        _require(softcap is None or softcap > 0, "final_logit_softcapping", softcap, "positive")

    @property
    def position_limit(self) -> int:
        """Positions [0, limit) are those the rotary embedding is meant for.

        YaRN files often keep the length before scaling in `max_position_embeddings`.
        """
        original_len = self.rope.original_max_position_embeddings
        if self.rope.rope_type != "yarn" or original_len is None:
            return self.max_position_embeddings
        return max(self.max_position_embeddings, int(original_len * self.rope.factor))

    def mask_rule(self, layer_idx: int) -> MaskRule:
        """The rule of layer `layer_idx`.

        `is_causal`, when set, holds for all layers; otherwise sliding layers are causal and full
        layers are not, as in the published reference.
        """
        sliding = self.layer_types[layer_idx] == "sliding_attention"
        causal = sliding if self.is_causal is None else self.is_causal
        return MaskRule(causal=causal, window=self.sliding_window if sliding else None)

    def _check_sizes(self) -> None:
        sizes = {
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "num_kv_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab_size,
            "max_position_embeddings": self.max_position_embeddings,
        }
        for name, size in sizes.items():
            _require(size > 0, name, size, "positive")
        _require(self.rms_norm_eps > 0, "rms_norm_eps", self.rms_norm_eps, "positive")
        _require(self.block_size >= 2, "block_size", self.block_size, "at least 2 (anchor, draft)")
        _require(
            self.block_size <= self.position_limit,
            "block_size",
            self.block_size,
            f"at most the position limit {self.position_limit}",
        )
        _require(self.head_dim % 2 == 0, "head_dim", self.head_dim, "even")
        _require(
            self.num_heads % self.num_kv_heads == 0,
            "num_heads",
            self.num_heads,
            f"a multiple of num_kv_heads {self.num_kv_heads}",
        )
        drafted = self.draft_vocab_size
        _require(
            drafted is None or 0 < drafted <= self.vocab_size,
            "draft_vocab_size",
            drafted,
            f"between 1 and vocab_size {self.vocab_size}",
        )

    def _check_dflash2(self, second: DFlash2Config) -> None:
        _require(
            self.hidden_size % second.conv_group_size == 0,
            "conv_group_size",
            second.conv_group_size,
            f"a divisor of hidden_size {self.hidden_size}",
        )
        _require(
            second.selector_top_k <= self.vocab_size,
            "selector_top_k",
            second.selector_top_k,
            f"at most vocab_size {self.vocab_size}",
        )
        _require(
            self.draft_vocab_size is None,
            "draft_vocab_size",
            self.draft_vocab_size,
            "none beside the candidate selector of DFlash 2, which knows the whole vocabulary only",
        )

    def _check_layers(self) -> None:
        _require(
            len(self.layer_types) == self.num_layers,
            "layer_types",
            self.layer_types,
            f"one entry for each of the {self.num_layers} layers",
        )
        if "sliding_attention" in self.layer_types:
            window = self.sliding_window
            _require(
                window is not None and window > 0,
                "sliding_window",
                window,
                "positive (layer_types has sliding layers)",
            )


def check_taps(taps: tuple[int, ...], num_target_layers: int | None) -> None:
    """Raise ConfigError unless `taps` can be the tapped layers of a target of that depth."""
    _require(len(taps) > 0, "taps", taps, "at least one target layer")
    _require(len(set(taps)) == len(taps), "taps", taps, "layers without repetition")
    _require(min(taps) >= 0, "taps", taps, "zero-based layer numbers")
    if num_target_layers is not None:
        last = num_target_layers - 1
        _require(
            max(taps) < last,
            "taps",
            taps,
            f"below {last}, the last layer of a {num_target_layers}-layer target, which can't"
            " be tapped",
        )


def _require(condition: bool, name: str, value: object, expected: str) -> None:
    if not condition:
        raise ConfigError(f"drafter configuration: {name} is {value!r}, expected {expected}")
