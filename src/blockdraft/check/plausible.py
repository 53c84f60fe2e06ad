"""How large the numbers that describe a model can be.

A file may claim anything; whoever loops over a claim, or allocates by it, runs out of memory.
"""

from collections.abc import Mapping

from blockdraft.check.loose import Loose

MOST: Mapping[str, int] = {
    "num_hidden_layers": 1024,
    "num_target_layers": 1024,
    "block_size": 1024,
    "hidden_size": 1 << 20,
    "intermediate_size": 1 << 24,
    "num_attention_heads": 1 << 16,
    "num_key_value_heads": 1 << 16,
    "head_dim": 1 << 16,
    "vocab_size": 1 << 27,
    "draft_vocab_size": 1 << 27,
    "max_position_embeddings": 1 << 31,
    "sliding_window": 1 << 31,
    "swa_window_size": 1 << 31,
}
"""Several times what the largest models have."""


def sized(keys: Loose, name: str, *, least: int = 1) -> int | None:
    """The size under `name`; None, and noted as impossible, when no model can have it."""
    return keys.integer(name, least=least, most=MOST[name])
