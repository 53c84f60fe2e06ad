"""A real engine on a made-up pair whose passes take known seconds of a clock of its own.

The target counts upwards; the drafter drafts what it will say, up to a draft that is drawn to be
wrong. So times and acceptance are known exactly, and nothing waits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from blockdraft.bench.in_process.jobs import EngineJob
from blockdraft.decoding import SamplingParams
from blockdraft.decoding.interfaces import Draft, DraftIds, TargetSpec
from blockdraft.engine import Engine, parse_width
from blockdraft.engine.alarm import AcceptanceAlarm
from blockdraft.engine.costs import CostModel
from blockdraft.engine.engine import EngineParts
from blockdraft.engine.extents import Move
from blockdraft.engine.plan import SchedulerConfig
from blockdraft.engine.scheduler import Scheduler
from blockdraft.engine.sides import DraftRequest, Extension, Feed, PassResult
from blockdraft.engine.width import WidthController
from blockdraft.tuning.observe import observe
from blockdraft.tuning.observed import Observed

VOCAB = 8
BLOCK = 8
GOLDEN = 0.6180339887498949

Law = Callable[[int, int], float]
"""(draft width, draft position from 1) -> conditional acceptance."""


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What the made-up machine does."""

    costs: CostModel
    intake_seconds: float
    law: Law


class CountingTarget:
    """A `TargetSide` that says the next number after each token."""

    can_copy = False
    can_batch = True
    bytes_per_token = 1

    def __init__(self, truth: Truth, clock: FakeClock) -> None:
        self._truth = truth
        self._clock = clock

    def move(self, moves: Sequence[Move]) -> None:
        pass

    def run(self, feeds: Sequence[Feed]) -> PassResult:
        costs = self._truth.costs
        rows = sum(len(feed.ids) for feed in feeds)
        self._clock.now += costs.verify_seconds(rows) + costs.overhead_seconds
        asked: list[int] = []
        for feed in feeds:
            if feed.wants_logits:
                asked += feed.ids[-1:] if feed.is_prompt else feed.ids
        logits = torch.zeros(len(asked), VOCAB)
        logits[torch.arange(len(asked)), (torch.tensor(asked, dtype=torch.long) + 1) % VOCAB] = 9.0
        return PassResult(logits, None)

    def commit(self, feed: Feed, rows: Sequence[int]) -> None:
        pass

    def forget(self, key: int) -> None:
        pass


class DrawnDrafts:
    """A `DraftSide` whose drafts are right up to a position that follows the law.

    Draws are evenly spread (multiples of the golden ratio), so that a short run has its mean.
    """

    block_size = BLOCK
    taps: tuple[int, ...] = ()
    can_copy = False
    bytes_per_token = 1

    def __init__(self, truth: Truth, clock: FakeClock) -> None:
        self._truth = truth
        self._clock = clock
        self._drawn = 0.5

    def move(self, moves: Sequence[Move]) -> None:
        pass

    def extend(self, extensions: Sequence[Extension]) -> None:
        num = sum(len(extension.ids) for extension in extensions)
        self._clock.now += self._truth.intake_seconds * num

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        width = requests[0].width
        self._clock.now += self._truth.costs.draft_seconds(len(requests), width)
        return [self._one(request) for request in requests]

    def _one(self, request: DraftRequest) -> Draft:
        self._drawn = (self._drawn + GOLDEN) % 1
        right, survived = 0, 1.0
        while right < request.width - 1:
            survived *= self._truth.law(request.width, right + 1)
            if self._drawn >= survived:
                break
            right += 1
        ids = [(request.anchor + k) % VOCAB for k in range(1, request.width)]
        if right < len(ids):
            ids[right] = (ids[right] + 1) % VOCAB
        return DraftIds(tuple(ids))

    def forget(self, key: int) -> None:
        pass


def run_simulated(
    truth: Truth,
    width: str,
    slots: int,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int,
) -> Observed:
    """Answer all prompts on the made-up machine."""
    clock = FakeClock()
    mode = parse_width(width)
    drafts = None if mode.kind == "off" else DrawnDrafts(truth, clock)
    spec = TargetSpec(name="counting", vocab_size=VOCAB, hidden_size=1, num_layers=1)
    block_size = 1 if drafts is None else BLOCK
    engine = Engine(
        EngineParts(
            spec=spec,
            target=CountingTarget(truth, clock),
            drafts=drafts,
            scheduler=Scheduler(
                SchedulerConfig(
                    num_slots=slots,
                    num_rows=1 << 16,
                    max_context=4096,
                    rows_ahead=BLOCK,
                    prefill_rows=64,
                    prefill_rows_alone=512,
                    reuse_prefixes=False,
                )
            ),
            controller=WidthController(mode, block_size, truth.costs),
            alarm=AcceptanceAlarm(None, block_size),
            reuses=False,
            clock=clock,
        )
    )
    params = SamplingParams(max_new_tokens=max_tokens)
    jobs = [EngineJob(n, f"p{n}", "", tuple(ids), params) for n, ids in enumerate(prompts)]
    known = {"off": 1, "auto": None}.get(width, mode.width)
    return observe(engine, jobs, width=known, clock=clock)
