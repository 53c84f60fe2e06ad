"""Attention whose result for a row does not depend on how many keys lie behind it.

A matrix product or a sum over n keys is computed in an order that depends on n, so the same row
can differ in its last bits when the pass that holds it ends one key later (seen on CPU in float32
from 192 keys on, in bfloat16 at 1,024). Here the keys are split into chunks of a fixed size, the
last one filled up with masked keys, and the chunks are added one after the other: a chunk behind
the row adds exact zeros. With a fixed number of rows a pass, a row's logits are then equal bit for
bit wherever it stands in a pass. It is used only for `batch_invariant` targets; it is not fast.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, masking_utils

from blockdraft.errors import UnsupportedTarget

CHUNKED_ATTENTION = "blockdraft_chunked"
CHUNK_LEN = 256


def register_chunked_attention() -> str:
    """Make the attention known to transformers; returns the name to select it by. Repeatable."""
    AttentionInterface.register(CHUNKED_ATTENTION, chunked_attention)
    masks: Any = masking_utils
    AttentionMaskInterface.register(CHUNKED_ATTENTION, masks.eager_mask)
    return CHUNKED_ATTENTION


def chunked_attention(
    module: nn.Module,
    query: Float[Tensor, "batch heads rows head_dim"],
    key: Float[Tensor, "batch kv_heads keys head_dim"],
    value: Float[Tensor, "batch kv_heads keys value_dim"],
    attention_mask: Float[Tensor, "batch 1 rows keys"] | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Float[Tensor, " heads"] | None = None,
    **kwargs: Any,
) -> tuple[Float[Tensor, "batch rows heads value_dim"], None]:
    """Softmax attention in the form that transformers calls; probabilities in float32 or wider.

    `softcap` bounds the scores, `s_aux` are attention sinks (keys without a value).
    Legend: B batch, K kv heads, N chunks, G query heads a kv head, R rows, C keys a chunk, D dims.
    """
    if kwargs.get("position_bias") is not None:
        raise UnsupportedTarget("batch_invariant does not know attention position biases")
    batch, heads, rows, head_dim = query.shape
    kv_heads, num_keys, value_dim = key.shape[1], key.shape[2], value.shape[3]
    fill = -num_keys % CHUNK_LEN
    num_chunks = (num_keys + fill) // CHUNK_LEN
    wide = torch.promote_types(query.dtype, torch.float32)

    keys_BKNCD = _chunks(key, fill)
    values_BKNCD = _chunks(value, fill)
    query_BK1GRD = query.reshape(batch, kv_heads, 1, -1, head_dim)
    scores = torch.matmul(query_BK1GRD, keys_BKNCD.transpose(-1, -2)).to(wide)
    scores = scores * (head_dim**-0.5 if scaling is None else scaling)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores_BKNGRC = scores.view(batch, kv_heads, num_chunks, -1, rows, CHUNK_LEN)
    scores_BKNGRC = scores_BKNGRC + _chunk_mask(attention_mask, query, num_keys, fill).to(wide)

    # The maximum does not depend on order; all else below is computed one chunk at a time.
    top = scores_BKNGRC.amax(dim=(2, 5), keepdim=True)
    sinks = None if s_aux is None else s_aux.to(wide).view(1, kv_heads, 1, -1, 1, 1)
    if sinks is not None:
        top = torch.maximum(top, sinks)
    weights_BKNGRC = torch.exp(scores_BKNGRC - top)
    norms = weights_BKNGRC.sum(-1, keepdim=True)
    mixed = torch.matmul(weights_BKNGRC.flatten(3, 4).to(value.dtype), values_BKNCD).to(wide)
    mixed = mixed.view(batch, kv_heads, num_chunks, -1, rows, value_dim)
    norm = _add_in_order(norms)
    if sinks is not None:
        norm = norm + torch.exp(sinks - top)[:, :, 0]
    out_BHRD = (_add_in_order(mixed) / norm).to(query.dtype).reshape(batch, heads, rows, value_dim)
    return out_BHRD.transpose(1, 2).contiguous(), None


def _chunks(
    states: Float[Tensor, "batch kv_heads keys dim"], fill: int
) -> Float[Tensor, "batch kv_heads chunks chunk dim"]:
    filled = nn.functional.pad(states, (0, 0, 0, fill))
    return filled.view(*states.shape[:2], -1, CHUNK_LEN, states.shape[3])


def _chunk_mask(
    attention_mask: Float[Tensor, "batch 1 rows keys"] | None,
    query: Float[Tensor, "batch heads rows head_dim"],
    num_keys: int,
    fill: int,
) -> Float[Tensor, "batch 1 chunks 1 rows chunk"]:
    if attention_mask is None:
        attention_mask = query.new_zeros(query.shape[0], 1, query.shape[2], num_keys)
    lowest = torch.finfo(attention_mask.dtype).min
    filled = nn.functional.pad(attention_mask[..., :num_keys], (0, fill), value=lowest)
    mask_B1RNC = filled.reshape(*filled.shape[:3], -1, CHUNK_LEN)
    return mask_B1RNC.transpose(2, 3).unsqueeze(3)


def _add_in_order(
    parts: Float[Tensor, "batch kv_heads chunks group rows dim"],
) -> Float[Tensor, "batch kv_heads group rows dim"]:
    total = parts[:, :, 0]
    for chunk in range(1, parts.shape[2]):
        total = total + parts[:, :, chunk]
    return total
