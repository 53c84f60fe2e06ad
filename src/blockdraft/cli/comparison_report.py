"""What `blockdraft report` does: write the page of a run, or say how two runs differ.

It compares nothing itself; that is `bench/report/comparing.py`.
"""

from pathlib import Path

from rich.table import Table

from blockdraft.bench.report.answers import answer_questions
from blockdraft.bench.report.comparing import MEASURES, Comparison, Row, compare_runs, worst_first
from blockdraft.bench.report.page import FILE_NAME, write_page
from blockdraft.bench.report.reading import read_results
from blockdraft.cli.bench_report import answers_text
from blockdraft.cli.console import emit, emit_json, say
from blockdraft.cli.tables import new_table, open_console

MARKS = {"better": "*", "worse": "!", "same": " ", "not comparable": "~"}
HEADINGS = {
    "first token s": "first\ntoken",
    "inter-token s": "next\ntoken",
    "end to end s": "whole",
}
DIGITS = {"tau": 2, "speed-up": 2, "tok/s": 1}


def report_file(path: Path, out: Path | None, *, as_json: bool) -> int:
    document = read_results(path)
    folder = path if path.is_dir() else path.parent
    page = folder / FILE_NAME if out is None else out
    missing = write_page(page, document)
    if missing:
        say(f"note: the page has no plots: {missing}")
    if not document.is_complete:
        say("note: the run was not measured to its end; answers are of what there is")
    say(f"the page is {page}")
    if as_json:
        answers = [answer.to_json() for answer in answer_questions(document)]
        emit_json({"page": str(page), "complete": document.is_complete, "answers": answers}, 2)
    else:
        emit(answers_text(document), end="")
    return 0


def compare_files(before: Path, after: Path, *, fails: bool, as_json: bool) -> int:
    comparison = compare_runs(read_results(before), read_results(after))
    for warning in comparison.warnings:
        say(f"warning: {warning}")
    for line in comparison.missing:
        say(f"note: {line}")
    if as_json:
        emit_json(comparison.to_json(), indent=2)
    else:
        open_console(stderr=False).print(comparison_table(comparison))
        emit(summary(comparison))
    return int(fails and bool(comparison.regressions))


def comparison_table(comparison: Comparison) -> Table:
    """Changes in percent, one row for a lane under a load."""
    found_of = {row.measure for row in comparison.rows}
    measures = [measure for measure in MEASURES if measure in found_of]
    headings = [HEADINGS.get(measure, measure) for measure in measures]
    table = new_table("change from before to after", "lane, load", headings)
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for row in comparison.rows:
        change = f"{100 * (row.ratio - 1):+.1f}%{MARKS[row.change]}"
        cells.setdefault((row.lane, row.load), {})[row.measure] = change
    last = ""
    for (lane, load), found in cells.items():
        if lane != last:
            table.add_row(lane)
        table.add_row(f"  {load}", *(found.get(measure, "") for measure in measures))
        last = lane
    table.caption = "! worse and * better beyond the noise; ~ not comparable"
    return table


def summary(comparison: Comparison) -> str:
    """Regressions and improvements, the largest first."""
    lines: list[str] = []
    for word, rows in (
        ("regression", comparison.regressions),
        ("improvement", comparison.improvements),
    ):
        lines.append(f"{len(rows)} {word}{'' if len(rows) == 1 else 's'}")
        lines += [
            f"  {row.lane}, {row.load}: {_measure(row)} {_told(row, row.before)} -> "
            f"{_told(row, row.after)} ({100 * (row.ratio - 1):+.1f}%)"
            for row in worst_first(rows)
        ]
    return "\n".join(lines)


def _is_time(row: Row) -> bool:
    return row.measure.endswith(" s")


def _measure(row: Row) -> str:
    return f"{row.measure.removesuffix(' s')} ms" if _is_time(row) else row.measure


def _told(row: Row, value: float) -> str:
    return f"{1000 * value:.1f}" if _is_time(row) else f"{value:.{DIGITS[row.measure]}f}"
