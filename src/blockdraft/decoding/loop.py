"""The reference decoder, batch 1: DFlash decoding as the paper tells it (arXiv 2602.06036, 3).

This is the executable specification. Every faster path must emit the same tokens; speed is not
its business. docs/algorithm.md walks through one step with an example, docs/losslessness.md proves
that the output is the target's own.

Token ranges around one step; `start` = position of the anchor, `n` = rows fed (at most `width`):

    [0, start)                 committed: target K/V and drafter context K/V both cover exactly this
    [start, start + 1)         the anchor: emitted, not yet fed to the target
    [start + 1, start + n)     drafts, n - 1 of them
    [start, start + kept)      fed by this step and kept; the last emitted token is the new anchor

The code counts output instead: `position` = number of emitted tokens = index of the first draft in
the output, so start = len(prompt_ids) + position - 1.
"""

import time
from collections.abc import Callable, Iterator, Sequence

import torch

from blockdraft.decoding.choose import DraftedBlock
from blockdraft.decoding.completion import Commit, read_logprobs
from blockdraft.decoding.interfaces import Drafter, TargetModel
from blockdraft.decoding.params import SamplingParams
from blockdraft.decoding.request import choose_block_size, open_request
from blockdraft.decoding.stats import AcceptanceStats, StepCount
from blockdraft.decoding.text import DecodeText

NO_DRAFT = DraftedBlock((), None, 0)


def decode(
    target: TargetModel,
    drafter: Drafter,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    *,
    block_size: int | None = None,
    decode_text: DecodeText | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Commit]:
    """Decode one request, yielding a `Commit` a step; the last one carries the finish reason.

    The emitted tokens follow exactly the law (probability distribution) of plain decoding with
    `target`, whatever the drafter: greedily, and with a seed under the "argmax" law, they are the
    very same tokens. `block_size` counts the anchor; None takes the drafter's own, 1 never drafts,
    a larger one than the drafter's is cut to it. `clock` is in seconds. Raises RequestError before
    anything runs, NumericsError when the target's logits are not finite, DrafterError when the
    drafter breaks its contract.
    """
    request = open_request(target.spec, prompt_ids, params, decode_text)
    emission, chooser = request.emission, request.chooser
    block_size = choose_block_size(block_size, drafter.block_size)

    # Prefill: the prompt enters the target, its last row decides the first token.
    started = clock()
    target_state = target.open(drafter.taps)
    draft_state = drafter.open()
    target_pass = target_state.prefill(torch.tensor(prompt_ids))
    emitted = emission.add(chooser.verify(NO_DRAFT, target_pass.logits, position=0))
    request.chain.advance(emitted)
    if emission.finish_reason is None:
        draft_state.extend(prompt_ids, target_pass.features)
    prefill_seconds = clock() - started
    stats = AcceptanceStats().with_prefill_token()
    num_accepted = 0

    while True:
        yield Commit(
            ids=emitted,
            num_accepted=num_accepted,
            text=emission.take_text(),
            logprobs=read_logprobs(target_pass.logits, emitted, params.logprobs),
            stats=stats.with_time(seconds=clock() - started, prefill_seconds=prefill_seconds),
            finish_reason=emission.finish_reason,
        )
        if emission.finish_reason is not None:
            return

        # Draft: one drafter pass proposes the tokens after the anchor.
        anchor = emission.ids[-1]
        position = len(emission.ids)
        width = min(block_size, params.widest_block(emission.remaining))
        block = NO_DRAFT
        if width > 1:
            draft = draft_state.propose(anchor, width)
            block = chooser.decide_draft(draft, position, max_slots=width - 1)

        # Verify: one target pass over anchor and drafts decides one token more than it accepts.
        target_pass = target_state.verify(torch.tensor((anchor, *block.ids)))
        decided = chooser.verify(block, target_pass.logits, position)

        # Commit: both states now cover everything emitted but the last token, the new anchor.
        emitted = emission.add(decided)
        kept = len(emitted)
        target_state.commit(range(kept))
        features = None if target_pass.features is None else target_pass.features[:kept]
        draft_state.extend((anchor, *emitted[:-1]), features)
        request.chain.advance(emitted)

        num_accepted = min(len(decided) - 1, kept)
        stats = stats.with_step(
            StepCount(
                num_committed=kept,
                num_drafted=block.num_slots,
                num_accepted=num_accepted,
                num_cut=len(decided) - 1 - num_accepted,
                num_unusable=block.num_slots - len(block.ids),
            )
        )
