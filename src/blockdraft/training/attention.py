"""Attention of all blocks of a packed row, three ways that give the same numbers.

`dense`: one masked call, the plain definition and the fallback. `grouped`: neighboring blocks of
one document together, over the keys they can see (CPU: a packed row's dense mask is mostly False).
`flex`: flex_attention with a block mask (CUDA). Who sees whom is `masks.py`'s business.

Shape legend: queries = block rows, tokens = context rows, heads = query heads, kv = key/value
heads, keys = tokens + queries, dim = head_dim.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from blockdraft.drafter.config import MaskRule
from blockdraft.training.batches.layout import Layout
from blockdraft.training.masks import Keys, Queries, dense_mask, keys_of, queries_of, sees

GROUP_ROWS = 64
"""Block rows of one call of `grouped`: more see keys of each other's blocks in vain."""

FLEX_TILE = 128


class Heads(NamedTuple):
    """Rotated queries and keys, and values, of one layer."""

    queries: Float[Tensor, "queries heads dim"]
    context_keys: Float[Tensor, "tokens kv dim"]
    context_values: Float[Tensor, "tokens kv dim"]
    block_keys: Float[Tensor, "queries kv dim"]
    block_values: Float[Tensor, "queries kv dim"]


Attend = Callable[[Heads], Float[Tensor, "queries heads dim"]]
"""Attention under one layer's rule in one packed row."""


def dense(layout: Layout, rule: MaskRule) -> Attend:
    """One call over all keys."""
    mask = dense_mask(layout, rule)

    def attend(heads: Heads) -> Float[Tensor, "queries heads dim"]:
        keys = torch.cat((heads.context_keys, heads.block_keys))
        values = torch.cat((heads.context_values, heads.block_values))
        attended = functional.scaled_dot_product_attention(
            heads.queries.transpose(0, 1)[None],
            keys.transpose(0, 1)[None],
            values.transpose(0, 1)[None],
            attn_mask=mask,
            enable_gqa=keys.shape[1] != heads.queries.shape[1],
        )
        return attended[0].transpose(0, 1)

    return attend


class Group(NamedTuple):
    """Blocks of one document that are computed together; half-open ranges of a packed row.

    `sees` is over the group's rows and [context keys; the rows themselves].
    """

    first_key: int
    end_key: int
    first_row: int
    end_row: int
    sees: Tensor

    def join(self, context: Tensor, block: Tensor) -> Tensor:
        """The keys (or values) that the group looks at, from [kv, tokens | queries, dim]."""
        seen = context[:, self.first_key : self.end_key]
        return torch.cat((seen, block[:, self.first_row : self.end_row]), dim=1)


def grouped(layout: Layout, rule: MaskRule, group_rows: int = GROUP_ROWS) -> Attend:
    """Group by group, each over the context that its blocks can see."""
    groups = make_groups(layout, rule, group_rows)
    biases: dict[torch.dtype, list[Tensor]] = {}

    def attend(heads: Heads) -> Float[Tensor, "queries heads dim"]:
        dtype = heads.queries.dtype
        num_rows, num_heads, dim = heads.queries.shape
        num_kv = heads.block_keys.shape[1]
        per_head = num_heads // num_kv
        if dtype not in biases:
            biases[dtype] = [bias_of(group.sees, per_head, dtype) for group in groups]
        # Query heads of one key head become rows: keys are read once for all of them.
        folded = heads.queries.view(num_rows, num_kv, per_head, dim).transpose(0, 1)
        attended: object = GroupedAttention.apply(  # pyright: ignore[reportUnknownVariableType]: apply is untyped
            folded.reshape(num_kv, num_rows * per_head, dim),
            *(part.transpose(0, 1).contiguous() for part in heads[1:]),
            groups,
            biases[dtype],
        )
        assert isinstance(attended, Tensor)
        unfolded = attended.view(num_kv, num_rows, per_head, dim).transpose(0, 1)
        return unfolded.reshape(num_rows, num_heads, dim)

    return attend


def make_groups(layout: Layout, rule: MaskRule, group_rows: int) -> list[Group]:
    """Runs of blocks of one document with at most `group_rows` rows (one block at least)."""
    query, key = queries_of(layout), keys_of(layout)
    num_tokens, width = layout.num_tokens, layout.width
    per_group = max(1, group_rows // width)
    groups: list[Group] = []
    for span in layout.spans:
        for first in range(span.first_block, span.end_block, per_group):
            end = min(first + per_group, span.end_block)
            # Anchors ascend: nothing at or behind the last one is seen.
            end_key = span.first_token + int(layout.anchor_positions[end - 1])
            first_key = span.first_token
            if rule.window is not None:
                lowest = int(layout.anchor_positions[first]) - rule.window + 1
                first_key = min(end_key, span.first_token + max(0, lowest))
            rows = slice(first * width, end * width)
            own = slice(num_tokens + rows.start, num_tokens + rows.stop)
            columns = Keys(*(torch.cat((n[first_key:end_key], n[own])) for n in key))
            lines = Queries(*(numbers[rows, None] for numbers in query))
            allowed = sees(lines, columns, rule)
            groups.append(Group(first_key, end_key, rows.start, rows.stop, allowed))
    return groups


def bias_of(allowed: Tensor, per_head: int, dtype: torch.dtype) -> Tensor:
    """0 and -inf, each row `per_head` times: the query heads of a key head stand as rows."""
    bias = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return bias.masked_fill_(~allowed, -torch.inf).repeat_interleave(per_head, 0)


class GroupedAttention(torch.autograd.Function):
    """Attention of all groups, with a gradient that recomputes the probabilities group by group.

    Differentiating one call a group would allocate a gradient of the whole row for each of them.
    All tensors are [kv, rows, dim]; query rows come `per_head` to a block row.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        queries: Tensor,
        context_keys: Tensor,
        context_values: Tensor,
        block_keys: Tensor,
        block_values: Tensor,
        groups: list[Group],
        biases: list[Tensor],
    ) -> Tensor:
        attended = torch.empty_like(queries)
        per_head = queries.shape[1] // block_keys.shape[1]
        for group, bias in zip(groups, biases, strict=True):
            rows = slice(group.first_row * per_head, group.end_row * per_head)
            attended[:, rows] = functional.scaled_dot_product_attention(
                queries[None, :, rows],
                group.join(context_keys, block_keys)[None],
                group.join(context_values, block_values)[None],
                attn_mask=bias,
            )[0]
        ctx.save_for_backward(
            queries, context_keys, context_values, block_keys, block_values, attended
        )
        ctx.groups, ctx.biases = groups, biases  # pyright: ignore[reportAttributeAccessIssue]: open
        return attended

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]: torch's own is (ctx, *grads)
        ctx: "GroupedContext", outer: Tensor
    ) -> tuple[Tensor | None, ...]:
        queries, context_keys, context_values, block_keys, block_values, attended = (
            ctx.saved_tensors
        )
        scale = queries.shape[2] ** -0.5
        per_head = queries.shape[1] // block_keys.shape[1]
        # d(out) . out of each row, which the softmax's gradient needs.
        shared = (outer * attended).sum(-1, keepdim=True)
        grad_queries = torch.empty_like(queries)
        # Sums over many groups, so in fp32 or wider.
        wide = torch.promote_types(queries.dtype, torch.float32)
        grad_context = [torch.zeros_like(context_keys, dtype=wide) for _ in range(2)]
        grad_block = [torch.empty_like(block_keys) for _ in range(2)]
        for group, bias in zip(ctx.groups, ctx.biases, strict=True):
            rows = slice(group.first_row * per_head, group.end_row * per_head)
            own, seen = slice(group.first_row, group.end_row), slice(group.first_key, group.end_key)
            keys = group.join(context_keys, block_keys)
            values = group.join(context_values, block_values)
            asked, pulled = queries[:, rows], outer[:, rows]
            scores = torch.baddbmm(bias, asked, keys.transpose(1, 2), alpha=scale)
            probs = scores.softmax(-1)
            grad_scores = torch.bmm(pulled, values.transpose(1, 2))
            grad_scores.sub_(shared[:, rows]).mul_(probs)
            grad_queries[:, rows] = torch.bmm(grad_scores, keys).mul_(scale)
            num_seen = group.end_key - group.first_key
            for index, grad in enumerate(
                (
                    torch.bmm(grad_scores.transpose(1, 2), asked).mul_(scale),
                    torch.bmm(probs.transpose(1, 2), pulled),
                )
            ):
                grad_context[index][:, seen] += grad[:, :num_seen]
                grad_block[index][:, own] = grad[:, num_seen:]
        keys_grad, values_grad = (grad.to(queries.dtype) for grad in grad_context)
        return grad_queries, keys_grad, values_grad, *grad_block, None, None


class GroupedContext(Protocol):
    """What `GroupedAttention.forward` leaves for its backward."""

    @property
    def saved_tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]: ...

    groups: list[Group]
    biases: list[Tensor]


def flex(layout: Layout, rule: MaskRule) -> Attend:
    """One flex_attention over a sparse block mask; for CUDA, where it is compiled."""
    mask = flex_mask(layout, rule)
    compiled = compile_flex()

    def attend(heads: Heads) -> Float[Tensor, "queries heads dim"]:
        keys = torch.cat((heads.context_keys, heads.block_keys))
        values = torch.cat((heads.context_values, heads.block_values))
        attended = compiled(
            heads.queries.transpose(0, 1)[None],
            keys.transpose(0, 1)[None],
            values.transpose(0, 1)[None],
            block_mask=mask,
            enable_gqa=keys.shape[1] != heads.queries.shape[1],
        )
        assert isinstance(attended, Tensor)
        return attended[0].transpose(0, 1)

    return attend


@functools.cache
def compile_flex() -> Callable[..., object]:
    """flex_attention compiled once a process; shapes that vary are compiled as such."""
    return torch.compile(flex_attention)


def flex_mask(layout: Layout, rule: MaskRule) -> BlockMask:
    """The block mask of a packed row."""
    query, key = queries_of(layout), keys_of(layout)
    num_queries, num_keys = query.blocks.shape[0], key.blocks.shape[0]

    def mask_mod(batch: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        del batch, head
        # Sizes are rounded up to tiles, so indices past the end do occur (SpecForge 501, 511).
        inside = (q < num_queries) & (k < num_keys)
        q, k = q.clamp(max=num_queries - 1), k.clamp(max=num_keys - 1)
        return inside & sees(
            Queries(*(numbers[q] for numbers in query)), Keys(*(n[k] for n in key)), rule
        )

    return create_block_mask(
        mask_mod, None, None, num_queries, num_keys, device=str(query.blocks.device)
    )


def choose_attention(device: torch.device) -> Callable[[Layout, MaskRule], Attend]:
    """flex on CUDA, grouped elsewhere."""
    return flex if device.type == "cuda" else grouped
