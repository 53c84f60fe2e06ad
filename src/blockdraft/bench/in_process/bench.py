"""`InProcessBench`: every lane under every arrival pattern in turn, on engines of one target.

It prints and writes nothing; figures are made of its levels, and documents in `results.py`.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from blockdraft.bench.acceptance import Acceptance, SourceFigures
from blockdraft.bench.arrivals import arrival_times
from blockdraft.bench.config import Arrival, RequestSettings
from blockdraft.bench.encoding import encode_bench_prompt
from blockdraft.bench.figures import step_figures
from blockdraft.bench.in_process.energy import EnergyMeter
from blockdraft.bench.in_process.jobs import EngineJob, engine_job, room_for
from blockdraft.bench.in_process.lanes import BenchTarget, LaneOrder, OpenLane, open_lane
from blockdraft.bench.in_process.pass_costs import PassCosts, measure_pass_costs
from blockdraft.bench.in_process.runner import OnRecord, Pace, run_requests
from blockdraft.bench.levels import LevelResult
from blockdraft.bench.records import RequestRecord
from blockdraft.bench.sampling import sampling_of
from blockdraft.bench.workload import Job, Workload, make_jobs, warm_up_prompt
from blockdraft.engine import EngineConfig
from blockdraft.engine.build import Report
from blockdraft.engine.config import DEFAULT_SLOTS
from blockdraft.errors import ConfigError
from blockdraft.evaluation.speed import rotated

ENGINE = "engine"
DEFINITION = "tokens after the first / verifications"
WARM_UP_TOKENS = 8


class Turn(NamedTuple):
    """One level that is to be measured."""

    lane: str
    arrival: Arrival
    repeat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """Everything that is to be measured. `repeats` holds a number for each arrival.

    `num_requests` is for each level; where it is None a level has `least_requests`, or two for each
    that runs at a time if that is more; where that is None too, every prompt (see `make_jobs`).
    """

    lanes: Sequence[LaneOrder]
    arrivals: Sequence[Arrival]
    repeats: Sequence[int]
    workload: Workload
    settings: RequestSettings
    num_requests: int | None = None
    least_requests: int | None = None
    num_warm_ups: int = 1

    def __post_init__(self) -> None:
        if self.num_warm_ups < 0:
            raise ConfigError(f"--warmup is {self.num_warm_ups}; give 0 or more requests")
        if not self.lanes or not self.arrivals or len(self.repeats) != len(self.arrivals):
            raise ConfigError("a bench needs lanes and arrivals, and repeats for each arrival")

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All levels in their order: another lane begins at each arrival and repeat."""
        turns: list[Turn] = []
        begun = 0
        for repeat in range(max(self.repeats)):
            for arrival, num_repeats in zip(self.arrivals, self.repeats, strict=True):
                if repeat < num_repeats:
                    order = rotated(self.lanes, begun)
                    turns += [Turn(lane.info.name, arrival, repeat) for lane in order]
                    begun += 1
        return tuple(turns)

    def jobs(self, arrival: Arrival) -> list[Job]:
        """The requests of a level, the same ones in every lane and repeat."""
        number = self.num_requests
        if number is None and self.least_requests is not None:
            users = arrival.concurrency or 1
            number = max(self.least_requests, 2 * users)
            # Distinct prompts tell more than many answers do.
            number = min(number, max(len(self.workload.prompts), users))
        return make_jobs(self.workload.prompts, arrival, number)

    @property
    def slots(self) -> int:
        """How many requests an engine must run at once; those that come by time may be many."""
        most = max((arrival.concurrency or 0 for arrival in self.arrivals), default=0)
        has_rate = any(arrival.rate is not None for arrival in self.arrivals)
        return max(most, DEFAULT_SLOTS if has_rate else 1)


class InProcessBench:
    """Lanes on one target. `levels` holds what was done, an interrupted level too."""

    def __init__(self, target: BenchTarget, plan: BenchPlan, meter: EnergyMeter) -> None:
        """Encodes the prompts. Raises RequestError naming a row that has no ids here."""
        self.plan = plan
        self.levels: list[LevelResult] = []
        self.costs: PassCosts | None = None
        self._target = target
        self._meter = meter
        self._lanes: dict[str, OpenLane] = {}
        settings = plan.settings
        self._ids = {
            prompt.id: encode_bench_prompt(target, prompt, settings)
            for prompt in plan.workload.prompts
        }

    @property
    def remaining(self) -> tuple[Turn, ...]:
        """The levels that are not measured yet, in order."""
        done = {(lv.lane, lv.arrival, lv.repeat) for lv in self.levels if lv.is_complete}
        return tuple(turn for turn in self.plan.turns if turn not in done)

    @property
    def is_complete(self) -> bool:
        return not self.remaining

    def resume(self, levels: Sequence[LevelResult]) -> None:
        """Take over complete levels of an earlier run of the same plan."""
        wanted = set(self.plan.turns)
        for level in levels:
            turn = Turn(level.lane, level.arrival, level.repeat)
            if level.is_complete and turn in wanted:
                self.levels.append(level)

    def open(self, config: EngineConfig, report: Report | None = None) -> None:
        """Make the engines of all lanes that have something to do, measure their passes and warm
        them up. Raises ConfigError where memory does not allow it.
        """
        config = replace(
            config,
            slots=self.plan.slots,
            max_context=self._context(config),
        )
        wanted = {turn.lane for turn in self.remaining}
        opened = [
            (open_lane(self._target, order, config, report), order.drafter)
            for order in self.plan.lanes
            if order.info.name in wanted
        ]
        self._lanes = {lane.info.name: lane for lane, _ in opened}
        if self.costs is None:
            self.costs = measure_pass_costs(self._target, opened, report)
        for lane in self._lanes.values():
            self._warm_up(lane)

    def measure(self, turn: Turn, on_record: OnRecord) -> LevelResult:
        """Measure one level. An interrupt leaves it incomplete, with the records it has."""
        lane, arrival = self._lanes[turn.lane], turn.arrival
        jobs = self.plan.jobs(arrival)
        records: list[RequestRecord] = []
        times = None
        if arrival.rate is not None:
            seed = self.plan.settings.seed + turn.repeat
            times = arrival.times or arrival_times(len(jobs), arrival.rate, seed)
        started = time.time()
        lane.clock.reset()
        before = self._meter.read()

        def take(record: RequestRecord) -> None:
            records.append(record)
            on_record(record)

        is_over = False
        try:
            pace = Pace(arrival=arrival, times=times)
            run_requests(lane.built.engine, self._engine_jobs(jobs), pace, lane.clock, take)
            is_over = True
        finally:
            level = LevelResult(
                lane=turn.lane,
                repeat=turn.repeat,
                arrival=arrival,
                num_planned=len(jobs),
                num_distinct=len({job.prompt.id for job in jobs}),
                started=started,
                records=tuple(records),
                acceptance=engine_acceptance(records, lane),
                is_complete=is_over,
                step_time=lane.clock.time,
                energy_joules=self._meter.between(before, self._meter.read()),
            )
            self._keep(level)
        return level

    def prompt_ids(self, prompt_id: str) -> tuple[int, ...]:
        """The token ids of a prompt of the workload."""
        return self._ids[prompt_id]

    def _keep(self, level: LevelResult) -> None:
        """In place of an interrupted one of the same turn."""
        turn = (level.lane, level.arrival, level.repeat)
        self.levels = [lv for lv in self.levels if (lv.lane, lv.arrival, lv.repeat) != turn]
        self.levels.append(level)

    def _engine_jobs(self, jobs: Sequence[Job]) -> list[EngineJob]:
        settings = self.plan.settings
        return [engine_job(job, self._ids[job.prompt.id], settings) for job in jobs]

    def _warm_up(self, lane: OpenLane) -> None:
        """Answers that nobody counts, to another prompt, as many at a time as there will be."""
        if not self.plan.num_warm_ups:
            return
        prompts, settings = self.plan.workload.prompts, self.plan.settings
        settings = replace(settings, max_tokens=min(settings.max_tokens, WARM_UP_TOKENS))
        number = max(self.plan.num_warm_ups, self.plan.slots)
        jobs: list[EngineJob] = []
        for idx in range(number):
            prompt = warm_up_prompt(prompts, idx)
            ids = encode_bench_prompt(self._target, prompt, settings)
            params = replace(
                sampling_of(settings, prompt.asks, idx), max_new_tokens=settings.max_tokens
            )
            jobs.append(EngineJob(idx, prompt.id, "", ids, params))
        pace = Pace(arrival=Arrival(concurrency=self.plan.slots))
        run_requests(lane.built.engine, jobs, pace, lane.clock, lambda record: None)

    def _context(self, config: EngineConfig) -> int:
        """Room for the longest prompt and its answer, within what the target was made for."""
        if config.max_context is not None:
            return config.max_context
        every = [Job(number, prompt) for number, prompt in enumerate(self.plan.workload.prompts)]
        return room_for(self._engine_jobs(every), self._target.spec.max_context_len)


def engine_acceptance(records: Sequence[RequestRecord], lane: OpenLane) -> Acceptance:
    """Of one level, from the steps of its answers."""
    answered = [record for record in records if record.is_ok]
    steps = [step for record in answered for step in record.steps or ()]
    warnings = (lane.warning,) if lane.warning else ()
    failed = lane.clock.num_failed_drafts
    if failed:
        warnings += (f"the drafter failed in {failed} steps, which went on without drafts",)
    if not steps:
        reason = "no request was answered" if not answered else "no token was verified"
        return Acceptance((), reason, warnings)
    figures = step_figures(answered)
    accepted, drafted = sum(step.accepted for step in steps), sum(step.drafted for step in steps)
    source = SourceFigures(
        name=ENGINE,
        definition=DEFINITION,
        tau=figures.tau,
        tau_interval=figures.tau_interval,
        accepted=accepted,
        drafted=drafted,
        steps=len(steps),
        acceptance_rate=accepted / drafted if drafted else None,
        by_position=figures.by_position,
    )
    return Acceptance((source,), warnings=warnings)
