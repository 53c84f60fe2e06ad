"""Joules that the machine says it used: RAPL counters of the processor, NVML's of a GPU.

Only what is readable without rights of its own; where nothing is, the reason is kept.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

POWERCAP = Path("/sys/class/powercap")
MICRO, MILLI = 1e-6, 1e-3


class EnergyMeter(Protocol):
    """Counts up while the machine works."""

    @property
    def source(self) -> Literal["rapl", "nvml"] | None: ...

    @property
    def reason(self) -> str | None:
        """Why there is no source."""
        ...

    def read(self) -> Mapping[str, float]:
        """Joules of each part so far; empty where none is known."""
        ...

    def between(self, before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
        """Joules of all parts between two readings."""
        ...


class NoMeter(NamedTuple):
    """Of a machine that does not tell."""

    reason: str | None
    source: Literal["rapl", "nvml"] | None = None

    def read(self) -> Mapping[str, float]:
        return {}

    def between(self, before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
        return None


class RaplMeter:
    """Intel's and AMD's counters of whole processor packages, through the kernel's powercap."""

    source: Literal["rapl", "nvml"] | None = "rapl"
    reason: str | None = None

    def __init__(self, packages: Mapping[str, Path]) -> None:
        self._packages = packages
        self._ranges = {
            name: int((path / "max_energy_range_uj").read_text()) * MICRO
            for name, path in packages.items()
        }

    def read(self) -> Mapping[str, float]:
        return {
            name: int((path / "energy_uj").read_text()) * MICRO
            for name, path in self._packages.items()
        }

    def between(self, before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
        # A counter that went back has wrapped around at its range.
        return sum(
            after[name] - before[name] + (self._ranges[name] if after[name] < before[name] else 0)
            for name in self._packages
        )


class NvmlMeter:
    """A GPU's own count since its driver was loaded."""

    source: Literal["rapl", "nvml"] | None = "nvml"
    reason: str | None = None

    def __init__(self, total_millijoules: Callable[[], int]) -> None:
        self._total = total_millijoules

    def read(self) -> Mapping[str, float]:
        return {"gpu": self._total() * MILLI}

    def between(self, before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
        return after["gpu"] - before["gpu"]


def find_meter(device: str, powercap: Path = POWERCAP) -> EnergyMeter:
    """What counts the energy of `device`; a NoMeter with the reason where nothing does."""
    return _nvml(device) if device.startswith("cuda") else _rapl(powercap)


def _rapl(powercap: Path) -> EnergyMeter:
    packages: dict[str, Path] = {}
    try:
        for zone in sorted(powercap.glob("*-rapl:*")):
            name = (zone / "name").read_text().strip()
            if name.startswith("package"):
                packages[f"{zone.name} {name}"] = zone
        if not packages:
            return NoMeter(f"no RAPL counter of a processor package under {powercap}")
        meter = RaplMeter(packages)
        meter.read()
    except (OSError, ValueError) as error:
        return NoMeter(f"the RAPL counters under {powercap} can't be read: {error}")
    return meter


def _nvml(device: str) -> EnergyMeter:
    if find_spec("pynvml") is None:
        return NoMeter("the package pynvml, which asks the GPU, is not installed")
    number = int(device.partition(":")[2] or 0)
    nvml = import_module("pynvml")
    try:
        nvml.nvmlInit()
        handle: object = nvml.nvmlDeviceGetHandleByIndex(number)

        def total() -> int:
            return int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))

        total()
    except Exception as error:  # noqa: BLE001  its errors are of a class that is known at run time
        return NoMeter(f"NVML does not tell the energy of {device}: {error}")
    return NvmlMeter(total)
