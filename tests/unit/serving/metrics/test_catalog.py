"""The list of metrics, its page in docs/ and the dashboard agree with each other.

What the registry really exposes is compared with the list in test_registry.py.
"""

import json
import re
from pathlib import Path
from typing import cast

from blockdraft.serving.metrics import CATALOG, DASHBOARD_FILE, catalog_table
from blockdraft.serving.metrics.dashboard import build_dashboard, dashboard_text
from blockdraft.serving.metrics.panels import ROWS

ROOT = Path(__file__).resolve().parents[4]
NAME = re.compile(r"\b(?:vllm|blockdraft):\w+")
EXPOSED = {
    name
    for info in CATALOG
    for name in (
        [info.exposed_name]
        if info.kind != "histogram"
        else [info.name, *(f"{info.name}_{part}" for part in ("bucket", "sum", "count"))]
    )
}


def test_names_are_unique_and_follow_the_rules() -> None:
    names = [info.name for info in CATALOG]
    assert len(set(names)) == len(names)
    for info in CATALOG:
        assert NAME.fullmatch(info.name) and info.help.endswith(".") and "|" not in info.help
        assert (info.kind == "histogram") == bool(info.buckets)
        assert list(info.buckets) == sorted(set(info.buckets))
        if info.kind == "counter":
            assert not info.name.endswith("_total")


def test_the_document_lists_every_metric_and_no_other() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    assert catalog_table() in text, "put catalog_table() into docs/metrics.md"
    assert set(NAME.findall(text)) <= EXPOSED


def test_the_dashboard_file_is_what_the_code_builds() -> None:
    assert DASHBOARD_FILE.read_text() == dashboard_text(), "write dashboard_text() to the file"


def test_the_dashboard_asks_for_metrics_that_exist_and_shows_them_all() -> None:
    queries = [q.expr for _, panels in ROWS for panel in panels for q in panel.queries]
    asked = {name for expr in queries for name in NAME.findall(expr)}
    assert asked <= EXPOSED
    shown = {name.removesuffix("_bucket") for name in asked}
    gauges_elsewhere = {"blockdraft:acceptance_length"}  # shown as the rate of its counters
    assert {info.exposed_name for info in CATALOG} - shown == gauges_elsewhere
    assert all(expr.count("(") == expr.count(")") for expr in queries)


def test_panels_neither_overlap_nor_stick_out() -> None:
    panels = cast("list[dict[str, object]]", build_dashboard()["panels"])
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = cast("dict[str, int]", panel["gridPos"])
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken and max(x for x, _ in cells) < 24
        taken |= cells


def test_the_dashboard_is_plain_json_without_a_fixed_data_source() -> None:
    text = DASHBOARD_FILE.read_text()
    assert json.loads(text)["title"] == "Blockdraft serve"
    assert text.isascii() and "${datasource}" in text
