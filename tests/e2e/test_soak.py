"""The soak of the benchmarks: a short form with the slow tests, half an hour as a soak."""

from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("xgrammar")
pytest.importorskip("httpx")

from serve_soak import run
from soak_run import Load

if not Path("/proc/self/statm").exists():
    pytest.skip("memory and files of a process are read from /proc", allow_module_level=True)


@pytest.mark.slow
def test_mixed_load_leaves_nothing_wrong_and_nothing_behind() -> None:
    report = run(Load(seconds=12.0, clients=8, seed=1), num_known=12)
    assert report.complaints == []
    assert report.statuses["answered"] > 0 and report.num_compared > 0


@pytest.mark.soak
def test_half_an_hour_of_mixed_load() -> None:
    report = run(Load(seconds=1800.0), num_known=48)
    assert report.complaints == []
    kinds = {"answered", "refused", "overloaded", "left"}
    assert kinds <= set(report.statuses) and report.num_compared > 100
