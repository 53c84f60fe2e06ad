"""report.html: one file that holds everything it shows, for any browser, offline.

It decides nothing: answers are `answers.py`, plots and tables are the sections. Everything that
comes from data is escaped here.
"""

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from blockdraft.bench.report.acceptance_sections import (
    category_section,
    histogram_section,
    position_section,
    stretch_sections,
)
from blockdraft.bench.report.answers import Answer, answer_questions
from blockdraft.bench.report.chart import Look
from blockdraft.bench.report.check_sections import quality_section, share_section, trouble_section
from blockdraft.bench.report.conditions import busy_remark, condition_lines, headline_of
from blockdraft.bench.report.cost_sections import draft_cost_section, sweep_section
from blockdraft.bench.report.document import BenchDocument
from blockdraft.bench.report.drawing import draw_svg
from blockdraft.bench.report.load_sections import (
    frontier_section,
    latency_section,
    speedup_section,
)
from blockdraft.bench.report.section import Section, Table
from blockdraft.data.durable import new_file
from blockdraft.errors import ConfigError

FILE_NAME = "report.html"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
SHAPES: Mapping[str, str] = {
    "o": '<circle cx="14" cy="7" r="3.6"/>',
    "s": '<rect x="10.5" y="3.5" width="7" height="7"/>',
    "^": '<path d="M14 2.6 18.2 10.4H9.8z"/>',
    "D": '<path d="M14 2 19 7 14 12 9 7z"/>',
    "v": '<path d="M14 11.4 18.2 3.6H9.8z"/>',
    "P": '<path d="M12.4 2.5h3.2v2.9h2.9v3.2h-2.9v2.9h-3.2V8.6H9.5V5.4h2.9z"/>',
    "X": '<path d="M10 3.5 11.5 2 14 4.8 16.5 2 18 3.5 15.4 7 18 10.5 16.5 12 14 9.2 11.5 12 10 '
    '10.5 12.6 7z"/>',
}


class Page(NamedTuple):
    """`missing` says why there are no plots in it; empty where there are."""

    html: str
    missing: str


def write_page(path: Path, document: BenchDocument) -> str:
    """Write the page, whole or not at all; gives why it has no plots, or nothing.

    Raises ConfigError where it can't be written.
    """
    page = render_page(document)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as unfinished:
            unfinished.write_text(page.html, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"can't write {path}: {error.strerror}") from error
    return page.missing


def render_page(document: BenchDocument) -> Page:
    """The same text for the same document. Without matplotlib, tables stand open instead."""
    sections = sections_of(document)
    missing = ""
    try:
        pictures = {s.key: [draw_svg(chart) for chart in s.charts] for s in sections}
    except ConfigError as error:
        pictures, missing = {}, str(error)
    answers = answer_questions(document)
    title = headline_of(document)
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<link rel="icon" href="data:,">',
        f"<title>{escape(title)}: Blockdraft bench</title>",
        f"<style>\n{_style()}</style>",
        "</head>",
        "<body>",
        "<main>",
        _header(document, title),
        _answers(answers),
        *_remarks(busy_remark(document)),
        _conditions(document),
        *_remarks(f"No plots: {missing}." if missing else ""),
        '<div class="sections">',
        *(_section(section, pictures.get(section.key, [])) for section in sections),
        "</div>",
        _decided(answers),
        "</main>",
        "</body>",
        "</html>",
    ]
    return Page("\n".join(parts) + "\n", missing)


def sections_of(document: BenchDocument) -> list[Section]:
    """Those that the document has figures for, in the order of the page."""
    found = [
        speedup_section(document),
        frontier_section(document),
        sweep_section(document),
        category_section(document),
        histogram_section(document),
        position_section(document),
        draft_cost_section(document),
        latency_section(document),
        *stretch_sections(document),
        share_section(document),
        quality_section(document),
        trouble_section(document),
    ]
    return [section for section in found if section is not None]


def _style() -> str:
    return files("blockdraft.bench.report").joinpath("page/style.css").read_text(encoding="utf-8")


def _header(document: BenchDocument, title: str) -> str:
    part = "" if document.is_complete else ' <span class="part">part of a run</span>'
    return (
        f'<header><h1>Does drafting pay here?{part}</h1><p class="pair">{escape(title)}</p>'
        "</header>"
    )


def _answers(answers: Sequence[Answer]) -> str:
    items = [
        f'<li class="answer {answer.reply.verdict}">'
        f'<span class="badge">{answer.reply.verdict}</span>'
        f"<h2>{answer.question}. {escape(answer.title)}</h2>"
        f'<span class="figure">{escape(answer.reply.headline)}</span>'
        f"<p>{_code_spans(answer.reply.sentence)}</p></li>"
        for answer in answers
    ]
    return '<ol class="answers">\n' + "\n".join(items) + "\n</ol>"


def _remarks(text: str) -> list[str]:
    return [f'<p class="remark">{escape(text)}</p>'] if text else []


def _decided(answers: Sequence[Answer]) -> str:
    rows = [
        f"<dt>{escape(answer.title)}</dt><dd>{_code_spans(answer.reply.detail)}</dd>"
        for answer in answers
        if answer.reply.detail
    ]
    return (
        '<section class="decided"><h2>How the answers were decided</h2><dl>\n'
        + "\n".join(rows)
        + "\n</dl><p>An answer is mixed where the range of its figure holds the line that decides."
        "</p></section>"
    )


def _conditions(document: BenchDocument) -> str:
    rows = [
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in condition_lines(document)
    ]
    return (
        '<section class="conditions"><h2>Measured under</h2><dl>\n'
        + "\n".join(rows)
        + "\n</dl></section>"
    )


def _section(section: Section, pictures: Sequence[str]) -> str:
    wide = " wide" if len(section.charts) > 1 else ""
    parts = [
        f'<section class="card{wide}" id="{section.key}">',
        f"<h2>{escape(section.title)}</h2>",
        f'<p class="reading">{_code_spans(section.reading)}</p>',
    ]
    if pictures and section.legend:
        items = [f"<li>{_swatch(look)}{escape(name)}</li>" for name, look in section.legend]
        parts.append(f'<ul class="legend">{"".join(items)}</ul>')
    if pictures:
        figures = "".join(f"<figure>{picture}</figure>" for picture in pictures)
        parts.append(f'<div class="plots">{figures}</div>')
    if section.notes:
        notes = "".join(f"<li>{escape(note)}</li>" for note in section.notes)
        parts.append(f'<ul class="notes">{notes}</ul>')
    if section.table is not None:
        table = _table(section.table)
        parts.append(f"<details><summary>Figures</summary>{table}</details>" if pictures else table)
    return "\n".join([*parts, "</section>"])


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in table.headings)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n"
        for row in table.rows
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody>'
        "</table></div>"
    )


def _swatch(look: Look) -> str:
    dash = ' stroke-dasharray="4 2"' if look.is_dashed else ""
    color = f"var(--lane-{look.color})"
    return (
        f'<svg class="swatch" viewBox="0 0 28 14" style="color: {color}" aria-hidden="true">'
        f'<path d="M0 7H28" stroke="currentColor" stroke-width="2"{dash}/>'
        f'<g fill="currentColor">{SHAPES[look.marker]}</g></svg>'
    )


def _code_spans(text: str) -> str:
    """Escaped, with what stands in back quotes as code where they come in pairs."""
    pieces = escape(text).split("`")
    if len(pieces) % 2 == 0:
        return escape(text)
    return "".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))
