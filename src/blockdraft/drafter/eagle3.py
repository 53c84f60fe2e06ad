"""The EAGLE-3 drafter: a chain of tokens, each from a pass of its own (arXiv 2503.01840).

It drafts greedily and never verifies. Its cost grows with every token, which is what drafting a
whole block at once avoids.

Rows of one request: row j is the token at position j + 1 beside the fused feature of position j,
and says what follows at j + 2. `context_len` = s is the anchor's position:

    [0, fed)            rows whose keys and values are cached
    [fed, s - 1)        complete rows that are not fed yet; the next draft feeds them first
    s - 1               the anchor beside the last feature: its output drafts the first token
    [s, s + drafts)     a drafted token beside the output of the row before; overwritten later
"""

import logging
from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from blockdraft.decoding.interfaces import DraftIds, TargetModel
from blockdraft.drafter.eagle3_config import Eagle3Config
from blockdraft.drafter.eagle3_model import Eagle3Model, Kernels
from blockdraft.drafter.layers import RMSNorm
from blockdraft.errors import CheckpointError

_LOGGER = logging.getLogger("blockdraft")

_MOST_UNFED = 16
"""Complete rows that wait for the next draft; more (a prompt) are fed when they come."""

_CHUNK = 512
"""Rows fed at once, so that a long prompt needs no mask of its length squared."""

Embed = Callable[[Int[Tensor, " rows"]], Float[Tensor, "rows hidden"]]


def plain_kernels() -> Kernels:
    """torch's own products and our reference norm."""

    def product(weight: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda x: functional.linear(x, weight)

    def norm(weight: Tensor, eps: float) -> Callable[[Tensor], Tensor]:
        made = RMSNorm(len(weight), eps).requires_grad_(False)
        made.weight.data = weight
        return made

    return Kernels(lambda weights: [product(weight) for weight in weights], norm)


class Eagle3Drafter:
    """A `Drafter` over a target's embedding, or over its own (`embedding`).

    `d2t` None means that draft ids are target ids; otherwise entry i stands for i + d2t[i]. Raises
    CheckpointError where it names ids that the target lacks.
    """

    def __init__(
        self,
        config: Eagle3Config,
        state: Mapping[str, Tensor],
        target: TargetModel,
        *,
        d2t: Int[Tensor, " draft_vocab"] | None = None,
        embedding: Float[Tensor, "vocab hidden"] | None = None,
        kernels: Kernels | None = None,
    ) -> None:
        self.config = config
        self.model = Eagle3Model(config, state, kernels or plain_kernels())
        self._to_target = _target_ids(config, d2t, target.spec.vocab_size, self.model.device)
        self._embed = _own_embedding(embedding) if embedding is not None else target.embed
        self._warned = False

    @property
    def block_size(self) -> int:
        return self.config.block_size

    @property
    def taps(self) -> tuple[int, ...]:
        return self.config.taps

    def open(self) -> "Eagle3State":
        """A fresh state with a cache of its own."""
        return Eagle3State(self)

    def embed(self, ids: Sequence[int]) -> Float[Tensor, "rows hidden"]:
        return self._embed(torch.tensor(list(ids), device=self.model.device))

    def best(self, state: Float[Tensor, "1 hidden"]) -> int:
        """The target id that scores highest after a row."""
        draft_id = self.model.scores(state)[0].argmax()
        return int(draft_id if self._to_target is None else self._to_target[draft_id])

    def usable_width(self, start: int, width: int) -> int:
        """How wide a block at position `start` may be; below 2 = no draft. Warns once if cut."""
        wanted = min(width, self.config.block_size)
        usable = min(wanted, self.config.position_limit - start)
        if usable < wanted and not self._warned:
            self._warned = True
            _LOGGER.warning(
                "the drafter's position limit of %d is reached: later tokens are decoded without"
                " drafts (same text, no speed-up)",
                self.config.position_limit,
            )
        return usable


class Eagle3State:
    """One request's `DraftState`."""

    def __init__(self, drafter: Eagle3Drafter) -> None:
        self._drafter = drafter
        self._cache = drafter.model.new_cache()
        self._context_len = 0
        self._fed = 0
        self._tokens: list[int] = []
        """Of the complete rows from `_fed` on: one fewer than there are `_states`."""
        self._states = torch.empty(0)

    @property
    def context_len(self) -> int:
        return self._context_len

    @torch.no_grad()
    def extend(self, ids: Sequence[int], features: Float[Tensor, "new feature"] | None) -> None:
        """Fuse the features of `ids`, as long as a draft can still follow them."""
        if not ids:
            return
        assert features is not None and len(features) == len(ids)
        is_first = self._context_len == 0
        self._context_len += len(ids)
        if self._context_len + 2 > self._drafter.config.position_limit:
            # The context only grows: nothing is drafted any more, and nothing is kept.
            self._cache, self._tokens = self._drafter.model.new_cache(), []
            return
        fused = [self._drafter.model.fuse(chunk) for chunk in torch.split(features, _CHUNK)]
        self._states = torch.cat(fused if is_first else [self._states, *fused])
        self._tokens += ids[1:] if is_first else ids
        if len(self._tokens) > _MOST_UNFED:
            self._feed(len(self._tokens))

    @torch.no_grad()
    def propose(self, anchor: int, width: int) -> DraftIds:
        """Draft token by token; a pass each, the first of which feeds what waits too."""
        drafter, model = self._drafter, self._drafter.model
        start = self._context_len
        num_drafts = drafter.usable_width(start, width) - 1
        if num_drafts < 1 or start == 0:
            return DraftIds(())
        state = self._feed_with(anchor)
        drafts = [drafter.best(state)]
        turn = model.rotation(start, num_drafts)
        while len(drafts) < num_drafts:
            step = len(drafts) - 1
            by = type(turn)(turn.cos[:, step : step + 1], turn.sin[:, step : step + 1])
            token = drafter.embed(drafts[-1:])
            state = model.run(token, state, start + step, self._cache, by)
            drafts.append(drafter.best(state))
        return DraftIds(tuple(drafts))

    def _feed_with(self, anchor: int) -> Float[Tensor, "1 hidden"]:
        """Feed the complete rows and the anchor's, of which only the former stay."""
        tokens = self._drafter.embed([*self._tokens, anchor])
        outputs = self._run(tokens)
        self._drop(len(self._tokens))
        return outputs[-1:]

    def _feed(self, num_rows: int) -> None:
        for first in range(0, num_rows, _CHUNK):
            count = min(_CHUNK, num_rows - first)
            self._run(self._drafter.embed(self._tokens[:count]))
            self._drop(count)

    def _run(self, tokens: Float[Tensor, "rows hidden"]) -> Float[Tensor, "rows hidden"]:
        """The next rows from `_fed` on."""
        model, rows = self._drafter.model, len(tokens)
        by = model.rotation(self._fed, rows)
        return model.run(tokens, self._states[:rows], self._fed, self._cache, by)

    def _drop(self, count: int) -> None:
        """The first `count` waiting rows are fed for good."""
        self._fed += count
        self._tokens = self._tokens[count:]
        self._states = self._states[count:]


def _target_ids(
    config: Eagle3Config, d2t: Tensor | None, vocab_size: int, device: torch.device
) -> Int[Tensor, " draft_vocab"] | None:
    """The target id of each draft id; None where they are the same and all exist."""
    ids = torch.arange(config.draft_vocab_size)
    if d2t is not None:
        ids = ids + d2t.cpu()
    if int(ids.min()) < 0 or int(ids.max()) >= vocab_size:
        raise CheckpointError(
            f"the EAGLE-3 drafter drafts target ids {int(ids.min())}..{int(ids.max())}, expected"
            f" 0..{vocab_size - 1}; use the target that it was trained for"
        )
    return None if d2t is None else ids.to(device)


def _own_embedding(table: Tensor) -> Embed:
    return lambda ids: functional.embedding(ids, table)
