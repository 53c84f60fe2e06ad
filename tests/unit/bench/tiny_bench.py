"""Tiny benches for the tests here: a random target, prompts of ids and drafters that are known."""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from blockdraft.bench import Asks, BenchPrompt, RequestSettings, Workload
from blockdraft.bench.config import Arrival
from blockdraft.bench.in_process import BenchPlan, DrafterChoice, InProcessBench, choose_lanes
from blockdraft.bench.in_process.energy import NoMeter
from blockdraft.decoding import Drafter
from blockdraft.engine import EngineConfig, WidthMode
from blockdraft.target import HFTarget
from blockdraft.testing import OracleDrafter, ScriptedTarget

FIXED = (WidthMode("fixed", 4),)
CONFIG = EngineConfig(kv_memory=4_000_000)


@cache
def remembered(target: HFTarget) -> ScriptedTarget:
    """The target's own words, each asked for once: an oracle asks for them in many passes."""

    @cache
    def logits_of(prefix: tuple[int, ...]) -> Tensor:
        return target.open().prefill(torch.tensor(prefix)).logits[-1].double()

    return ScriptedTarget(logits_of, target.spec.vocab_size)


def oracle(target: HFTarget, *, num_right: int | None = None) -> OracleDrafter:
    """Blocks of 4 whose first `num_right` drafts are right (all by default)."""
    return OracleDrafter(remembered(target), 4, num_right=num_right)


def workload(num_prompts: int = 3, *, lengths: Sequence[int] = (5, 9, 12)) -> Workload:
    prompts = [
        BenchPrompt(
            where=f"line {number + 1}",
            id=f"p{number}",
            category="odd" if number % 2 else "even",
            content=tuple(5 + (7 * number + k) % 80 for k in range(lengths[number % len(lengths)])),
            asks=Asks(),
        )
        for number in range(num_prompts)
    ]
    return Workload(source="made up", sha256="0", license=None, prompts=tuple(prompts))


def plan(
    drafter: Drafter,
    *,
    widths: Sequence[WidthMode] = FIXED,
    arrivals: Sequence[Arrival] = (Arrival(concurrency=1),),
    repeats: Sequence[int] = (1,),
    settings: RequestSettings | None = None,
    prompts: Workload | None = None,
) -> BenchPlan:
    return BenchPlan(
        lanes=choose_lanes([DrafterChoice("made", drafter)], widths),
        arrivals=arrivals,
        repeats=repeats,
        workload=prompts or workload(),
        settings=settings or RequestSettings(max_tokens=13, ignore_eos=True),
        num_warm_ups=0,
    )


def run_all(target: HFTarget, order: BenchPlan) -> InProcessBench:
    bench = InProcessBench(target, order, NoMeter("none here"))
    bench.open(CONFIG)
    for turn in bench.remaining:
        bench.measure(turn, lambda record: None)
    return bench
