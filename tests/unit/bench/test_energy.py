from pathlib import Path

import pytest

from blockdraft.bench.in_process.energy import find_meter


def zone(folder: Path, name: str, label: str, energy: int, most: int = 1_000_000_000) -> Path:
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    (path / "name").write_text(f"{label}\n")
    (path / "energy_uj").write_text(f"{energy}\n")
    (path / "max_energy_range_uj").write_text(f"{most}\n")
    return path


def test_packages_are_added_up_and_counters_wrap(tmp_path: Path) -> None:
    first = zone(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    second = zone(tmp_path, "intel-rapl:1", "package-1", 999_000_000)
    zone(tmp_path, "intel-rapl:0:0", "core", 1)
    meter = find_meter("cpu", tmp_path)
    assert meter.source == "rapl" and meter.reason is None
    before = meter.read()
    (first / "energy_uj").write_text("8000000\n")
    (second / "energy_uj").write_text("1000000\n")
    assert meter.between(before, meter.read()) == pytest.approx(3 + 2)


def test_what_is_not_there_has_its_reason(tmp_path: Path) -> None:
    meter = find_meter("cpu", tmp_path)
    assert meter.source is None and "no RAPL counter" in (meter.reason or "")
    assert meter.between(meter.read(), meter.read()) is None
    broken = zone(tmp_path, "intel-rapl:0", "package-0", 1)
    (broken / "energy_uj").write_text("")
    meter = find_meter("cpu", tmp_path)
    assert meter.source is None and "can't be read" in (meter.reason or "")
