"""report.html: self-contained, escaped, the same each time, whatever part of a run there is."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import cast

import pytest
from sample_bench import (
    Document,
    figures_of,
    make_document,
    make_endpoint_document,
    parts,
)

from blockdraft.bench.latency import quantile
from blockdraft.bench.report import drawing, page
from blockdraft.bench.report.acceptance_sections import category_section
from blockdraft.bench.report.chart import Chart, Mark, Series, Tick, look_of
from blockdraft.bench.report.load_sections import latency_section
from blockdraft.bench.report.page import render_page, sections_of, write_page
from blockdraft.bench.report.reading import parse_document
from blockdraft.bench.report.section import looks_of
from blockdraft.errors import ConfigError

ATTACK = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'`&$x$"
VOID = ("meta", "link", "path", "circle", "rect", "use", "br")


class Tags(HTMLParser):
    """All tags with their attributes; those that are open at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def html_of(document: Document) -> str:
    return render_page(parse_document(document)).html


def tags_of(html: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return parser.found


@pytest.fixture(scope="module")
def whole() -> str:
    """With all its plots, drawn once."""
    return html_of(make_document())


def test_nothing_comes_from_outside(whole: str) -> None:
    for tag, attributes in tags_of(whole):
        assert tag not in ("script", "iframe", "object", "embed", "base", "img")
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
                assert value is not None and value.startswith(("#", "data:"))
            assert not name.startswith("on")
    assert not re.search(r"url\(\s*['\"]?(?!#)", whole)
    assert "@import" not in whole and "http://" not in whole and "https://" not in whole


@pytest.mark.slow
def test_the_same_document_gives_the_same_page(whole: str) -> None:
    assert html_of(make_document()) == whole


def test_a_page_is_small(whole: str) -> None:
    assert len(whole) < 400_000


def test_everything_is_there(whole: str) -> None:
    document = parse_document(make_document())
    keys = [section.key for section in sections_of(document)]
    assert keys == [
        *("speedup", "frontier", "sweep", "category", "histogram", "position", "draft-cost"),
        *("latency", "answer_position", "context_len", "shares", "quality"),
    ]
    for key in keys:
        assert f'id="{key}"' in whole
    assert whole.count('<li class="answer ') == 5
    assert whole.count('class="badge"') == 5
    assert "random weights: cost only" in whole
    assert "math-3 parts at token 41, top-two margin 0.012 (a near-tie)" in whole
    for condition in ("smollm2", "bfloat16", "Some CPU", "2.13.0", "0.31", "CC0-1.0", "--quick"):
        assert condition in whole
    assert ">break-even 1.42</text>" in whole


def test_every_plot_has_its_reading_its_table_and_its_units() -> None:
    for section in sections_of(parse_document(make_document())):
        assert section.reading.endswith("."), section.key
        if section.charts:
            assert section.table is not None and section.table.rows, section.key
        for chart in section.charts:
            assert chart.x_label and (chart.y_label or chart.y_ticks), chart.name
        if section.table is not None:
            for row in section.table.rows:
                assert len(row) == len(section.table.headings), section.key


def test_names_of_charts_are_unique() -> None:
    sections = sections_of(parse_document(make_document()))
    names = [chart.name for section in sections for chart in section.charts]
    assert len(set(names)) == len(names)


def test_a_lane_keeps_its_look() -> None:
    """Whichever lanes a run has measured so far, or a plot shows."""
    document = make_document()
    looks = looks_of(parse_document(document))
    assert len(set(looks.values())) == len(looks)
    for section in sections_of(parse_document(document)):
        for name, look in section.legend:
            assert looks.get(name, look) == look


@pytest.mark.usefixtures("no_plots")
def test_names_from_data_are_escaped() -> None:
    """An id, a name or a file of the user's is never markup."""
    document = make_document()
    for one in parts(document, "figures") + parts(document, "levels") + parts(document, "quality"):
        if one["lane"] == "dflash auto":
            one["lane"] = ATTACK
    lane = parts(document, "lanes")[-1]
    lane["name"] = lane["drafter"] = lane["note"] = ATTACK
    cast(Document, document["conditions"])["target"] = ATTACK
    cast(Document, document["conditions"])["command"] = ATTACK
    cast(Document, document["workload"])["source"] = ATTACK
    cast(Document, document["settings"])["template_args"] = {ATTACK: ATTACK}
    parts(document, "quality")[2]["divergences"] = [
        {"id": ATTACK, "position": 1, "margin": None, "near_tie": False}
    ]
    document["stack"] = [{"engine": ATTACK, "verdict": "problems", "findings": [ATTACK]}]
    for name in ("dflash fixed:4", "dflash fixed:8"):
        groups = cast(Document, figures_of(document, name, 1)["groups"])
        parts(groups, "category")[0]["name"] = ATTACK
    costs = cast(Document, document["costs"])
    parts(costs, "draft")[0]["name"] = ATTACK
    level = parts(document, "levels")[0]
    requests = cast(Document, level["requests"])
    requests["failures"] = [{"kind": ATTACK, "count": 1, "id": ATTACK, "message": ATTACK}]
    cast(Document, level["acceptance"])["warnings"] = [ATTACK]
    html = html_of(document)
    for tag, attributes in tags_of(html):
        assert tag not in ("script", "img")
        assert "onerror" not in attributes
    assert "alert(1)" in html and "<script" not in html and "<img" not in html


def test_letters_that_the_measuring_font_lacks_are_kept() -> None:
    raw = make_document((1,), ("plain", "dflash auto"))
    groups = cast(Document, figures_of(raw, "dflash auto", 1)["groups"])
    parts(groups, "category")[0]["name"] = "\u7ffb\u8bd1\n\x07"
    section = category_section(parse_document(raw))
    assert section is not None
    assert ">\u7ffb\u8bd1<" in drawing.draw_svg(section.charts[0])


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize("has_baseline", [True, False])
def test_of_an_endpoint(has_baseline: bool) -> None:
    html = html_of(make_endpoint_document(has_baseline=has_baseline))
    tags_of(html)
    assert html.count('<li class="answer ') == 5
    assert ('id="speedup"' in html) is has_baseline
    assert "smollm2 at http:" in html and "(vllm engine)" in html


@pytest.mark.usefixtures("no_plots")
def test_a_part_of_a_run() -> None:
    document = make_document((1,), ("plain", "dflash auto"))
    document["complete"] = False
    level = parts(document, "levels")[1]
    level["complete"] = False
    cast(Document, level["requests"]).update(
        answered=3,
        failed=1,
        failures=[{"kind": "timeout", "count": 1, "id": "a", "message": "no answer in 600 s"}],
    )
    html = html_of(document)
    assert "part of a run" in html
    assert "broken off at 3 of 20 requests" in html
    assert "1 x timeout: a: no answer in 600 s" in html
    assert "1 request failed." in html


@pytest.mark.usefixtures("no_plots")
def test_a_busy_machine_is_told(whole: str) -> None:
    """P01: times of a machine that had other work are not to be trusted."""
    assert "The machine was busy" not in whole
    document = make_document()
    document.update(figures=[])
    cast(Document, document["conditions"]).update(load_average=2.5)
    assert "The machine was busy when this began (load 2.5 on 2 cores)" in html_of(document)


@pytest.mark.usefixtures("no_plots")
def test_nothing_but_a_header() -> None:
    document = make_document()
    names = ("levels", "figures", "quality", "lanes")
    document |= {name: [] for name in names} | {"costs": None, "stack": None, "complete": False}
    html = html_of(document)
    tags_of(html)
    assert html.count('<li class="answer unknown">') == 5


def test_without_matplotlib_the_tables_stand_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(chart: Chart) -> str:
        raise ConfigError("matplotlib can't be imported; pip install 'blockdraft[bench]'")

    monkeypatch.setattr(page, "draw_svg", refuse)
    made = render_page(parse_document(make_document()))
    assert "blockdraft[bench]" in made.missing
    assert "No plots:" in made.html and "<details>" not in made.html
    assert made.html.count("<table>") == 12


@pytest.mark.usefixtures("no_plots")
def test_writing(tmp_path: Path) -> None:
    raw = make_endpoint_document(has_baseline=False)
    raw.update(figures=[])
    document = parse_document(raw)
    path = tmp_path / "new" / "report.html"
    assert write_page(path, document) == ""
    assert path.read_text() == render_page(document).html
    assert [one.name for one in path.parent.iterdir()] == ["report.html"]
    with pytest.raises(ConfigError, match="can't write"):
        write_page(path / "below", document)


def test_a_drawing_takes_its_colors_from_the_page() -> None:
    look = look_of(2, is_plain=False)
    chart = Chart(
        name="one",
        x_label="x",
        y_label="y <b>",
        series=[Series(look=look, x=[1, 2], y=[1, 2], y_ranges=[(1, 1), (1.5, 2.5)])],
    )
    svg = drawing.draw_svg(chart)
    assert svg == drawing.draw_svg(chart)
    assert "var(--lane-3)" in svg and "var(--ink)" in svg
    assert "y &lt;b&gt;" in svg and "<metadata" not in svg and "<style" not in svg
    assert set(re.findall(r"#[0-9a-f]{6}\b", svg)) <= {"#1f77b4", "#000000", "#ffffff"}


def test_words_of_a_drawing_are_escaped() -> None:
    chart = Chart(
        name="one",
        title="<img>&",
        x_label="<img>&",
        y_label="<img>&",
        series=[Series(look=look_of(0, is_plain=False), x=[1], y=[1], labels=["<img>&"])],
        y_ticks=[Tick(1, "<img>&")],
        upright=[Mark(1.0, "<img>&")],
    )
    svg = drawing.draw_svg(chart)
    assert "img" not in {tag for tag, _ in tags_of(svg)}
    assert svg.count("&lt;img&gt;&amp;") == 6


def test_a_distribution_holds_every_answer() -> None:
    """Curves are the empirical distribution, from 0 to all, and pass through the median."""
    document = parse_document(make_document((1, 8), ("plain", "dflash auto")))
    section = latency_section(document)
    assert section is not None
    assert [chart.title for chart in section.charts] == [
        f"{name}, {load} at once"
        for load in (1, 8)
        for name in ("First token", "Token to token", "Whole answer")
    ]
    curve, marks = section.charts[0].series[:2]
    taken = sorted(1000 * (times.first_token or 0) for times in document.levels[0].times)
    assert list(curve.x) == pytest.approx([taken[0], *taken])
    assert list(curve.y) == pytest.approx([n / 20 for n in range(21)])
    assert list(marks.x) == pytest.approx([quantile(taken, 0.5), quantile(taken, 0.9)])


def test_a_distribution_of_many_answers_is_thinned() -> None:
    raw = make_document((1,), ("plain",))
    (level,) = parts(raw, "levels")
    level["records"] = parts(level, "records") * 200
    section = latency_section(parse_document(raw))
    assert section is not None
    curve = section.charts[0].series[0]
    assert 200 <= len(curve.x) <= 210 and curve.y[-1] == 1
    assert curve.x[-1] == max(curve.x)
