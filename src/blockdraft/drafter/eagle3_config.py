"""The shape of an EAGLE-3 drafter: one decoder layer that drafts a token at a time.

It reads no files; `checkpoint/eagle3_format.py` maps published keys to it.
"""

from dataclasses import dataclass, field

from blockdraft.drafter.config import RopeConfig
from blockdraft.errors import ConfigError

_LEAST_LAYERS = 7
"""Of a target, for the three public taps to be three layers."""

DEFAULT_BLOCK_SIZE = 8
"""Seven drafts after the anchor, which the public recipes train for, where nothing else is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Config:
    """An EAGLE-3 drafter as published checkpoints describe it.

    `target_hidden_size` is the width of one tapped layer, `hidden_size` the drafter's own.
    `draft_vocab_size` is the number of target ids that it can draft. `block_size` counts the anchor
    and only says how far it is used; any length can be drafted. `norm_before_residual`: what
    attention adds to is the normed state instead of the state.
    """

    hidden_size: int
    target_hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    vocab_size: int
    draft_vocab_size: int
    taps: tuple[int, ...]
    max_position_embeddings: int
    block_size: int = DEFAULT_BLOCK_SIZE
    rope: RopeConfig = field(default_factory=RopeConfig)
    norm_before_residual: bool = False

    def __post_init__(self) -> None:
        sizes = {
            "hidden_size": self.hidden_size,
            "target_hidden_size": self.target_hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab_size,
            "draft_vocab_size": self.draft_vocab_size,
            "max_position_embeddings": self.max_position_embeddings,
        }
        for name, size in sizes.items():
            _require(size > 0, name, size, "positive")
        _require(self.rms_norm_eps > 0, "rms_norm_eps", self.rms_norm_eps, "positive")
        _require(self.block_size >= 2, "block_size", self.block_size, "at least 2 (anchor, draft)")
        _require(self.head_dim % 2 == 0, "head_dim", self.head_dim, "even")
        _require(
            self.num_heads % self.num_kv_heads == 0,
            "num_attention_heads",
            self.num_heads,
            f"a multiple of num_key_value_heads {self.num_kv_heads}",
        )
        _require(
            self.draft_vocab_size <= self.vocab_size,
            "draft_vocab_size",
            self.draft_vocab_size,
            f"at most vocab_size {self.vocab_size}",
        )
        distinct = len(self.taps) > 0 and len(set(self.taps)) == len(self.taps)
        _require(distinct, "taps", self.taps, "target layers without repetition")
        _require(min(self.taps) >= 0, "taps", self.taps, "zero-based layer numbers")

    @property
    def position_limit(self) -> int:
        """Positions [0, limit) are those the rotary embedding is meant for."""
        original_len = self.rope.original_max_position_embeddings
        if self.rope.rope_type != "yarn" or original_len is None:
            return self.max_position_embeddings
        return max(self.max_position_embeddings, int(original_len * self.rope.factor))


def public_taps(num_target_layers: int) -> tuple[int, ...]:
    """The low, middle and high layer whose outputs the public code fuses, zero-based.

    It takes the *inputs* of layers 2, L // 2 and L - 3, which are the outputs of the layers before
    them. Shallow targets (below 7 layers), which it was not made for, give their first ones.
    Raises ConfigError for a target of one layer, whose only output can't be tapped.
    """
    if num_target_layers >= _LEAST_LAYERS:
        return (1, num_target_layers // 2 - 1, num_target_layers - 4)
    taps = tuple(range(num_target_layers - 1))[:3]
    _require(len(taps) > 0, "target layers", num_target_layers, "at least 2")
    return taps


def _require(condition: bool, name: str, value: object, expected: str) -> None:
    if not condition:
        raise ConfigError(f"EAGLE-3 configuration: {name} is {value!r}, expected {expected}")
