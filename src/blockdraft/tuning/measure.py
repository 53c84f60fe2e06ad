"""Measures a loaded pair: what passes cost, and a workload at one setting after the other.

It decides nothing; `search.py` and `verify.py` do.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch

from blockdraft.bench.in_process.jobs import EngineJob
from blockdraft.bench.in_process.lanes import BenchTarget
from blockdraft.decoding import Drafter, NoDrafter
from blockdraft.engine import BuiltEngine, EngineConfig, WidthMode, build_engine
from blockdraft.engine.build import clock_for, pass_rows
from blockdraft.engine.calibrate import Limits, measure_costs
from blockdraft.engine.costs import CostModel
from blockdraft.tuning.observe import observe
from blockdraft.tuning.observed import Observed
from blockdraft.tuning.passes import PassLimits, PassTable, measure_passes
from blockdraft.tuning.replay import PairCosts
from blockdraft.tuning.search import level_requests
from blockdraft.tuning.store import RunStore

WARM_UP_TOKENS = 10

Watch = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
"""Given what is measured and how many answers that is: gives the function that counts one more."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A pair, what it is asked, and where its runs are kept.

    `config` has limits of memory and the like; slots and width are set by each run.
    """

    target: BenchTarget
    drafter: Drafter
    jobs: tuple[EngineJob, ...]
    config: EngineConfig
    store: RunStore
    watch: Watch

    def costs(self, slots: int) -> CostModel:
        """Passes of both models by rows alone, as the engine itself measures them."""
        known = self.store.get_table("costs")
        if known is not None:
            return CostModel.from_json(known)
        with self.watch("costs of passes", 1) as advance:
            found = self._measure_costs(slots)
            advance()
        self.store.add_table("costs", found.to_json())
        return found

    def passes(self, slots: int) -> PairCosts:
        """Passes of both models by requests and rows, as steps of up to `slots` requests run them;
        measured now or before (of this store)."""
        known = self.store.get_table("passes")
        if known is not None:
            return PassTable.of_json(known).costs()
        with self.watch("passes", 1) as advance:
            found = self._measure_passes(slots)
            advance()
        self.store.add_table("passes", found.to_json())
        return found.costs()

    def run(self, mode: WidthMode, concurrency: int, name: str = "") -> Observed:
        """The workload at one setting, measured now or before. `name` tells repeats apart."""
        title = f"{mode}@{concurrency}"
        name = f"{title} {name}".strip()
        known = self.store.get(name)
        if known is not None:
            return known
        jobs = level_requests(self.jobs, concurrency)
        with self.watch(name, len(jobs)) as advance:
            engine = self._open(mode, concurrency).engine
            width = _known_width(mode, self.drafter.block_size)
            observe(engine, _shortened(jobs[:concurrency]), width=width)
            found = observe(engine, jobs, width=width, on_answer=advance)
        self.store.add(name, found)
        return found

    def _open(self, mode: WidthMode, slots: int) -> BuiltEngine:
        codec = self.target.text
        return build_engine(
            self.target,
            NoDrafter() if mode.kind == "off" else self.drafter,
            replace(self.config, width=mode, slots=slots, reuse_prefixes=False),
            decode_text=None if codec is None else codec.decode,
        )

    def _measure_costs(self, slots: int) -> CostModel:
        built = self._open(WidthMode("fixed", self.drafter.block_size), slots)
        capacity, sides = built.capacity, built.sides
        return measure_costs(
            sides.target,
            sides.drafts,
            Limits(
                num_slots=capacity.slots,
                num_rows=capacity.num_rows,
                max_context=capacity.max_context,
                pass_rows=pass_rows(self.target),
            ),
            feature_size=len(self.drafter.taps) * self.target.spec.hidden_size,
            dtype=self.target.dtype,
            clock=clock_for(self.target.device),
        )

    def _measure_passes(self, slots: int) -> PassTable:
        built = self._open(WidthMode("fixed", self.drafter.block_size), slots)
        capacity, drafts = built.capacity, built.sides.drafts
        assert drafts is not None, "an engine with drafts has their side"
        size = len(self.drafter.taps) * self.target.spec.hidden_size
        limits = PassLimits(
            num_slots=capacity.slots,
            num_rows=capacity.num_rows,
            max_context=capacity.max_context,
            pass_rows=pass_rows(self.target),
            features=torch.zeros(1, size, dtype=self.target.dtype),
        )
        clock = clock_for(self.target.device)
        return measure_passes(built.sides.target, drafts, limits, clock)


def _known_width(mode: WidthMode, block_size: int) -> int | None:
    """What every step drafts, where that is known beforehand."""
    if mode.kind == "off":
        return 1
    return None if mode.width is None else min(mode.width, block_size)


def _shortened(jobs: Sequence[EngineJob]) -> list[EngineJob]:
    """A warm-up: the first calls of kernels, in nobody's time."""
    return [
        job._replace(
            params=replace(
                job.params,
                max_new_tokens=min(WARM_UP_TOKENS, job.params.max_new_tokens),
                min_tokens=min(WARM_UP_TOKENS, job.params.min_tokens),
            )
        )
        for job in jobs
    ]
