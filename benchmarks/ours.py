"""Blockdraft's own side of the benchmarks: engines over one loaded target, timed like the peers.

It chooses no prompts and prints nothing.
"""

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from blockdraft.api import load_drafter, load_target
from blockdraft.decoding import AcceptanceStats, Commit, Drafter, NoDrafter, SamplingParams
from blockdraft.drafter import BlockDrafter, DFlashDrafter, DrafterConfig
from blockdraft.engine import BuiltEngine, EngineConfig, Failed, build_engine, parse_width
from blockdraft.native import NativeTarget, PackedDrafter


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: ids (stop token included), seconds from submission to last token, counts.

    `accepted` are the drafts that each verification added to the answer, in order.
    """

    token_ids: tuple[int, ...]
    seconds: float
    stats: AcceptanceStats
    accepted: tuple[int, ...]


def load_native(target: str, dtype: str, quantize: str | None = None) -> NativeTarget:
    """The native target; ValueError when it runs on another engine."""
    assert quantize in (None, "int8", "int4")
    loaded = load_target(target, engine="native", dtype=dtype, quantize=quantize)
    assert isinstance(loaded, NativeTarget)
    return loaded


def random_drafter(target: NativeTarget, block_size: int) -> Drafter:
    """Random weights in the built-in drafter's shape: it costs alike and accepts nothing."""
    built_in = load_drafter("smollm2", target)
    assert isinstance(built_in, PackedDrafter)
    config: DrafterConfig = replace(built_in.config, block_size=block_size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BlockDrafter(config).to(target.dtype).eval().requires_grad_(False)
    return PackedDrafter(DFlashDrafter(model, target), clock=time.perf_counter)


def make_engine(
    target: NativeTarget, drafter: Drafter | None, width: str, slots: int = 1
) -> BuiltEngine:
    """An engine of `slots` slots; `drafter` None decodes plainly. No prefix is reused."""
    config = EngineConfig(slots=slots, width=parse_width(width), reuse_prefixes=False)
    return build_engine(target, drafter or NoDrafter(), config)


def answer(built: BuiltEngine, ids: Sequence[int], max_new_tokens: int) -> Answer:
    """One greedy answer, alone."""
    started = time.perf_counter()
    done = run_all(built, [ids], max_new_tokens)
    seconds = time.perf_counter() - started
    return Answer(
        token_ids=tuple(i for commit in done[0] for i in commit.ids),
        seconds=seconds,
        stats=done[0][-1].stats,
        accepted=tuple(commit.num_accepted for commit in done[0][1:]),
    )


def run_all(
    built: BuiltEngine,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    *,
    ignore_eos: bool = False,
) -> list[list[Commit]]:
    """Greedy answers to all prompts, as many at a time as there are slots."""
    params = SamplingParams(max_new_tokens=max_new_tokens, ignore_eos=ignore_eos)
    keys = [built.engine.submit(ids, params) for ids in prompts]
    commits: dict[int, list[Commit]] = {key: [] for key in keys}
    while built.engine.has_work:
        for event in built.engine.step():
            if isinstance(event.outcome, Failed):
                raise event.outcome.error
            commits[event.key].append(event.outcome)
    return [commits[key] for key in keys]


def peak_memory_bytes() -> int:
    """The largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
