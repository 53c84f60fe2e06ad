"""What a drafter checkpoint holds, and whether that is complete and sound.

It reads and writes no files (`store.py`) and builds no model (`build.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from blockdraft.drafter.config import DrafterConfig
from blockdraft.errors import CheckpointError

_T = TypeVar("_T")

HEAD_NAME = "lm_head.weight"
D2T_NAME = "d2t"
T2D_NAME = "t2d"

_CODEBOOKS = (
    "candidate_selector.predecessor_codebook",
    "candidate_selector.successor_codebook",
)

FLOAT_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrafterCheckpoint:
    """A drafter in memory, complete and checked.

    `state` has exactly the tensors of `expected_shapes(config)`. `d2t` is present exactly when the
    configuration has a draft vocabulary; `lm_head` and `mask_embedding` are optional. `source`
    says where it came from: a folder, or a hub id with the commit it resolved to. `recorded_tau` is
    the acceptance length that its makers measured, if they wrote one down.
    """

    config: DrafterConfig
    state: Mapping[str, Tensor]
    source: str
    d2t: Tensor | None = None
    lm_head: Tensor | None = None
    mask_embedding: Tensor | None = None
    recorded_tau: float | None = None

    @property
    def dtype(self) -> torch.dtype:
        return self.state["fc.weight"].dtype


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as its file's header describes it."""

    file: str
    shape: tuple[int, ...]


def expected_shapes(config: DrafterConfig) -> dict[str, tuple[int, ...]]:
    """Published name and shape of every tensor of the drafter's own (docs/checkpoint-format.md)."""
    hidden = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, len(config.taps) * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    for layer_idx in range(config.num_layers):
        for name, shape in _layer_shapes(config).items():
            shapes[f"layers.{layer_idx}.{name}"] = shape
    if config.dflash2 is not None:
        rank = config.dflash2.selector_rank
        shapes["candidate_selector.hidden_projection.weight"] = (rank, hidden)
        shapes |= dict.fromkeys(_CODEBOOKS, (config.vocab_size, rank))
    return shapes


def published_names(named: Mapping[str, _T], where: str) -> dict[str, _T]:
    """The same things under their published names.

    The codebooks of DFlash 2 are published without `.weight`, which some copies add. Raises
    CheckpointError when both are there.
    """
    renamed: dict[str, _T] = {}
    for name, thing in named.items():
        bare = name.removesuffix(".weight")
        published = bare if bare in _CODEBOOKS else name
        if published in renamed:
            raise CheckpointError(
                f"{where}: tensor {bare} is stored twice, with and without '.weight'; fetch the"
                " checkpoint again"
            )
        renamed[published] = thing
    return renamed


def optional_shapes(config: DrafterConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of the tensors that a checkpoint may carry besides."""
    drafted = config.draft_vocab_size
    if drafted is None:
        return {HEAD_NAME: (config.vocab_size, config.hidden_size)}
    return {
        HEAD_NAME: (drafted, config.hidden_size),
        D2T_NAME: (drafted,),
        T2D_NAME: (config.vocab_size,),
    }


def check_names_and_shapes(
    config: DrafterConfig, stored: Mapping[str, StoredTensor], where: str
) -> None:
    """Raise CheckpointError for the first missing, unexpected or wrongly shaped tensor."""
    required = expected_shapes(config)
    if config.draft_vocab_size is not None:
        required[D2T_NAME] = (config.draft_vocab_size,)
    for name, shape in required.items():
        if name not in stored:
            raise CheckpointError(
                f"{where}: tensor {name} {list(shape)} is missing; the checkpoint is incomplete or"
                " of another model: fetch it again"
            )
    known = required | optional_shapes(config)
    for name, tensor in stored.items():
        if name not in known:
            raise CheckpointError(
                f"{where}: {tensor.file} has an unexpected tensor {name} {list(tensor.shape)};"
                f" {_why_unexpected(name)}"
            )
        if tensor.shape != known[name]:
            raise CheckpointError(
                f"{where}: tensor {name} in {tensor.file} has shape {list(tensor.shape)}, expected"
                f" {list(known[name])} {_why_shape(name, config)}; config.json and weights do not"
                " belong together"
            )


def check_float(name: str, tensor: Tensor, where: str) -> None:
    """Raise CheckpointError for weights stored in another than a plain float type."""
    if tensor.dtype not in FLOAT_DTYPES:
        raise CheckpointError(
            f"{where}: tensor {name} is stored as {_dtype_name(tensor)}, expected float16,"
            " bfloat16, float32 or float64; quantized drafters are not supported"
        )


def check_finite(name: str, tensor: Tensor, where: str) -> None:
    """Raise CheckpointError for weights that are not finite, as stored or after a cast."""
    if not bool(torch.isfinite(tensor).all()):
        raise CheckpointError(
            f"{where}: tensor {name} has values that are not finite in {_dtype_name(tensor)};"
            " fetch the checkpoint again, or load it in a wider dtype"
        )


def check_target_ids(vocab_size: int, d2t: Tensor, t2d: Tensor | None, where: str) -> None:
    """Raise CheckpointError unless `d2t` maps one to one into the vocabulary (and fits `t2d`)."""
    if d2t.dtype not in (torch.int32, torch.int64):
        raise CheckpointError(f"{where}: d2t is stored as {_dtype_name(d2t)}, expected int64")
    target_ids = torch.arange(len(d2t)) + d2t
    low, high = int(target_ids.min()), int(target_ids.max())
    if low < 0 or high >= vocab_size:
        raise CheckpointError(
            f"{where}: d2t maps to ids {low}..{high}, expected 0..{vocab_size - 1}; entries"
            " are offsets (target id = i + d2t[i])"
        )
    if torch.bincount(target_ids).max() > 1:
        raise CheckpointError(
            f"{where}: d2t maps two draft ids to one target id; entries are offsets (target id ="
            " i + d2t[i])"
        )
    if t2d is not None and not torch.equal(t2d.nonzero().flatten(), target_ids.sort().values):
        raise CheckpointError(f"{where}: t2d and d2t name different target ids; fetch it again")


def _layer_shapes(config: DrafterConfig) -> dict[str, tuple[int, ...]]:
    hidden, inner, dim = config.hidden_size, config.intermediate_size, config.head_dim
    query, kv = config.num_heads * dim, config.num_kv_heads * dim
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (query, hidden),
        "self_attn.k_proj.weight": (kv, hidden),
        "self_attn.v_proj.weight": (kv, hidden),
        "self_attn.o_proj.weight": (hidden, query),
        "self_attn.q_norm.weight": (dim,),
        "self_attn.k_norm.weight": (dim,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    if config.attention_bias:
        for name, size in (("q", query), ("k", kv), ("v", kv), ("o", hidden)):
            shapes[f"self_attn.{name}_proj.bias"] = (size,)
    if config.dflash2 is not None:
        taps = config.dflash2.conv_kernel_size
        kernels = 2 * taps * hidden // config.dflash2.conv_group_size
        for name in ("attention_conv", "mlp_conv"):
            shapes[f"{name}.base_kernel"] = (2, taps, hidden)
            shapes[f"{name}.kernel_projection.weight"] = (kernels, hidden)
    return shapes


def _why_unexpected(name: str) -> str:
    if name == "embed_tokens.weight":
        return "a drafter uses its target's embedding: remove the tensor if the two are equal"
    if name in (D2T_NAME, T2D_NAME):
        return "config.json needs 'draft_vocab_size' for a reduced vocabulary"
    if name.startswith("candidate_selector.") or "_conv." in name:
        return "it belongs to DFlash 2, of which config.json says nothing (conv_*, selector_* keys)"
    if name in ("mask_embedding", "mask_embedding.weight", "mask_hidden"):
        return "a learned mask row is read from mask_embedding.pt only"
    return "every tensor must be used: this is neither a plain DFlash nor a DFlash 2 checkpoint"


def _why_shape(name: str, config: DrafterConfig) -> str:
    if name == "fc.weight":
        return f"({len(config.taps)} taps {list(config.taps)} of hidden size {config.hidden_size})"
    return "(from config.json)"


def _dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
