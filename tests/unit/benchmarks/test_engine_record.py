"""Tests of the record of other engines' runs: whole at any time, replaced by name."""

import json
from pathlib import Path

import pytest

from engine_record import NAME, Recorder, summary


def test_records_stay_and_are_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = Recorder(tmp_path / "out")
    first.keep("a", {"tau": 1.5})
    first.keep("b", {"error": "no"})
    assert first.num_errors == 1
    again = Recorder(tmp_path / "out")
    again.keep("b", {"tau": 2.0})
    document = json.loads((tmp_path / "out" / NAME).read_text(encoding="utf-8"))
    assert document["a"] == {"tau": 1.5}
    assert document["b"] == {"tau": 2.0}
    assert "torch" in document["machine"]["software"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == [NAME]
    assert "b: tau 2.00" in capsys.readouterr().err


def test_summary_shows_the_main_figures() -> None:
    assert summary({"tau": 1.234, "same_as_own_plain": 5, "seconds": 3.0}) == (
        "tau 1.23, same_as_own_plain 5"
    )
    assert summary({}) == "recorded"
