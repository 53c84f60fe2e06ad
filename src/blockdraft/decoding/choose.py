"""`Chooser`: turns logits into tokens for one request, drafts and verified rows alike.

It joins the request's processor chain, its random numbers and its acceptance law (elsewhere: the
sampler and the rejection sampler); it feeds no model and counts nothing. Probabilities are float64.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor

from blockdraft.decoding.accept import count_accepted, draw, verify_point_mass, verify_sampled
from blockdraft.decoding.interfaces import Draft, DraftIds, DraftLattice
from blockdraft.decoding.lattice import leading_slots, likeliest_path, row_after
from blockdraft.decoding.params import SamplingParams
from blockdraft.decoding.rows import RowChain, VocabRow
from blockdraft.decoding.uniforms import Purpose, Uniforms
from blockdraft.errors import DrafterError, NumericsError, RequestError


class DraftedBlock(NamedTuple):
    """A draft whose tokens are decided.

    `ids` are fit to be verified. Row i of `probs` is the distribution that ids[i] was drawn from;
    `probs` is None for a one-hot proposal. `num_slots` counts all slots drafted; `num_slots` -
    len(ids) of them were useless (not finite, or no id of the vocabulary) and count as rejected. If
    the request allows no token in some slot, that slot and all after it count as not drafted.
    """

    ids: tuple[int, ...]
    probs: Float[Tensor, "slots vocab"] | None
    num_slots: int


class Chooser:
    """Decides the tokens of one request. `position` is an index into its output, from 0."""

    def __init__(self, params: SamplingParams, chain: RowChain, seed: int, vocab_size: int) -> None:
        self._params = params
        self._chain = chain
        self._uniforms = Uniforms(seed)
        self._vocab_size = vocab_size

    @property
    def drafts_argmax(self) -> bool:
        """Whether a draft's tokens are simply the likeliest of each slot (`decide_argmax`)."""
        sampled = self._params.law == "sampled" and not self._params.is_greedy
        return self._chain.keeps_argmax and not sampled

    @property
    def verifies_argmax(self) -> bool:
        """Whether the target's own tokens are simply its likeliest ones (`verify_argmax`)."""
        return self._params.is_greedy and self._chain.keeps_argmax

    def decide_argmax(self, ids: Sequence[int], finite: Sequence[bool]) -> DraftedBlock:
        """A draft whose slots' likeliest tokens were already found, for many requests at once."""
        assert self.drafts_argmax
        return DraftedBlock(_leading(ids, finite), None, len(ids))

    def decide_draft(self, draft: Draft, position: int, max_slots: int) -> DraftedBlock:
        """Fix the tokens of a draft whose first slot is output position `position`.

        Slots beyond `max_slots` are dropped, whatever a drafter returns. The request's constraints
        are applied to draft logits slot by slot, so that the drafter does not propose what the
        target may not say. This only raises acceptance and never changes the output's law. Raises
        DrafterError for logits or candidates that are not over the target's vocabulary.
        """
        if isinstance(draft, DraftIds):
            drafted = draft.ids[:max_slots]
            ids = _leading(drafted, [0 <= i < self._vocab_size for i in drafted])
            return DraftedBlock(ids, None, len(drafted))
        if isinstance(draft, DraftLattice):
            return self._decide_path(draft, position, max_slots)
        logits = draft.logits[:max_slots]
        if logits.shape[-1] != self._vocab_size:
            raise DrafterError(
                f"the drafter's logits have {logits.shape[-1]} columns and the target's vocabulary "
                f"{self._vocab_size}; scatter them over the target's ids, -inf elsewhere"
            )
        finite = cast(list[bool], logits.amax(-1).isfinite().tolist())
        if self.drafts_argmax:
            return self.decide_argmax(cast(list[int], logits.argmax(-1).tolist()), finite)
        usable = _leading(range(len(logits)), finite)
        return self._choose_slots(
            lambda chosen: logits[len(chosen)], len(usable), len(logits), position
        )

    def _decide_path(self, draft: DraftLattice, position: int, max_slots: int) -> DraftedBlock:
        """A draft whose slots' scores depend on the token chosen in the slot before."""
        lattice = leading_slots(draft, max_slots, self._vocab_size)
        num_slots = len(lattice.candidates)
        if self.drafts_argmax:
            return DraftedBlock(likeliest_path(lattice), None, num_slots)

        def row_of(chosen: Sequence[int]) -> VocabRow | None:
            previous_id = chosen[-1] if chosen else None
            return row_after(lattice, len(chosen), previous_id, self._vocab_size)

        return self._choose_slots(row_of, num_slots, num_slots, position)

    def _choose_slots(
        self,
        row_of: Callable[[Sequence[int]], VocabRow | None],
        num_usable: int,
        num_slots: int,
        position: int,
    ) -> DraftedBlock:
        """Slot by slot: the likeliest token of a row that the request allows, or a draw from it.

        `row_of` gives the row after the tokens chosen so far, None where nothing is known of it;
        it is asked for the first `num_usable` of the `num_slots` drafted.
        """
        draws = self._params.law == "sampled" and not self._params.is_greedy
        process = self._chain.mask if draws else self._chain.constrain
        chosen: list[int] = []
        probs: list[Tensor] = []
        for slot in range(num_usable):
            logits = row_of(chosen)
            row = None if logits is None else process(logits, chosen)
            if row is None or not row.amax().isfinite():
                # A draft that the request leaves nothing of is at an end, not at fault.
                if logits is None or bool(logits.amax().isfinite()):
                    num_slots = slot
                break
            if draws:
                probs.append(row.double().softmax(-1))
                uniform = self._uniform("draft", position + slot)
                chosen.append(int(draw(probs[-1], uniform)))
            else:
                chosen.append(int(row.argmax()))
        return DraftedBlock(tuple(chosen), torch.stack(probs) if probs else None, num_slots)

    def verify(
        self, block: DraftedBlock, target_logits: Float[Tensor, "rows vocab"], position: int
    ) -> tuple[int, ...]:
        """The accepted drafts and the one token after them, decided by the target alone.

        `target_logits` has len(block.ids) + 1 rows: of the anchor, then of each draft; the first
        decides output position `position`. Raises NumericsError for a row it needs that is not
        finite, RequestError when the request's own settings forbid every token.
        """
        finite = cast(list[bool], target_logits.amax(-1).isfinite().tolist())
        if self.verifies_argmax:
            target_ids = cast(list[int], target_logits.argmax(-1).tolist())
            return self.verify_argmax(block, target_ids, finite, position)
        emitted: list[int] = []
        for slot, logits in enumerate(target_logits):
            if not finite[slot]:
                raise _not_finite(position + slot)
            row = self._chain.mask(logits, emitted)
            if slot == len(block.ids):
                emitted.append(self._decide(row, position + slot))
                break
            accepted, token_id = self._judge(block, slot, row, position + slot)
            emitted.append(token_id)
            if not accepted:
                break
        return tuple(emitted)

    def verify_argmax(
        self,
        block: DraftedBlock,
        target_ids: Sequence[int],
        finite: Sequence[bool],
        position: int,
    ) -> tuple[int, ...]:
        """`verify` where each row's likeliest token was already found, for many requests at once.

        Entry i of `target_ids` and `finite` (whether the row's largest logit is) is row i.
        """
        assert self.verifies_argmax and len(target_ids) == len(block.ids) + 1
        num_emitted = 1 + count_accepted(block.ids, target_ids)
        if not all(finite[:num_emitted]):
            raise _not_finite(position + list(finite).index(False))
        return tuple(target_ids[:num_emitted])

    def _judge(
        self, block: DraftedBlock, slot: int, row: VocabRow, position: int
    ) -> tuple[bool, int]:
        """Whether draft `slot` stands against the processed target row, and what is emitted."""
        if self._params.is_greedy:
            token_id = self._decide(row, position)
            return token_id == block.ids[slot], token_id
        draft_id = torch.tensor(block.ids[slot], device=row.device)
        token_uniform = self._uniform("token", position)
        if block.probs is None:
            verdict = verify_point_mass(draft_id, self._probs(row), token_uniform)
        else:
            residual_uniform = self._uniform("residual", position)
            verdict = verify_sampled(
                draft_id, block.probs[slot], self._probs(row), token_uniform, residual_uniform
            )
        return bool(verdict.accepted), int(verdict.ids)

    def _decide(self, row: VocabRow, position: int) -> int:
        """The target's own token for a processed row."""
        if self._params.is_greedy:
            if not row.amax().isfinite():
                raise _all_forbidden()
            return int(row.argmax())
        return int(draw(self._probs(row), self._uniform("token", position)))

    def _probs(self, row: VocabRow) -> VocabRow:
        if not row.amax().isfinite():
            raise _all_forbidden()
        return row.double().softmax(-1)

    def _uniform(self, purpose: Purpose, position: int) -> Float[Tensor, ""]:
        return torch.tensor(self._uniforms.at(purpose, position), dtype=torch.float64)


def _leading(values: Sequence[int], keep: Sequence[bool]) -> tuple[int, ...]:
    """The values before the first that is not kept."""
    count = keep.index(False) if False in keep else len(keep)
    return tuple(values[:count])


def _not_finite(position: int) -> NumericsError:
    return NumericsError(
        f"the target's logits for output token {position} are not finite (NaN or inf); "
        "try --dtype float32, or check the target's weights"
    )


def _all_forbidden() -> RequestError:
    return RequestError(
        "the request forbids every token at this position (allowed_ids, banned_ids, bad_words, "
        "min_tokens or an extra processor); loosen one of them"
    )
