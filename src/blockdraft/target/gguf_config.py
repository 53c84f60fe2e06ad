"""Sets right what transformers' GGUF reader leaves out of a configuration, or refuses the file.

It reads no weights. Keys mean what they mean to llama.cpp. `Any` is tolerated in this file because
transformers is untyped.
"""

import math
import re
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from blockdraft.target.gguf_keys import GgufKeys

CORRECTED = ("llama", "qwen2", "qwen3")
"""Architectures whose keys are known here; others are left as transformers reads them."""

FACTORS_NAME = "rope_freqs.weight"

_PLACES = re.compile(
    r"(token_embd|output_norm|output)\.weight"
    r"|blk\.\d+\.(attn_norm|attn_[qk]_norm|ffn_norm)\.weight"
    r"|blk\.\d+\.(attn_q|attn_k|attn_v|attn_output|ffn_gate|ffn_up|ffn_down)\.(weight|bias)"
)
"""The tensors that the three models have places for; transformers passes others over in silence."""

_STOPS = ("eos", "eot", "eom")


def corrected_config(config: Any, keys: GgufKeys) -> Any:
    """What the file says of the model, beside what transformers read into `config`.

    Llama, Qwen2, Qwen3 and Mistral (which llama.cpp calls llama) get head size, rotary embedding
    and biases; others come back as they are. Raises CheckpointError for what the model class has
    no place for, since leaving it out would give other tokens.
    """
    if keys.architecture not in CORRECTED:
        return config
    _refuse_variants(keys)
    raw: dict[str, Any] = config.to_dict()
    for name in ("rope_theta", "rope_scaling", "sliding_window"):
        raw.pop(name, None)
    is_llama = keys.architecture == "llama"
    hidden, heads = int(raw["hidden_size"]), int(raw["num_attention_heads"])
    head_dim = keys.count("attention.key_length", hidden // heads)
    if keys.count("attention.value_length", head_dim) != head_dim:
        raise keys.refusal("its keys and values have heads of different lengths")
    if keys.architecture != "qwen2" or head_dim != hidden // heads:
        raw["head_dim"] = head_dim
    if keys.architecture != "qwen2":  # whose projections always have them
        raw["attention_bias"] = _has(keys, "attn_q.bias")
    if is_llama:
        raw |= {"model_type": "llama", "mlp_bias": _has(keys, "ffn_up.bias")}
    raw["rope_parameters"] = _rope(keys, head_dim)
    kind = cast(Any, LlamaConfig if is_llama else type(config))
    factors = keys.vector(FACTORS_NAME)
    if factors is not None:
        raw["rope_parameters"] = _llama3(keys, kind, raw, factors)
    return kind.from_dict(raw)


def stop_ids(keys: GgufKeys, known: object) -> list[int]:
    """The ids that end an answer: those `known`, and what the file names beside its eos."""
    given = cast("list[int | None]", known if isinstance(known, list) else [known])
    named = [keys.token_id(name) for name in _STOPS]
    return list(dict.fromkeys(int(one) for one in (*given, *named) if one is not None))


def _refuse_variants(keys: GgufKeys) -> None:
    for name in keys.tensor_names:
        if name != FACTORS_NAME and not _PLACES.fullmatch(name):
            raise keys.refusal(f"{keys.architecture} has no place for its tensor {name}")
    context = keys.count("context_length", 1)
    if 0 < keys.number("attention.sliding_window", 0) < context:
        raise keys.refusal("it has a sliding window, which is not read from GGUF")


def _has(keys: GgufKeys, ending: str) -> bool:
    return any(name.endswith(ending) for name in keys.tensor_names)


def _rope(keys: GgufKeys, head_dim: int) -> dict[str, object]:
    """`rope_parameters` of the keys; frequencies scaled by a table come after it."""
    if keys.count("rope.dimension_count", head_dim) != head_dim:
        raise keys.refusal("it rotates a part of each head only")
    plain: dict[str, object] = {
        "rope_theta": keys.number("rope.freq_base", 10_000.0),
        "rope_type": "default",
    }
    kind = keys.text("rope.scaling.type", "linear")
    older = keys.number("rope.scale_linear", 0.0)
    factor = keys.number("rope.scaling.factor", 0.0) or older or 1.0
    if kind == "none" or (kind in ("linear", "yarn") and factor == 1.0):
        return plain
    if kind == "linear":
        return plain | {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        return plain | _yarn(keys, factor)
    raise keys.refusal(f"rope scaling {kind!r} is not one of none, linear and yarn")


def _yarn(keys: GgufKeys, factor: float) -> dict[str, object]:
    """llama.cpp's own temperature is 0.1 ln(factor) + 1, which attn_factor multiplies."""
    for name, usual in (("ext", 1.0), ("attn", 1.0), ("log_multiplier", 0.0)):
        key = f"rope.scaling.yarn_{name}" + ("" if name == "log_multiplier" else "_factor")
        if keys.number(key, usual) != usual:
            raise keys.refusal(f"{key} {keys.number(key, usual):g} is not computed here")
    context = keys.count("context_length", 1)
    yarn: dict[str, object] = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": keys.count(
            "rope.scaling.original_context_length", context
        ),
        "beta_fast": keys.number("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": keys.number("rope.scaling.yarn_beta_slow", 1.0),
    }
    temperature = keys.number("rope.scaling.attn_factor", 1.0)
    if temperature != 1.0:
        yarn["attention_factor"] = temperature * (0.1 * math.log(factor) + 1.0)
    return yarn


def _llama3(
    keys: GgufKeys, kind: Any, raw: dict[str, Any], factors: Float[Tensor, " freqs"]
) -> dict[str, object]:
    """The parameters whose frequencies are the plain ones divided by `factors`.

    A file has the table only, not what it was made of. Llama 3.1 and later differ in factor, the
    largest of the table, and in the original length, which is found by trying powers of two.
    """
    theta = raw["rope_parameters"]["rope_theta"]
    if raw["rope_parameters"]["rope_type"] != "default":
        raise keys.refusal(f"{FACTORS_NAME} scales frequencies that are scaled otherwise too")
    if bool((factors == 1).all()):
        return raw["rope_parameters"]
    head_dim = raw["head_dim"]
    plain = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    best, found = math.inf, dict[str, object]()
    for power in range(3, 21):
        tried: dict[str, object] = {
            "rope_type": "llama3",
            "rope_theta": theta,
            "factor": float(f"{float(factors.max()):.6g}"),
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 1 << power,
        }
        config: Any = kind.from_dict({**raw, "rope_parameters": dict(tried)})
        inverse: Tensor = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))[0]
        if inverse.shape != factors.shape:
            break
        off = float((inverse * factors / plain - 1).abs().max())
        if off < best:
            best, found = off, tried
    if best > 1e-4:
        raise keys.refusal(f"its frequencies ({FACTORS_NAME}) are not scaled as in Llama 3.1")
    return found
