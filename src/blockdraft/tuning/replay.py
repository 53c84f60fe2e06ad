"""Replays a workload on predicted costs: queues, prompts beside decoding, answers of any length.

The engine's own scheduling in a few lines; acceptance is drawn from the survival, times come from
the costs. It runs no model and reads no clock; the closed form for answers alike is `predict.py`.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

from blockdraft.engine.config import PREFILL_ROWS, PREFILL_ROWS_ALONE
from blockdraft.engine.costs import CostModel
from blockdraft.tuning.policy import Policy, StepWidths
from blockdraft.tuning.row_costs import RowCosts
from blockdraft.tuning.survival import Survival

NUM_DRAWS = 12
SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCosts:
    """Costs of a pair: passes, and the drafter's seconds for each token that it takes in.

    `verify` tells the target's passes apart by their requests; None: they cost by rows alone, as
    `passes` says. Each request of a step takes `request_seconds` besides.
    """

    passes: CostModel
    intake_seconds: float = 0.0
    request_seconds: float = 0.0
    verify: RowCosts | None = None

    @property
    def rows(self) -> RowCosts:
        """The target's passes."""
        return RowCosts.by_rows(self.passes.verify) if self.verify is None else self.verify

    def at(self, num_requests: int) -> CostModel:
        """By rows alone, with so many requests at a time."""
        if self.verify is None:
            return self.passes
        return replace(self.passes, verify=self.verify.for_requests(num_requests))

    def step(
        self, *, num_prompts: int, prompt_rows: int, widths: StepWidths, num_taken_in: int
    ) -> float:
        """One step of the engine."""
        num_drafting = sum(v > 1 for v in widths.verify) if widths.draft > 1 else 0
        num_requests = num_prompts + len(widths.verify)
        passes = self.passes
        return (
            self.rows.at(num_requests, prompt_rows + sum(widths.verify))
            + self.request_seconds * num_requests
            + passes.draft_seconds(num_drafting, widths.draft)
            + self.intake_seconds * num_taken_in
            + passes.overhead_seconds
        )


class ReplayRequest(NamedTuple):
    """A request: its prompt, the tokens of its answer, and how many it might have got."""

    prompt_len: int
    answer_len: int
    max_tokens: int


class Replayed(NamedTuple):
    """What a replay came to; `latency_seconds` are an answer's, from its slot to its last token."""

    seconds: float
    tokens: int
    latency_seconds: float

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


@dataclass(slots=True)
class _Live:
    """A request on its way. `waiting` tokens are context that the drafter has not taken in."""

    request: ReplayRequest
    began: float
    num_fed: int = 0
    num_emitted: int = 0
    waiting: int = 0

    @property
    def is_decoding(self) -> bool:
        return self.num_emitted > 0

    @property
    def is_done(self) -> bool:
        return self.num_emitted >= self.request.answer_len


def replay(
    requests: Sequence[ReplayRequest],
    concurrency: int,
    policy: Policy,
    survival: Survival,
    costs: PairCosts,
    *,
    num_draws: int = NUM_DRAWS,
) -> Replayed:
    """Means over `num_draws` runs of all requests, in their order, `concurrency` at a time."""
    runs = [
        _Run(requests, concurrency, policy, survival, costs, random.Random(SEED + n))
        for n in range(num_draws)
    ]
    ended = [run.play() for run in runs]
    return Replayed(
        seconds=fmean(run.seconds for run in ended),
        tokens=ended[0].tokens,
        latency_seconds=fmean(run.latency_seconds for run in ended),
    )


class _Run:
    def __init__(
        self,
        requests: Sequence[ReplayRequest],
        concurrency: int,
        policy: Policy,
        survival: Survival,
        costs: PairCosts,
        rng: random.Random,
    ) -> None:
        self._queue = list(reversed(requests))
        self._tokens = sum(request.answer_len for request in requests)
        self._concurrency = concurrency
        self._policy = policy
        self._survival = survival
        self._costs = costs
        self._rng = rng
        self._accepted: dict[int, tuple[float, ...]] = {}
        self._live: list[_Live] = []
        self._now = 0.0

    def play(self) -> Replayed:
        latencies: list[float] = []
        while self._queue or self._live:
            self._step()
            latencies += [self._now - live.began for live in self._live if live.is_done]
            self._live = [live for live in self._live if not live.is_done]
        return Replayed(self._now, self._tokens, fmean(latencies))

    def _step(self) -> None:
        decoding = [live for live in self._live if live.is_decoding]
        fed = self._feed(bool(decoding))
        left = [live.request.max_tokens - live.num_emitted for live in decoding]
        widths = self._policy(left) if decoding else StepWidths(1, ())
        self._now += self._costs.step(
            num_prompts=len(fed),
            prompt_rows=sum(count for _, count in fed),
            widths=widths,
            num_taken_in=self._take_in(decoding, widths),
        )
        for live, count in fed:
            live.num_fed += count
            live.waiting += count
            live.num_emitted = int(live.num_fed == live.request.prompt_len)
        for live, verify in zip(decoding, widths.verify, strict=True):
            committed = 1 + self._draw(widths.draft, verify)
            live.num_emitted += committed
            live.waiting += committed

    def _feed(self, has_decoding: bool) -> list[tuple[_Live, int]]:
        """Prompt rows of this step, in order of arrival; a request gets a slot with its first."""
        num_left = PREFILL_ROWS if has_decoding else PREFILL_ROWS_ALONE
        fed: list[tuple[_Live, int]] = []
        feeding = [live for live in self._live if not live.is_decoding]
        while num_left:
            if feeding:
                live = feeding.pop(0)
            elif self._queue and len(self._live) < self._concurrency:
                live = _Live(self._queue.pop(), self._now)
                self._live.append(live)
            else:
                break
            count = min(num_left, live.request.prompt_len - live.num_fed)
            fed.append((live, count))
            num_left -= count
        return fed

    def _take_in(self, decoding: Sequence[_Live], widths: StepWidths) -> int:
        """The drafter takes in what waits for it once a request drafts."""
        total = 0
        for live, verify in zip(decoding, widths.verify, strict=True):
            if widths.draft > 1 and verify > 1:
                total += live.waiting
                live.waiting = 0
        return total

    def _draw(self, draft_width: int, verify: int) -> int:
        """How many of `verify` - 1 drafts are accepted."""
        if draft_width == 1 or verify == 1:
            return 0
        if draft_width not in self._accepted:
            self._accepted[draft_width] = self._survival.at(draft_width)
        drawn = self._rng.random()
        num = 0
        for share in self._accepted[draft_width][: verify - 1]:
            if drawn >= share:
                break
            num += 1
        return num
