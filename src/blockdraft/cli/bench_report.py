"""A document of a bench as words and tables for people: the answers first.

It computes nothing: figures are the package `bench`'s, answers those of `bench/report`.
"""

from collections.abc import Iterator, Mapping, Sequence
from textwrap import fill

from rich.table import Table

from blockdraft.bench.latency import Spread
from blockdraft.bench.report.answers import answer_questions
from blockdraft.bench.report.conditions import busy_remark
from blockdraft.bench.report.document import BenchDocument, Level, Load, Source
from blockdraft.bench.report.evidence import speedup_of
from blockdraft.bench.report.reading import parse_document
from blockdraft.cli.console import emit
from blockdraft.cli.render import figure
from blockdraft.cli.tables import new_table, open_console

NOT_TOLD = "n/a"
VERDICT_WIDTH = 9
TEXT_WIDTH = 96


def print_bench(document: Mapping[str, object]) -> None:
    """Answers and tables to stdout, of a document of version 2. Raises ConfigError for others."""
    print_document(parse_document(dict(document)))


def print_document(document: BenchDocument) -> None:
    emit(answers_text(document))
    if remark := busy_remark(document):
        emit(f"{remark}\n")
    console = open_console(stderr=False)
    for table in (
        throughput_table(document),
        latency_table(document),
        acceptance_table(document),
        sources_table(document),
    ):
        if table.row_count:
            console.print(table)
    # Not as captions, which are only as wide as their table.
    for line in (*position_lines(document), *source_lines(document)):
        emit(line)


def answers_text(document: BenchDocument) -> str:
    """Each question with its verdict, the sentence below; ends with an empty line."""
    lines: list[str] = []
    indent = " " * VERDICT_WIDTH
    for answer in answer_questions(document):
        lines.append(f"{answer.reply.verdict:<{VERDICT_WIDTH}}{answer.question}. {answer.title}")
        lines.append(
            fill(
                answer.reply.sentence,
                width=TEXT_WIDTH,
                initial_indent=indent,
                subsequent_indent=indent,
                break_on_hyphens=False,
                break_long_words=False,
            )
        )
    return "\n".join(lines) + "\n"


def throughput_table(document: BenchDocument) -> Table:
    headings = ("answered", "tok/s\ntotal", "a user\np50", "min", "speed-up", "range")
    table = new_table("throughput", "lane, load", headings)
    for lane, load in _rows(document, table):
        levels = [one for one in document.levels if one.lane == lane and one.load == load]
        figures = document.find(lane, load)
        user = None if figures is None else figures.user_tokens_per_second
        gain = speedup_of(document, figures)
        known = document.lane(lane)
        is_plain = known is not None and known.is_plain
        table.add_row(
            f"  {load.title}",
            _answered(levels),
            _told(None if figures is None else figures.tokens_per_second),
            _told(None if user is None else user.p50),
            _told(None if user is None else user.min),
            "" if is_plain else _told(None if gain is None else gain.value, 2),
            "" if is_plain or gain is None else f"{gain.low:.2f} to {gain.high:.2f}",
        )
    return table


def latency_table(document: BenchDocument) -> Table:
    """Medians and 90th percentiles."""
    headings = ("first\np50", "p90", "next\np50", "p90", "whole\np50", "p90", "p99")
    table = new_table("latency in ms: first token, next token, whole", "lane, load", headings)
    for lane, load in _rows(document, table):
        figures = document.find(lane, load)
        if figures is not None:
            whole = figures.end_to_end
            table.add_row(
                f"  {load.title}",
                *_two(figures.first_token),
                *_two(figures.inter_token),
                *_two(whole),
                _told(None if whole is None else 1000 * whole.p99),
            )
    return table


def acceptance_table(document: BenchDocument) -> Table:
    """By lane and load, of lanes that may draft."""
    headings = ("tau", "95% interval", "draft share", "the rest")
    table = new_table("acceptance", "lane, load", headings)
    for lane, load in _rows(document, table, only_drafted=True):
        figures = document.find(lane, load)
        if figures is None:
            continue
        interval = figures.tau_interval
        table.add_row(
            f"  {load.title}",
            _told(figures.tau, 2),
            "" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}",
            _share(figures.draft_share),
            _share(figures.other_share),
        )
    return table


def position_lines(document: BenchDocument) -> list[str]:
    """Acceptance by position of each lane that drafts in process, at the lightest load."""
    if document.is_endpoint or not document.loads:
        return []
    load = document.loads[0]
    found = [document.find(lane.name, load) for lane in document.lanes if not lane.is_plain]
    return [
        f"accepted at draft 1, 2, .. ({figures.lane}, {load.title}): "
        + " ".join(f"{rate:.2f}" for rate in figures.by_position)
        for figures in found
        if figures is not None and figures.by_position
    ]


def sources_table(document: BenchDocument) -> Table:
    """What an endpoint's answers and metrics tell, one row a source."""
    headings = ("tau", "95% interval", "accepted", "drafted", "steps", "rate")
    table = new_table("acceptance by source", "load, source", headings)
    for level in document.levels if document.is_endpoint else ():
        if level.sources:
            table.add_row(_level_title(document, level))
        for source in level.sources:
            table.add_row(*_source_cells(source))
    return table


def source_lines(document: BenchDocument) -> list[str]:
    """What each source's tau is, once; then acceptance by position of each level."""
    levels = document.levels if document.is_endpoint else ()
    told = [f"{one.name}: tau is {one.definition}" for level in levels for one in level.sources]
    for level in levels:
        best = next((one for one in level.sources if one.by_position), None)
        if best is not None:
            rates = " ".join(figure(rate) for rate in best.by_position)
            told.append(f"accepted at draft 1, 2, .. ({level.load.title}): {rates}")
    return list(dict.fromkeys(told))


def _rows(
    document: BenchDocument, table: Table, *, only_drafted: bool = False
) -> Iterator[tuple[str, Load]]:
    """Every lane under every load that was begun, lanes in the order of the document.

    A row with the lane's name goes into `table` before its first load.
    """
    found = {(one.lane, one.load) for one in (*document.figures, *document.levels)}
    loads = sorted({load for _, load in found}, key=lambda load: load.amount)
    for lane in document.lanes:
        own = [load for load in loads if (lane.name, load) in found]
        if own and not (only_drafted and lane.is_plain):
            table.add_row(lane.name)
            for load in own:
                yield lane.name, load


def _answered(levels: Sequence[Level]) -> str:
    """With the number that failed, where some did."""
    answered, failed = sum(one.answered or 0 for one in levels), sum(one.failed for one in levels)
    return f"{answered}, {failed} failed" if failed else str(answered)


def _level_title(document: BenchDocument, level: Level) -> str:
    return level.load.title if len(document.lanes) == 1 else f"{level.lane}, {level.load.title}"


def _source_cells(source: Source) -> list[str]:
    interval, rate = source.tau_interval, source.acceptance_rate
    counts = (source.accepted, source.drafted, source.steps)
    return [
        f"  {source.name.removeprefix('metrics.')}",
        _told(source.tau, 3),
        "" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}",
        *("" if count is None else str(count) for count in counts),
        "" if rate is None else figure(rate),
    ]


def _two(spread: Spread | None) -> tuple[str, str]:
    if spread is None:
        return NOT_TOLD, NOT_TOLD
    return _told(1000 * spread.p50), _told(1000 * spread.p90)


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f}%"


def _told(value: float | None, digits: int = 1) -> str:
    return NOT_TOLD if value is None else f"{value:.{digits}f}"
