"""`blockdraft bench --quick` on the built-in pair: whole, lossless and consistent with itself.

How fast anything is depends on the machine and is not asserted.
"""

import json
from pathlib import Path
from typing import cast

import pytest

from blockdraft.bench.report.reading import read_results
from blockdraft.cli.main import main

pytestmark = pytest.mark.acceptance

Document = dict[str, object]


def test_quick(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    # A part of what --quick measures by itself, which takes almost three minutes.
    load = ["--concurrency", "1", "4", "--max-tokens", "16"]
    assert main(["bench", "--quick", *load, "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert "dflash auto" in shown.out
    document = read_results(out)
    assert document.is_complete and document.preset == "quick"
    assert len(document.levels) == 15 and not any(level.failed for level in document.levels)
    assert all(one.compared == one.identical or one.divergences for one in document.quality)
    for one in document.quality:
        assert all(divergence.near_tie for divergence in one.divergences)
    for figures in document.figures:
        assert figures.tau is not None and figures.speedup is not None
        if figures.lane == "plain":
            assert figures.tau == 1 and figures.speedup == 1
        if figures.lane == "dflash fixed:8":
            assert figures.tau > 1.3 and figures.tau_interval is not None
    whole = cast(Document, json.loads((out / "results.json").read_text()))
    answers = cast("list[Document]", whole["answers"])
    assert all(answer["verdict"] != "unknown" for answer in answers)
    assert (out / "report.html").stat().st_size > 10_000
