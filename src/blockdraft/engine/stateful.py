"""Both sides over states of their own: any `TargetModel` and any `Drafter`, one request at a time.

The engine's fallback for targets that the native decoder does not fit, for batch-invariant passes
and for drafters without a batched form: same scheduler, same tokens, no gain from batching.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from blockdraft.decoding.interfaces import Draft, Drafter, DraftState, TargetModel, TargetState
from blockdraft.engine.extents import Move
from blockdraft.engine.sides import DraftRequest, Extension, Feed, PassResult


class StatefulTarget:
    """A `TargetSide` that runs the feeds of a pass in turn."""

    can_copy = False
    can_batch = False

    def __init__(
        self,
        target: TargetModel,
        taps: Sequence[int],
        bytes_per_token: int,
        *,
        decodes_again: bool = False,
    ) -> None:
        """`decodes_again`: ids that a preempted request had emitted are fed as it decodes, not as
        a prompt, since some recurrent layers compute the two differently.
        """
        self._target = target
        self._decodes_again = decodes_again
        self._taps = tuple(taps)
        self._states: dict[int, TargetState] = {}
        self.bytes_per_token = bytes_per_token

    def move(self, moves: Sequence[Move]) -> None:
        """Rows are only counted here; they are nobody's memory."""

    def run(self, feeds: Sequence[Feed]) -> PassResult:
        logits: list[Tensor] = []
        features: list[Tensor] = []
        for feed in feeds:
            if feed.context_len == 0:
                self._states[feed.key] = self._target.open(self._taps)
            state = self._states[feed.key]
            ids = torch.tensor(feed.ids)
            if feed.was_decoded and self._decodes_again:
                assert not feed.wants_logits, "the next token of these ids is known"
                output = state.verify(ids)
                state.commit(range(len(feed.ids)))
            elif feed.is_prompt:
                output = state.prefill(ids)
            else:
                output = state.verify(ids, feed.parents)
            if feed.wants_logits:
                logits.append(output.logits)
            if output.features is not None:
                features.append(output.features)
        joined = torch.cat(logits) if logits else torch.empty(0, self._target.spec.vocab_size)
        return PassResult(joined, torch.cat(features) if features else None)

    def commit(self, feed: Feed, rows: Sequence[int]) -> None:
        self._states[feed.key].commit(rows)

    def forget(self, key: int) -> None:
        self._states.pop(key, None)


class StatefulDrafts:
    """A `DraftSide` that drafts for one request after the other."""

    can_copy = False

    def __init__(self, drafter: Drafter, bytes_per_token: int = 0) -> None:
        self._drafter = drafter
        self._states: dict[int, DraftState] = {}
        self.bytes_per_token = bytes_per_token

    @property
    def block_size(self) -> int:
        return self._drafter.block_size

    @property
    def taps(self) -> tuple[int, ...]:
        return self._drafter.taps

    def move(self, moves: Sequence[Move]) -> None:
        """Rows are only counted here; they are nobody's memory."""

    def extend(self, extensions: Sequence[Extension]) -> None:
        for extension in extensions:
            if extension.start == 0:
                self._states[extension.key] = self._drafter.open()
            self._states[extension.key].extend(extension.ids, extension.features)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._states[r.key].propose(r.anchor, r.width) for r in requests]

    def forget(self, key: int) -> None:
        self._states.pop(key, None)
