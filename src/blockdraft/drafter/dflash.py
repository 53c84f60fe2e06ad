"""The DFlash drafter: a block model joined to a target's embedding and LM head.

It never verifies, samples or counts: it turns an anchor into draft logits (DFlash 2: into scores
of paths through candidates), one pass a block.

Token ranges of one request, half-open, `start` = the anchor's position = `context_len`:

    [0, start)                committed; their keys and values are cached
    [start, start + width)    the block: anchor, then masks; gone after `propose`
    [limit, ...)              beyond the drafter's positions: nothing drafted, nothing kept
"""

import logging
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from blockdraft.decoding.interfaces import DraftLattice, DraftLogits, LMHead, TargetModel
from blockdraft.drafter.model import BlockDrafter
from blockdraft.errors import CheckpointError, ConfigError

_LOGGER = logging.getLogger("blockdraft")

_EXTEND_CHUNK = 512
"""Context rows projected at once, so that a long prompt does not need all its features' space."""


class DFlashDrafter:
    """A `Drafter` over `model` and the target that it was trained for.

    `d2t` maps a reduced draft vocabulary: entry i stands for target id i + d2t[i]. `lm_head` is
    the checkpoint's own head; without it the target's rows are used. `mask_embedding` replaces the
    mask token's row of the embedding table. `recorded_tau` is the acceptance length it was measured
    at, for alarms. `block_size` may be smaller than the trained one; a larger one is reduced to it
    with a warning, since the model has never seen such a block.

    Raises CheckpointError when the draft vocabulary names ids that the target lacks, or stands
    beside a candidate selector, ConfigError for a block size below 1.
    """

    def __init__(
        self,
        model: BlockDrafter,
        target: TargetModel,
        *,
        block_size: int | None = None,
        d2t: Int[Tensor, " draft_vocab"] | None = None,
        lm_head: Float[Tensor, "draft_vocab hidden"] | None = None,
        mask_embedding: Float[Tensor, " hidden"] | None = None,
        recorded_tau: float | None = None,
    ) -> None:
        if d2t is not None and model.candidate_selector is not None:
            raise CheckpointError(
                "the drafter has a reduced draft vocabulary (d2t) and a candidate selector, which"
                " knows the whole vocabulary only; use a drafter without d2t"
            )
        self.model = model
        self.recorded_tau = recorded_tau
        self._device = model.device
        self._embed = target.embed
        self._mask_embedding = mask_embedding
        self._block_size = _usable_block_size(block_size, model.config.block_size)
        self._vocab_size = target.spec.vocab_size
        self._draft_to_target = _draft_to_target(d2t, lm_head, target.spec.vocab_size)
        self._head = _head(target, lm_head, self._draft_to_target)
        self._warned = False

    @property
    def block_size(self) -> int:
        return self._block_size

    @property
    def taps(self) -> tuple[int, ...]:
        return self.model.config.taps

    def open(self) -> "DFlashState":
        """A fresh state with a cache of its own."""
        return DFlashState(self)

    def usable_width(self, start: int, width: int) -> int:
        """How wide a block at position `start` may be; below 2 = no draft. Warns once if cut."""
        wanted = min(width, self._block_size)
        usable = min(wanted, self.model.config.position_limit - start)
        if usable < wanted and not self._warned:
            self._warned = True
            _LOGGER.warning(
                "the drafter's position limit of %d is reached: later tokens are decoded without"
                " drafts (same text, no speed-up)",
                self.model.config.position_limit,
            )
        return usable

    @property
    def device(self) -> torch.device:
        return self._device

    def release_weights(self) -> None:
        """Give the model's memory back, for an owner that has laid its weights out elsewhere.

        Configuration, embedding and head go on working; `open` does not.
        """
        self.model.to("meta")

    @property
    def draft_to_target(self) -> Int[Tensor, " draft_vocab"] | None:
        """Target id of each draft id; None when the draft vocabulary is the target's."""
        return self._draft_to_target

    def embed_blocks(
        self, anchors: Int[Tensor, " batch"], width: int
    ) -> Float[Tensor, "batch width hidden"]:
        """The scaled embeddings of [anchor, mask, ..] for each anchor, in the target's dtype."""
        config = self.model.config
        ids = torch.full((len(anchors), width), config.mask_token_id, device=self._device)
        ids[:, 0] = anchors
        embeddings = self._embed(ids)
        if self._mask_embedding is not None:
            mask_row = self._mask_embedding.to(embeddings)
            masks = mask_row.expand(len(anchors), width - 1, -1)
            embeddings = torch.cat((embeddings[:, :1], masks), dim=1)
        return embeddings * config.input_embedding_scale

    def slot_logits(
        self, hidden: Float[Tensor, "slots hidden"]
    ) -> Float[Tensor, "slots draft_vocab"]:
        """Logits over the draft vocabulary of final-normed slots."""
        return self.model.scores(hidden, self._head)

    def over_target_vocabulary(
        self, logits: Float[Tensor, "slots draft_vocab"]
    ) -> Float[Tensor, "slots vocab"]:
        """Scatter draft-vocabulary logits into full rows; ids that can't be drafted get -inf."""
        return over_vocabulary(logits, self._draft_to_target, self._vocab_size)

    def no_draft(self) -> DraftLogits:
        """A draft without slots."""
        return DraftLogits(torch.empty((0, self._vocab_size), device=self._device))

    @torch.no_grad()
    def draft(self, state: "DFlashState", anchor: int, width: int) -> DraftLogits | DraftLattice:
        """The draft of the `width` - 1 slots after `anchor`; no slots when `width` is below 2."""
        if width < 2:
            return self.no_draft()
        anchors = torch.tensor([anchor], device=self._device)
        embeddings = self.embed_blocks(anchors, width)
        slots = self.model.hidden(embeddings.to(self.model.dtype), state.cache)[:, 1:]
        # The target's head wants the target's dtype, which its embedding rows have.
        logits = self.slot_logits(slots[0].to(embeddings.dtype))
        selector = self.model.candidate_selector
        if selector is None:
            return DraftLogits(self.over_target_vocabulary(logits))
        return selector.lattices(slots, logits[None], anchors)[0]


class DFlashState:
    """One request's `DraftState`: a context cache and the number of committed tokens."""

    def __init__(self, drafter: DFlashDrafter) -> None:
        self._drafter = drafter
        self._context_len = 0
        self.cache = drafter.model.new_cache()

    @property
    def context_len(self) -> int:
        return self._context_len

    @torch.no_grad()
    def extend(self, ids: Sequence[int], features: Float[Tensor, "new feature"] | None) -> None:
        """Project and cache the features of `ids`, as long as a block can still follow them."""
        if not ids:
            return
        assert features is not None and len(features) == len(ids)
        self._context_len += len(ids)
        model = self._drafter.model
        if self._context_len + 2 > model.config.position_limit:
            # No block fits any more, and the context only grows: keep nothing.
            self.cache.reset()
            return
        for chunk in torch.split(features, _EXTEND_CHUNK):
            model.extend(self.cache, chunk[None].to(device=model.device, dtype=model.dtype))

    def propose(self, anchor: int, width: int) -> DraftLogits | DraftLattice:
        usable = self._drafter.usable_width(self._context_len, width)
        return self._drafter.draft(self, anchor, usable)


def over_vocabulary(
    logits: Float[Tensor, "slots draft_vocab"],
    to_target: Int[Tensor, " draft_vocab"] | None,
    vocab_size: int,
) -> Float[Tensor, "slots vocab"]:
    """Draft logits as rows over the target's vocabulary, -inf for what can't be drafted."""
    if to_target is None:
        return logits
    full = logits.new_full((logits.shape[0], vocab_size), -torch.inf)
    full[:, to_target] = logits
    return full


def _usable_block_size(wanted: int | None, trained: int) -> int:
    if wanted is None:
        return trained
    if wanted < 1:
        raise ConfigError(f"block size is {wanted}, expected at least 1 (the anchor alone)")
    if wanted > trained:
        _LOGGER.warning(
            "block size %d is larger than the drafter was trained for; using %d", wanted, trained
        )
    return min(wanted, trained)


def _draft_to_target(d2t: Tensor | None, lm_head: Tensor | None, vocab_size: int) -> Tensor | None:
    """Target id of each draft id; None when the drafted rows are the target's vocabulary."""
    if d2t is not None:
        target_ids = torch.arange(len(d2t), device=d2t.device) + d2t
        if int(target_ids.min()) < 0 or int(target_ids.max()) >= vocab_size:
            raise CheckpointError(
                f"d2t maps to target ids {int(target_ids.min())}..{int(target_ids.max())}, expected"
                f" 0..{vocab_size - 1}; use the target that the drafter was trained for"
            )
        return target_ids
    if lm_head is not None and len(lm_head) != vocab_size:
        # Two widths of one vocabulary: the rows that both have are the tokens, the rest padding.
        return torch.arange(min(len(lm_head), vocab_size), device=lm_head.device)
    return None


def _head(target: TargetModel, lm_head: Tensor | None, target_ids: Tensor | None) -> LMHead:
    if lm_head is None:
        return target.head(target_ids)
    weight = lm_head if target_ids is None else lm_head[: len(target_ids)]

    def own_head(hidden: Float[Tensor, "*rows hidden"]) -> Float[Tensor, "*rows vocab"]:
        return functional.linear(hidden.to(weight.dtype), weight)

    return own_head
