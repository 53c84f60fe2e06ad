"""`TinyFamily`: how a tiny random model of one transformers family is described.

The descriptions themselves stand in the `family_*` modules beside it; nothing is built here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

VOCAB_SIZE = 96
HIDDEN_SIZE = 32
HEAD_DIM = 8
WINDOW = 6
"""Sliding windows are shorter than every prompt but the shortest, and than the widest block."""

MAX_CONTEXT_LEN = 512

DENSE: dict[str, object] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": 2 * HIDDEN_SIZE,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": MAX_CONTEXT_LEN,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "pad_token_id": 0,
    "eos_token_id": [2],
    # Default initialization gives nearly uniform logits; this gives texts that vary.
    "initializer_range": 0.3,
}
"""What nearly every family calls by the same name."""

EXPERTS: dict[str, object] = {
    "moe_intermediate_size": HIDDEN_SIZE // 2,
    "num_experts": 4,
    "num_experts_per_tok": 2,
}

TINY_VISION: dict[str, object] = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
"""A vision tower that no test looks through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyFamily:
    """One line of the grid: a configuration of `model_type`, changed by `shape`.

    `layers`: the layer kinds that the tiny model covers, for people. `vision`: the settings of the
    vision part; given, the model is the wrapper and `shape` is its text part; `wrapper`: further
    settings of the wrapper itself. `seed`: chosen so that texts are long and no token of theirs is
    a near-tie. `refused`: why it can't be rolled back, as the error says; None = it can. `taps`:
    whether its layers can be tapped. `newer_than`: the lowest transformers that we claim, where it
    lacks the family.
    """

    key: str
    title: str
    model_type: str
    examples: tuple[str, ...]
    layers: str
    shape: Mapping[str, object] = field(default_factory=dict[str, object])
    vision: Mapping[str, object] | None = None
    wrapper: Mapping[str, object] = field(default_factory=dict[str, object])
    attn: str | None = None
    seed: int = 0
    refused: str | None = None
    taps: bool = True
    newer_than: str | None = None
