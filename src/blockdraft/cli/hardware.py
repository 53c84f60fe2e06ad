"""What machine and what software a figure was measured on, in words.

It measures nothing.
"""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import torch


class Hardware(NamedTuple):
    """One line on the machine, one on the software."""

    machine: str
    software: str


def describe_hardware(device: str) -> Hardware:
    """The processor (or GPU, for a CUDA `device`) and the versions that decide speed."""
    machine = f"{_cpu_name()}, {_num_cores()} cores"
    if device.startswith("cuda"):
        machine = f"{torch.cuda.get_device_name(device)}; {machine}"
    packages = ", ".join(f"{name} {_version(name)}" for name in ("torch", "transformers"))
    software = (
        f"blockdraft {_version('blockdraft')}, {packages}, Python {platform.python_version()}"
    )
    return Hardware(machine, software)


def busy_text() -> str | None:
    """A warning when other programs keep the processor busy just now; None when it is idle."""
    if not hasattr(os, "getloadavg"):
        return None
    load, num_cores = os.getloadavg()[0], _num_cores()
    if load < num_cores:
        return None
    return f"the machine is busy (load {load:.1f} on {num_cores} cores): times will be unreliable"


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"
