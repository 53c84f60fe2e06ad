"""Blockdraft and its peers on the same prompts, one request at a time, in turn within each round.

Every system answers a prompt before any goes on to the next, so that all meet the same machine.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import ours
from blockdraft.engine import BuiltEngine
from peers import Peer, PeerError
from prompts import TokenPrompt


@dataclass(frozen=True, slots=True)
class Run:
    """One answer of one system."""

    token_ids: tuple[int, ...]
    seconds: float
    steps: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One system over all prompts; None where the system doesn't tell.

    `tokens_per_second` is total tokens over total seconds, a prompt's seconds being the median of
    its repeats. `same` counts answers equal to the baseline's.
    """

    system: str
    tokens_per_second: float
    ms_per_step: float | None
    tau: float | None
    same: int
    peak_memory_bytes: int | None
    spread: float
    """Median over prompts of (slowest - fastest repeat) / median."""


System = Callable[[Sequence[int], int], Run]


def our_system(built: BuiltEngine) -> System:
    def run(ids: Sequence[int], max_new_tokens: int) -> Run:
        answer = ours.answer(built, ids, max_new_tokens)
        return Run(answer.token_ids, answer.seconds, answer.stats.steps)

    return run


def peer_system(peer: Peer, stop_ids: Sequence[int], memory: dict[str, int], name: str) -> System:
    def run(ids: Sequence[int], max_new_tokens: int) -> Run:
        result = peer.run(ids, max_new_tokens, stop_ids)
        memory[name] = result.peak_memory_bytes
        return Run(tuple(result.token_ids), result.seconds, result.steps)

    return run


def compare(
    systems: Mapping[str, System],
    prompts: Sequence[TokenPrompt],
    *,
    max_new_tokens: int,
    repeats: int,
    baseline: str,
    memory: Mapping[str, int],
    say: Callable[[str], None],
) -> tuple[list[Row], dict[str, str]]:
    """A row a system that answered everything, and why the others did not."""
    runs: dict[str, dict[int, list[Run]]] = {name: {} for name in systems}
    failed: dict[str, str] = {}
    for place, prompt in enumerate(prompts):
        for repeat in range(repeats + (place == 0)):
            for name, system in systems.items():
                if name in failed:
                    continue
                try:
                    run = system(prompt.ids, max_new_tokens)
                except PeerError as error:
                    failed[name] = str(error)
                    continue
                if place == 0 and repeat == 0:
                    continue  # the very first answer of each system warms it up
                runs[name].setdefault(place, []).append(run)
        say(f"{place + 1} of {len(prompts)} prompts")
    rows = [
        _row(name, runs[name], runs[baseline], memory.get(name))
        for name in systems
        if name not in failed
    ]
    return rows, failed


def _row(
    name: str,
    runs: Mapping[int, Sequence[Run]],
    baseline: Mapping[int, Sequence[Run]],
    peak_memory_bytes: int | None,
) -> Row:
    seconds = {place: median(run.seconds for run in repeats) for place, repeats in runs.items()}
    tokens = sum(len(repeats[0].token_ids) for repeats in runs.values())
    steps = [repeats[0].steps for repeats in runs.values()]
    known = [count for count in steps if count is not None]
    num_steps = sum(known) if len(known) == len(steps) else None
    spreads = [
        (max(r.seconds for r in repeats) - min(r.seconds for r in repeats)) / seconds[place]
        for place, repeats in runs.items()
    ]
    total = sum(seconds.values())
    return Row(
        system=name,
        tokens_per_second=tokens / total,
        ms_per_step=None if not num_steps else total / num_steps * 1e3,
        tau=None if not num_steps else (tokens - len(runs)) / num_steps,
        same=sum(
            repeats[0].token_ids == baseline[place][0].token_ids for place, repeats in runs.items()
        ),
        peak_memory_bytes=peak_memory_bytes,
        spread=median(spreads),
    )
