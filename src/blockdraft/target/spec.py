"""The sizes and limits of a transformers model: `TargetSpec` from its weights and configurations.

It runs nothing. `Any` is tolerated in this file because transformers is untyped.
"""

from typing import Any, cast

from jaxtyping import Float
from torch import Tensor

from blockdraft.decoding.interfaces import TargetSpec
from blockdraft.errors import UnsupportedTarget
from blockdraft.target.families import text_config


def read_spec(name: str, model: Any) -> TargetSpec:
    """Sizes from the weights, limits from the configurations; those of the text part of a wrapper.

    Raises UnsupportedTarget for a model whose embedding or head no drafter could share.
    """
    output: Any = model.get_output_embeddings()
    if not isinstance(getattr(output, "weight", None), Tensor):
        raise UnsupportedTarget(f"{name} has no language-model head: load a causal language model")
    config = text_config(model)
    hidden_size = int(config.hidden_size)
    embedding = embedding_weight(model)
    if embedding.shape[1] != hidden_size or output.weight.shape[1] != hidden_size:
        raise UnsupportedTarget(f"{name} projects its embeddings, so a drafter can't share them")
    if len(embedding) != len(output.weight):
        raise UnsupportedTarget(
            f"{name} embeds {len(embedding)} tokens but predicts {len(output.weight)}"
        )
    return TargetSpec(
        name=name,
        vocab_size=len(embedding),
        hidden_size=hidden_size,
        num_layers=int(config.num_hidden_layers),
        max_context_len=context_limit(config),
        stop_ids=stop_ids(model),
    )


def embedding_weight(model: Any) -> Float[Tensor, "vocab hidden"]:
    """The model's own table of input embeddings."""
    embedding: Any = model.get_input_embeddings()
    return embedding.weight


def stop_ids(model: Any) -> tuple[int, ...]:
    """End-of-sequence ids of the generation configuration, else of the model's own."""
    for config in (model.generation_config, model.config, text_config(model)):
        ids: Any = getattr(config, "eos_token_id", None)
        if ids is not None:
            return tuple(cast(list[int], ids)) if isinstance(ids, list) else (int(ids),)
    return ()


def context_limit(config: Any) -> int | None:
    """The longest context, None when the (text) configuration names none.

    LongRoPE switches its tables at the original length, and would do so earlier in a wide pass
    than in a narrow one; the limit is set there, where nothing has been switched yet.
    """
    limit: Any = getattr(config, "max_position_embeddings", None)
    if limit is None:
        limit = getattr(config, "max_seq_len", None)  # MPT's name, the length of its bias table
    switches = [
        table.get("original_max_position_embeddings")
        or getattr(config, "original_max_position_embeddings", limit)
        for table in rope_tables(getattr(config, "rope_parameters", None))
        if "longrope" in table.values()
    ]
    limits = [int(length) for length in (limit, *switches) if length is not None]
    return min(limits, default=None)


def rope_tables(parameters: object) -> list[dict[str, Any]]:
    """The rotary settings of a configuration: one table, or one for each kind of layer."""
    if not isinstance(parameters, dict):
        return []
    table = cast("dict[str, Any]", parameters)
    inner = [cast("dict[str, Any]", part) for part in table.values() if isinstance(part, dict)]
    return inner or [table]
