"""Names of tensors in GGUF files beside those of published checkpoints.

It touches no values; the permutation of Llama's projections is in `target.py`.
"""

from collections.abc import Mapping

TARGET_EMBEDDING = "token_embd.weight"
OUTPUT_HEAD = "output.weight"
D2T = "d2t"

_LAYER: Mapping[str, str] = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_DRAFTER: Mapping[str, str] = {
    "fc.weight": "fc.weight",
    "hidden_norm.weight": "enc.output_norm.weight",
    "norm.weight": "output_norm.weight",
}
_TARGET: Mapping[str, str] = {
    "model.embed_tokens.weight": TARGET_EMBEDDING,
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": OUTPUT_HEAD,
}


def drafter_name(published: str) -> str | None:
    """The GGUF name of a drafter's tensor; None for one that GGUF has no place for."""
    return _DRAFTER.get(published) or _layer_name(published, "layers.")


def target_name(published: str) -> str | None:
    """The GGUF name of a Llama or Qwen3 tensor; None for one that GGUF has no place for."""
    return _TARGET.get(published) or _layer_name(published, "model.layers.")


def _layer_name(published: str, prefix: str) -> str | None:
    if not published.startswith(prefix):
        return None
    layer, _, rest = published.removeprefix(prefix).partition(".")
    short = _LAYER.get(rest.removesuffix(".weight"))
    if short is None or not rest.endswith(".weight") or not layer.isdecimal():
        return None
    return f"blk.{layer}.{short}.weight"
