"""One prompt decoded to its end by the reference loop, and what of it counts.

It pools nothing; that is `acceptance.py`.
"""

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from blockdraft.decoding import AcceptanceStats, Commit, Drafter, SamplingParams, TargetModel
from blockdraft.decoding.emission import FinishReason
from blockdraft.decoding.loop import decode
from blockdraft.decoding.stats import Counts
from blockdraft.decoding.text import DecodeText
from blockdraft.errors import Error


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One way to decode: a drafter at a block size (None: the drafter's own)."""

    name: str
    drafter: Drafter
    block_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSettings:
    """What all answers of an evaluation share.

    `decode_text` is needed for stop strings only. `clock` gives seconds.
    """

    params: SamplingParams
    decode_text: DecodeText | None = None
    clock: Callable[[], float] = time.perf_counter


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCount:
    """One answer as it counts.

    `committed[n]` counts steps that committed n tokens, those without a draft included.
    `reached[k]` counts steps that drafted slot k and accepted every slot before it;
    `stats.accepted[k]` over it is the chance of slot k given the ones before.
    """

    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stats: AcceptanceStats
    committed: Counts
    reached: Counts

    @property
    def has_ended(self) -> bool:
        """Whether the answer ended by itself, not at a limit."""
        return self.finish_reason == "stop"


def decode_answer(
    target: TargetModel, lane: Lane, prompt_ids: Sequence[int], settings: DecodeSettings
) -> AnswerCount:
    """Decode one prompt with the reference loop. Raises what `decode` raises."""
    commits = decode(
        target,
        lane.drafter,
        prompt_ids,
        settings.params,
        block_size=lane.block_size,
        decode_text=settings.decode_text,
        clock=settings.clock,
    )
    # Counting comes after the last step, since the loop's clock runs between its commits.
    return count_answer(list(commits))


@contextmanager
def naming_prompt(number: int) -> Generator[None, None, None]:
    """An error of ours inside says which prompt it was about, counted from 1; its class stays."""
    try:
        yield
    except Error as error:
        raise type(error)(f"prompt {number}: {error}") from error


def count_answer(commits: Sequence[Commit]) -> AnswerCount:
    """Counts of a finished answer; its first commit is the prefill's token, which is no step."""
    last = commits[-1]
    assert last.finish_reason is not None, "decoding ended without a reason"
    pairs = list(pairwise(commits))
    return AnswerCount(
        token_ids=tuple(token_id for commit in commits for token_id in commit.ids),
        finish_reason=last.finish_reason,
        stats=last.stats,
        committed=add_counts((0,) * len(commit.ids) + (1,) for _, commit in pairs),
        reached=add_counts(_slots_reached(before.stats, after) for before, after in pairs),
    )


def add_counts(many: Iterable[Counts]) -> Counts:
    """The sum position by position, as long as the longest."""
    return tuple(sum(column) for column in zip_longest(*many, fillvalue=0))


def _slots_reached(before: AcceptanceStats, commit: Commit) -> Counts:
    """For each slot of one step: 1 if it was drafted, counts, and all before it were accepted."""
    drafted = zip_longest(commit.stats.drafted, before.drafted, fillvalue=0)
    return tuple(
        int(after > until and slot <= commit.num_accepted)
        for slot, (after, until) in enumerate(drafted)
    )
