"""The shape of a Llama or Qwen3 target, and its GGUF keys.

It reads config.json only and refuses every setting that llama.cpp's two models do not have.
"""

from dataclasses import dataclass
from pathlib import Path

from blockdraft.checkpoint.fields import Fields
from blockdraft.checkpoint.rope_dialects import parse_rope
from blockdraft.drafter.config import RopeConfig
from blockdraft.errors import CheckpointError
from blockdraft.interop.gguf.dtypes import QUANTIZATION_VERSION, GgufType, file_type
from blockdraft.interop.gguf.file import Metadata, f32, text, u32
from blockdraft.target.folder import read_json

ARCHITECTURES = ("llama", "qwen3")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetShape:
    """Sizes of the model. `architecture` is llama.cpp's name, which is the model type too."""

    name: str
    architecture: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    tied: bool
    rope: RopeConfig

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor, as the model's own library has them."""
        hidden = self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (self.vocab_size, hidden),
            "model.norm.weight": (hidden,),
        }
        if not self.tied:
            shapes["lm_head.weight"] = (self.vocab_size, hidden)
        for layer in range(self.num_layers):
            for name, shape in self._layer().items():
                shapes[f"model.layers.{layer}.{name}.weight"] = shape
        return shapes

    def permuted_heads(self, name: str) -> int | None:
        """Heads of a projection whose rows llama.cpp wants in another order; None for others."""
        if self.architecture != "llama":
            return None
        if name.endswith("self_attn.q_proj.weight"):
            return self.num_heads
        return self.num_kv_heads if name.endswith("self_attn.k_proj.weight") else None

    def _layer(self) -> dict[str, tuple[int, ...]]:
        hidden, inner, dim = self.hidden_size, self.intermediate_size, self.head_dim
        query, kv = self.num_heads * dim, self.num_kv_heads * dim
        shapes: dict[str, tuple[int, ...]] = {
            "input_layernorm": (hidden,),
            "self_attn.q_proj": (query, hidden),
            "self_attn.k_proj": (kv, hidden),
            "self_attn.v_proj": (kv, hidden),
            "self_attn.o_proj": (hidden, query),
            "post_attention_layernorm": (hidden,),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        if self.architecture == "qwen3":
            shapes |= {"self_attn.q_norm": (dim,), "self_attn.k_norm": (dim,)}
        return shapes


def read_shape(folder: Path) -> TargetShape:
    """The shape that config.json describes; CheckpointError, with the reason, for another model."""
    where = f"{folder}/config.json"
    top = Fields(read_json(folder / "config.json"), where)
    architecture = top.optional_text("model_type") or "unknown"
    if architecture not in ARCHITECTURES:
        raise CheckpointError(
            f"{where}: a target of type {architecture} is not written as GGUF, only"
            f" {' and '.join(ARCHITECTURES)}; convert it with llama.cpp's own converter"
        )
    _refuse_variants(top)
    hidden, heads = top.integer("hidden_size"), top.integer("num_attention_heads")
    return TargetShape(
        name=folder.name,
        architecture=architecture,
        hidden_size=hidden,
        intermediate_size=top.integer("intermediate_size"),
        num_layers=top.integer("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=top.optional_integer("num_key_value_heads") or heads,
        head_dim=top.optional_integer("head_dim") or hidden // heads,
        vocab_size=top.integer("vocab_size"),
        max_position_embeddings=top.integer("max_position_embeddings"),
        rms_norm_eps=top.number("rms_norm_eps"),
        tied=bool(top.optional_flag("tie_word_embeddings")),
        rope=parse_rope(top),
    )


def shape_metadata(shape: TargetShape, dtype: GgufType) -> Metadata:
    """Every key about the model but those of its rotary embedding and its tokenizer."""
    arch = shape.architecture
    return {
        "general.type": text("model"),
        "general.name": text(shape.name),
        "general.file_type": u32(file_type(dtype)),
        "general.quantization_version": u32(QUANTIZATION_VERSION),
        f"{arch}.vocab_size": u32(shape.vocab_size),
        f"{arch}.context_length": u32(shape.max_position_embeddings),
        f"{arch}.embedding_length": u32(shape.hidden_size),
        f"{arch}.block_count": u32(shape.num_layers),
        f"{arch}.feed_forward_length": u32(shape.intermediate_size),
        f"{arch}.attention.head_count": u32(shape.num_heads),
        f"{arch}.attention.head_count_kv": u32(shape.num_kv_heads),
        f"{arch}.attention.key_length": u32(shape.head_dim),
        f"{arch}.attention.value_length": u32(shape.head_dim),
        f"{arch}.attention.layer_norm_rms_epsilon": f32(shape.rms_norm_eps),
    }


def _refuse_variants(top: Fields) -> None:
    activation = top.optional_text("hidden_act") or "silu"
    if activation != "silu":
        raise _refusal(top, f"activation {activation}", "there it is silu")
    for name in ("attention_bias", "mlp_bias"):
        if top.optional_flag(name):
            raise _refusal(top, name, "biases are not written")
    if top.optional_flag("use_sliding_window"):
        raise _refusal(top, "use_sliding_window", "these two have full attention there")
    partial = top.optional_number("partial_rotary_factor")
    if partial not in (None, 1.0):
        raise _refusal(top, f"partial_rotary_factor {partial}", "whole heads are rotated there")


def _refusal(top: Fields, what: str, why: str) -> CheckpointError:
    return CheckpointError(
        f"{top.where}: {what} can't be written as GGUF: {why}; convert the target with llama.cpp's"
        " own converter"
    )
