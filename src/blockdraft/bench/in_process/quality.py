"""The quality guard: each lane's greedy answers against plain decoding's, and how close a miss was.

It decodes nothing; one target pass for each divergence tells the margin.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from blockdraft.bench.levels import LevelResult
from blockdraft.bench.records import RequestRecord
from blockdraft.decoding import TargetModel
from blockdraft.evaluation.difference import first_unequal, top_two_margin


class Divergence(NamedTuple):
    """The first output position (from 0) where an answer parts from plain decoding's.

    `margin` is how far the target's likeliest token is above the second there, as logits. A
    `near_tie` is one small enough for rounding to have turned the choice.
    """

    id: str
    position: int
    margin: float
    near_tie: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneQuality:
    """One lane over all levels that plain decoding was measured under too."""

    lane: str
    compared: int
    identical: int
    epsilon: float
    divergences: tuple[Divergence, ...]
    reason: str | None = None


class Ids(NamedTuple):
    """An answer as `first_unequal` compares it."""

    token_ids: tuple[int, ...]
    finish_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What comparing needs. `is_greedy` and `prompt_ids` are by the id of a prompt."""

    target: TargetModel
    plain_lane: str
    epsilon: float
    is_greedy: Callable[[str], bool]
    prompt_ids: Callable[[str], tuple[int, ...]]

    def compare(self, levels: Sequence[LevelResult]) -> tuple[LaneQuality, ...]:
        """One entry for each lane but the plain one, in the order in which they were measured."""
        plain = {
            (level.arrival, level.repeat, record.number): record
            for level in levels
            if level.lane == self.plain_lane
            for record in level.answered
        }
        margins: dict[tuple[str, tuple[int, ...]], float] = {}
        found: list[LaneQuality] = []
        for lane in dict.fromkeys(level.lane for level in levels):
            if lane == self.plain_lane:
                continue
            pairs = [
                (base, record)
                for level in levels
                if level.lane == lane
                for record in level.answered
                if self.is_greedy(record.id)
                and (base := plain.get((level.arrival, level.repeat, record.number))) is not None
            ]
            found.append(self._compare_lane(lane, pairs, margins))
        return tuple(found)

    def _compare_lane(
        self,
        lane: str,
        pairs: Sequence[tuple[RequestRecord, RequestRecord]],
        margins: dict[tuple[str, tuple[int, ...]], float],
    ) -> LaneQuality:
        divergences: dict[tuple[str, int], Divergence] = {}
        num_identical = 0
        for base, record in pairs:
            plain, ours = _ids(base), _ids(record)
            position = first_unequal(plain, ours)
            if position is None:
                num_identical += 1
                continue
            shared = plain.token_ids[:position]
            margin = margins.get((record.id, shared))
            if margin is None:
                margin = top_two_margin(self.target, [*self.prompt_ids(record.id), *shared])
                margins[record.id, shared] = margin
            divergences.setdefault(
                (record.id, position),
                Divergence(record.id, position, margin, margin < self.epsilon),
            )
        reason = None
        if not pairs:
            reason = "no greedy answer of this lane has a plain one to compare with"
        return LaneQuality(
            lane=lane,
            compared=len(pairs),
            identical=num_identical,
            epsilon=self.epsilon,
            divergences=tuple(divergences.values()),
            reason=reason,
        )


def quality_document(quality: LaneQuality) -> dict[str, object]:
    return {
        "lane": quality.lane,
        "compared": quality.compared,
        "identical": quality.identical,
        "epsilon": quality.epsilon,
        "divergences": [divergence._asdict() for divergence in quality.divergences],
        "reason": quality.reason,
    }


def _ids(record: RequestRecord) -> Ids:
    return Ids(record.token_ids or (), record.finish_reason)
