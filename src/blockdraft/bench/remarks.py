"""What is odd about the levels of a bench, in one line each.

It prints nothing; figures are `figures.py`.
"""

from collections.abc import Sequence

from blockdraft.bench.levels import LevelResult


def remarks(levels: Sequence[LevelResult]) -> list[str]:
    """Why a figure is missing or to be taken with care; each once, first ones first."""
    found: list[str] = []
    for level in levels:
        acceptance = level.acceptance
        if acceptance.reason and level.lane != "plain":
            found.append(f"tau is n/a: {acceptance.reason}")
        if level.lane == "plain" and any(
            s.accepted or (s.tau or 1) > 1 for s in acceptance.sources
        ):
            found.append("warning: the baseline drafts too, so speed-ups are too small")
        found += [f"warning: {text}" for text in acceptance.warnings]
        for record in level.records:
            if record.failure is not None:
                found.append(f"{record.failure.kind}: {record.id}: {record.failure.message}")
        found += _missing(level)
        if level.num_planned > level.num_distinct:
            found.append(
                f"{level.arrival.title}: {level.num_planned} requests of {level.num_distinct} "
                "prompts; an engine that caches prefixes answers a repeated prompt sooner"
            )
    return list(dict.fromkeys(found))


def _missing(level: LevelResult) -> list[str]:
    found: list[str] = []
    if any(record.usage.completion is None for record in level.answered):
        found.append("tok/s is n/a: the endpoint counts no tokens (usage) in its answers")
    if level.answered and all(record.first_s is None for record in level.answered):
        found.append("first token is n/a: the endpoint does not stream")
    return found
