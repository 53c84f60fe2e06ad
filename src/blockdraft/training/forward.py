"""`BlockForward`: all blocks of a packed row through the drafter in one pass, for training.

The parameters are those of a `BlockDrafter`, under the same names; at inference the same layers
run block by block over a cache (`drafter/model.py`), and both must agree on the same anchors.

Shape legend: tokens = context rows, blocks = anchors, width = block size, slots = width - 1,
rows = blocks * width, feature = num_taps * hidden.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import (
    checkpoint,  # pyright: ignore[reportUnknownVariableType]: its function argument is untyped
)

from blockdraft.drafter.config import MaskRule
from blockdraft.drafter.model import BlockDrafter, DrafterLayer
from blockdraft.drafter.rope import Frequencies, Rotation, inverse_frequencies, rotation
from blockdraft.training.attention import Attend, Heads, choose_attention
from blockdraft.training.batches.layout import Layout

MakeAttend = Callable[[Layout, MaskRule], Attend]


class LayerForward(nn.Module):
    """One drafter layer over the rows of all blocks and the context of the whole packed row."""

    def __init__(self, layer: DrafterLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(
        self,
        states: Float[Tensor, "rows hidden"],
        context: Float[Tensor, "tokens hidden"],
        block_by: Rotation,
        context_by: Rotation,
        attend: Attend,
    ) -> Float[Tensor, "rows hidden"]:
        heads = self.heads(states, context, block_by, context_by)
        attended = attend(heads)
        return self.feed_forward(attended, states)

    def heads(
        self, states: Tensor, context: Tensor, block_by: Rotation, context_by: Rotation
    ) -> Heads:
        """Norm, projections, head norms and rotation, of blocks and of context."""
        layer, attention = self.layer, self.layer.self_attn
        normed = layer.input_layernorm(states)
        dim = attention.head_dim
        queries = attention.q_norm(attention.q_proj(normed).unflatten(-1, (-1, dim)))
        keys = attention.k_norm(attention.k_proj(normed).unflatten(-1, (-1, dim)))
        values = attention.v_proj(normed).unflatten(-1, (-1, dim))
        context_keys = attention.k_norm(attention.k_proj(context).unflatten(-1, (-1, dim)))
        context_values = attention.v_proj(context).unflatten(-1, (-1, dim))
        return Heads(
            rotate_rows(queries, block_by),
            rotate_rows(context_keys, context_by),
            context_values,
            rotate_rows(keys, block_by),
            values,
        )

    def feed_forward(self, attended: Tensor, states: Tensor) -> Tensor:
        """Output projection, residual, norm, gated feed-forward, residual."""
        states = states + self.layer.self_attn.o_proj(attended.flatten(1))
        return states + self.layer.mlp(self.layer.post_attention_layernorm(states))


def rotate_rows(
    states: Float[Tensor, "rows heads dim"], by: Rotation
) -> Float[Tensor, "rows heads dim"]:
    """As `drafter.rope.rotate`, for rows before heads; `by` holds [1, rows, dim]."""
    first, second = states.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return states * by.cos[0, :, None] + turned * by.sin[0, :, None]


class BlockForward(nn.Module):
    """The training forward of `drafter`; its `layers` can be sharded or compiled one by one."""

    def __init__(
        self,
        drafter: BlockDrafter,
        *,
        make_attend: MakeAttend | None = None,
        recompute: bool = False,
    ) -> None:
        """`recompute` keeps only layer inputs for the backward pass (gradient checkpointing)."""
        super().__init__()
        self.config = drafter.config
        self.fc = drafter.fc
        self.hidden_norm = drafter.hidden_norm
        self.layers = nn.ModuleList(LayerForward(layer) for layer in drafter.decoder_layers())
        self.norm = drafter.norm
        self.recompute = recompute
        self._make_attend = make_attend
        self._frequencies = inverse_frequencies(self.config.rope, self.config.head_dim)

    def forward(
        self,
        features: Float[Tensor, "tokens feature"],
        embeddings: Float[Tensor, "blocks width hidden"],
        layout: Layout,
    ) -> Float[Tensor, "blocks slots hidden"]:
        """Final-normed states of the drafted slots (all but the anchors')."""
        context = self.hidden_norm(self.fc(features))
        states = embeddings.flatten(0, 1).to(context.dtype)
        block_by = self._rotation(layout.block_positions.flatten(), states)
        context_by = self._rotation(layout.token_positions, states)
        attends = self._attends(layout, states.device)
        for index, layer in enumerate(self.layers):
            attend = attends[self.config.mask_rule(index)]
            inputs = (states, context, block_by, context_by, attend)
            after: object = (  # pyright: ignore[reportUnknownVariableType]: of checkpoint
                checkpoint(layer, *inputs, use_reentrant=False)
                if self.recompute
                else layer(*inputs)
            )
            assert isinstance(after, Tensor)
            states = after
        # The anchors' rows say nothing: they are not normed and get no gradient from the loss.
        slots = states.view(layout.num_blocks, layout.width, -1)[:, 1:]
        normed: Tensor = self.norm(slots)
        return normed

    def _rotation(self, positions: Tensor, like: Tensor) -> Rotation:
        if self._frequencies.inverse.device != like.device:
            moved = self._frequencies.inverse.to(like.device)
            self._frequencies = Frequencies(moved, self._frequencies.scale)
        return rotation(self._frequencies, positions[None], like.dtype)

    def _attends(self, layout: Layout, device: torch.device) -> dict[MaskRule, Attend]:
        make = self._make_attend or choose_attention(device)
        rules = dict.fromkeys(self.config.mask_rule(i) for i in range(len(self.layers)))
        return {rule: make(layout, rule) for rule in rules}
