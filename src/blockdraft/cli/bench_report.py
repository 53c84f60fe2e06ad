"""A bench as tables for people.

It computes nothing: figures are the package `bench`'s, and their JSON is `bench/results.py`.
"""

from rich.table import Table

from blockdraft.bench import Bench, Level, SourceFigures, Spread, speed_of
from blockdraft.cli.console import say
from blockdraft.cli.render import figure
from blockdraft.cli.tables import new_table, open_console

NOT_TOLD = "n/a"


def print_bench(bench: Bench) -> None:
    """Tables to stdout; what is odd about them to stderr."""
    levels = [level for level in bench.levels if level.records]
    console = open_console(stderr=False)
    for table in (speed_table(levels), latency_table(levels), acceptance_table(levels)):
        console.print(table)
    for line in remarks(bench):
        say(line)


def speed_table(levels: list[Level]) -> Table:
    headings = ("answered", "failed", "tokens", "seconds", "tok/s\ntotal", "tok/s a user\np50")
    table = new_table("throughput", "load", (*headings, "min"))
    for level in levels:
        speed = speed_of(level.records)
        user = speed.tokens_per_second_per_user
        counted = [r.usage.completion for r in level.records if r.is_ok]
        known = [num for num in counted if num is not None]
        table.add_row(
            level.arrival.title,
            str(len(counted)),
            str(level.num_failed),
            str(sum(known)) if known and len(known) == len(counted) else NOT_TOLD,
            figure(speed.seconds),
            _told(speed.tokens_per_second),
            _told(None if user is None else user.p50),
            _told(None if user is None else user.min),
        )
    return table


def latency_table(levels: list[Level]) -> Table:
    table = new_table("latency in ms", "load", ("what", "mean", "p50", "p90", "p99"))
    for level in levels:
        speed = speed_of(level.records)
        rows: tuple[tuple[str, Spread | None], ...] = (
            ("first token", speed.first_token),
            ("a token to the next", speed.inter_token),
            ("a chunk to the next", speed.chunk_gap),
            ("whole answer", speed.end_to_end),
        )
        for number, (name, spread) in enumerate(rows):
            figures = (None,) * 4 if spread is None else (spread.mean, *spread[3:6])
            cells = [_told(None if value is None else 1000 * value) for value in figures]
            table.add_row("" if number else level.arrival.title, name, *cells)
    return table


def acceptance_table(levels: list[Level]) -> Table:
    """One row a source; below, what each one's tau is."""
    headings = ("tau", "95% interval", "accepted", "drafted", "steps", "rate")
    table = new_table("acceptance", "load, source", headings)
    used: dict[str, SourceFigures] = {}
    for level in levels:
        acceptance = level.acceptance
        table.add_row(level.arrival.title, "" if acceptance.sources else NOT_TOLD)
        for source in acceptance.sources:
            used.setdefault(source.name, source)
            table.add_row(*_source_cells(source))
    lines = [f"{source.name}: tau is {source.definition}" for source in used.values()]
    lines += [
        f"accepted at draft 1, 2, .. ({level.arrival.title}): "
        + " ".join(figure(rate) for rate in best.by_position)
        for level in levels
        if (best := level.acceptance.best) is not None and best.by_position
    ]
    table.caption = "\n".join(lines)
    return table


def remarks(bench: Bench) -> list[str]:
    """Why a figure is missing or to be taken with care; each once, first ones first."""
    found: list[str] = []
    for level in bench.levels:
        acceptance = level.acceptance
        if acceptance.reason:
            found.append(f"tau is n/a: {acceptance.reason}")
        found += [f"warning: {text}" for text in acceptance.warnings]
        for record in level.records:
            if record.failure is not None:
                found.append(f"{record.failure.kind}: {record.id}: {record.failure.message}")
        answered = [record for record in level.records if record.is_ok]
        if any(record.usage.completion is None for record in answered):
            found.append("tok/s is n/a: the endpoint counts no tokens (usage) in its answers")
        if answered and all(record.first_s is None for record in answered):
            found.append("first token is n/a: the endpoint does not stream")
        if level.num_planned > level.num_distinct:
            found.append(
                f"{level.arrival.title}: {level.num_planned} requests of {level.num_distinct} "
                "prompts; an engine that caches prefixes answers a repeated prompt sooner"
            )
    return list(dict.fromkeys(found))


def _source_cells(source: SourceFigures) -> list[str]:
    interval, rate = source.tau_interval, source.acceptance_rate
    counts = (source.accepted, source.drafted, source.steps)
    return [
        f"  {source.name.removeprefix('metrics.')}",
        _told(source.tau, 3),
        "" if interval is None else f"{interval.low:.2f} to {interval.high:.2f}",
        *("" if count is None else str(count) for count in counts),
        "" if rate is None else figure(rate),
    ]


def _told(value: float | None, digits: int = 1) -> str:
    return NOT_TOLD if value is None else f"{value:.{digits}f}"
