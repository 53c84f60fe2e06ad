"""The block-diffusion transformer: fuse features, keep their keys and values, run one block.

It has no embedding, no LM head and no token ids; `dflash.py` joins it to a target. The formulas are
in docs/algorithm.md, "The drafter".

Shape legend: batch, new = context tokens taken in, width = block rows, slots = width - 1 (those
after the anchor), feature = num_taps * hidden.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from blockdraft.decoding.interfaces import LMHead
from blockdraft.drafter.attention import BlockAttention, KeyValues, block_mask, sees_everything
from blockdraft.drafter.cache import ContextCache
from blockdraft.drafter.config import DrafterConfig, MaskRule
from blockdraft.drafter.convolution import BlockConvolution
from blockdraft.drafter.layers import GatedMLP, RMSNorm
from blockdraft.drafter.rope import Frequencies, Rotation, inverse_frequencies, rotation
from blockdraft.drafter.selector import CandidateSelector


class DrafterLayer(nn.Module):
    """Pre-norm attention over context and block, then a pre-norm feed-forward.

    In DFlash 2 each of the two has convolutions around it (None in the first version).
    """

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.self_attn = BlockAttention(config)
        self.mlp = GatedMLP(config.hidden_size, config.intermediate_size)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.attention_conv = _convolution(config)
        self.mlp_conv = _convolution(config)

    def forward(
        self, states: Tensor, by: Rotation, context: KeyValues, mask: Tensor | None
    ) -> Tensor:
        def attend(rows: Tensor) -> Tensor:
            attended: Tensor = self.self_attn(rows, by, context, mask)
            return attended

        states = states + _around(self.attention_conv, self.input_layernorm(states), attend)
        normed = self.post_attention_layernorm(states)
        return states + _around(self.mlp_conv, normed, self.mlp)


def _convolution(config: DrafterConfig) -> BlockConvolution | None:
    if config.dflash2 is None:
        return None
    return BlockConvolution(config.hidden_size, config.dflash2)


def _around(
    convolution: BlockConvolution | None, states: Tensor, sublayer: Callable[[Tensor], Tensor]
) -> Tensor:
    return sublayer(states) if convolution is None else convolution.around(states, sublayer)


class BlockDrafter(nn.Module):
    """The drafter's own parameters, under their published names, and what is computed with them.

    `extend` takes committed tokens into a cache, `hidden` runs one block over it, `logits` scores
    the block's slots. Batch row b's block stands at positions [cache.lengths[b], cache.lengths[b] +
    width).
    """

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.config = config
        hidden = config.hidden_size
        self.fc = nn.Linear(len(config.taps) * hidden, hidden, bias=False)
        self.hidden_norm = RMSNorm(hidden, config.rms_norm_eps)
        self.layers = nn.ModuleList(DrafterLayer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(hidden, config.rms_norm_eps)
        self.candidate_selector: CandidateSelector | None = None
        if config.dflash2 is not None:
            self.candidate_selector = CandidateSelector(hidden, config.vocab_size, config.dflash2)
        # Neither a parameter nor a buffer: it must stay fp32 when the weights are cast.
        self._frequencies = inverse_frequencies(config.rope, config.head_dim)

    @property
    def dtype(self) -> torch.dtype:
        return self.fc.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.fc.weight.device

    def new_cache(self, batch_size: int = 1) -> ContextCache:
        """An empty cache of this model's dtype, on its device."""
        return ContextCache(self.config, batch_size, dtype=self.dtype, device=self.device)

    def fuse(
        self, features: Float[Tensor, "batch new feature"]
    ) -> Float[Tensor, "batch new hidden"]:
        """Concatenated tapped outputs to context features: one projection, one norm."""
        fused: Tensor = self.hidden_norm(self.fc(features))
        return fused

    def extend(
        self,
        cache: ContextCache,
        features: Float[Tensor, "batch new feature"],
        counts: Sequence[int] | None = None,
    ) -> None:
        """Commit the first `counts[b]` feature rows of each batch row (None = all) to `cache`.

        Computes each committed token's keys and values once; they are never touched again.
        """
        batch_size, new, _ = features.shape
        by = self._rotation(cache.lengths, new)
        context = self.fuse(features)
        layers = [layer.self_attn.key_values(context, by) for layer in self.decoder_layers()]
        cache.append(layers, [new] * batch_size if counts is None else counts)

    def hidden(
        self, embeddings: Float[Tensor, "batch width hidden"], cache: ContextCache
    ) -> Float[Tensor, "batch width hidden"]:
        """Final-normed states of the block's rows. Leaves `cache` unchanged."""
        width = embeddings.shape[1]
        by = self._rotation(cache.lengths, width)
        masks: dict[MaskRule, Tensor | None] = {}
        states = embeddings
        for layer_idx, layer in enumerate(self.decoder_layers()):
            rule = self.config.mask_rule(layer_idx)
            if rule not in masks:
                masks[rule] = self._mask(cache.lengths, width, rule)
            states = layer(states, by, cache.context(layer_idx), masks[rule])
        normed: Tensor = self.norm(states)
        return normed

    def logits(
        self, hidden: Float[Tensor, "batch width hidden"], head: LMHead
    ) -> Float[Tensor, "batch slots vocab"]:
        """Logits of the drafted slots: those of all rows but the anchors'."""
        # One flat list of rows: CPU kernels for bfloat16 are many times slower on a strided batch.
        flat = self.scores(hidden[:, 1:].flatten(0, 1), head)
        return flat.view(len(hidden), hidden.shape[1] - 1, flat.shape[-1])

    def scores(
        self, slots: Float[Tensor, "slots hidden"], head: LMHead
    ) -> Float[Tensor, "slots vocab"]:
        """Logits of final-normed rows, scaled and soft-capped."""
        scores = head(slots)
        if self.config.output_multiplier != 1.0:
            scores = scores * self.config.output_multiplier
        cap = self.config.final_logit_softcapping
        return scores if cap is None else cap * torch.tanh(scores / cap)

    def decoder_layers(self) -> Iterator[DrafterLayer]:
        """The layers in order."""
        for layer in self.layers:
            assert isinstance(layer, DrafterLayer)
            yield layer

    def _rotation(self, starts: Sequence[int], rows: int) -> Rotation:
        if self._frequencies.inverse.device != self.device:
            moved = self._frequencies.inverse.to(self.device)
            self._frequencies = Frequencies(moved, self._frequencies.scale)
        first = torch.tensor(starts, device=self.device)
        positions = first[:, None] + torch.arange(rows, device=self.device)
        return rotation(self._frequencies, positions, self.dtype)

    def _mask(self, lengths: Sequence[int], width: int, rule: MaskRule) -> Tensor | None:
        if sees_everything(lengths, width, rule):
            return None
        return block_mask(torch.tensor(lengths, device=self.device), max(lengths), width, rule)
