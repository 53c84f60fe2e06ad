"""`build_dashboard`: the Grafana dashboard that `dashboard.json` holds, ready to import.

A pure value; whoever changes it writes the file anew (`dashboard_text`), which a test checks.
"""

import json
from pathlib import Path

from blockdraft.serving.metrics.panels import ROWS, Panel

DASHBOARD_FILE = Path(__file__).with_name("dashboard.json")

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24

Json = dict[str, object]


def build_dashboard() -> Json:
    """The dashboard as Grafana imports it; it asks for the data source and the model."""
    return {
        "uid": "blockdraft-serve",
        "title": "Blockdraft serve",
        "tags": ["blockdraft", "llm"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": _laid_out(),
    }


def dashboard_text() -> str:
    """The exact content of `dashboard.json`."""
    return json.dumps(build_dashboard(), indent=1) + "\n"


def _variables() -> list[Json]:
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "model_name",
            "label": "Model",
            "type": "query",
            "datasource": DATASOURCE,
            "query": "label_values(vllm:num_requests_running, model_name)",
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        },
    ]


def _laid_out() -> list[Json]:
    """Panels from left to right and top to bottom, with a heading over each row."""
    placed: list[Json] = []
    y = 0
    for title, panels in ROWS:
        placed.append(
            {
                "id": len(placed) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
            }
        )
        x, y, height = 0, y + 1, 0
        for panel in panels:
            if x + panel.width > WIDTH:
                x, y, height = 0, y + height, 0
            placed.append(_panel(panel, len(placed) + 1, x, y))
            x, height = x + panel.width, max(height, panel.height)
        y += height
    return placed


def _panel(panel: Panel, number: int, x: int, y: int) -> Json:
    targets: list[Json] = [
        {
            "refId": chr(ord("A") + i),
            "datasource": DATASOURCE,
            "expr": query.expr,
            "legendFormat": query.legend,
        }
        for i, query in enumerate(panel.queries)
    ]
    options: Json = {}
    if panel.kind == "stat":
        names = any("{{" in query.legend for query in panel.queries)
        options = {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "name" if names else "value",
            "graphMode": "none" if names else "area",
        }
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": DATASOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": options,
        "targets": targets,
    }
