"""Whether an engine is there to be started, and which program of which environment that is.

It starts an engine's Python once to ask it for a module; it imports nothing of an engine itself.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from blockdraft.errors import ConfigError
from blockdraft.launch.order import Device, LaunchPlan

FIND_MODULE = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
FIND_SECONDS = 60.0
VENV_HINT = "--venv DIR names the environment it is in"
GPU_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Of NVIDIA's and AMD's drivers, and of the one in WSL."""


def found_device() -> Device:
    """`cuda` where this machine has the driver of a GPU, else `cpu`."""
    return "cuda" if any(os.path.exists(path) for path in GPU_FILES) else "cpu"


def engine_environment(venv: Path | None, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables an engine is started with; `venv`'s programs come first."""
    variables = dict(environ)
    if venv is not None:
        folder = venv / "bin"
        if not folder.is_dir():
            raise ConfigError(f"--venv {venv} is no virtual environment: it has no folder bin")
        variables["PATH"] = f"{folder.absolute()}{os.pathsep}{variables.get('PATH', os.defpath)}"
        variables["VIRTUAL_ENV"] = str(venv.absolute())
    return variables


def locate(plan: LaunchPlan, environ: Mapping[str, str], venv: Path | None = None) -> LaunchPlan:
    """`plan` with the full path of its program. Raises ConfigError where it is not installed.

    With `venv` only what is installed there counts.
    """
    needs = plan.needs
    if venv is not None:
        program = _program_of(venv, needs.program)
        if program is None:
            raise ConfigError(
                f"--venv {venv} has no {needs.program} in its folder bin: there, {needs.install}"
            )
        if needs.module is not None and not _has_module(program, needs.module, environ):
            raise ConfigError(f"--venv {venv} has no module {needs.module}: there, {needs.install}")
        return replace(plan, program=(program, *plan.program[1:]))
    program = shutil.which(needs.program, path=environ.get("PATH"))
    if program is None and needs.program == "python":
        program = sys.executable
    if program is None:
        raise ConfigError(f"{needs.program} is not on the PATH: {needs.install}; {VENV_HINT}")
    if needs.module is not None and not _has_module(program, needs.module, environ):
        raise ConfigError(f"{program} has no module {needs.module}: {needs.install}; {VENV_HINT}")
    return replace(plan, program=(program, *plan.program[1:]))


def _program_of(venv: Path, name: str) -> str | None:
    """The program in the environment's own folder; a Python may be there as `python3` only."""
    folder = str((venv / "bin").absolute())
    names = ("python", "python3") if name == "python" else (name,)
    found = (shutil.which(each, path=folder) for each in names)
    return next((path for path in found if path is not None), None)


def _has_module(python: str, module: str, environ: Mapping[str, str]) -> bool:
    asked = subprocess.run(
        [python, "-c", FIND_MODULE, module],
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=FIND_SECONDS,
        check=False,
    )
    return asked.returncode == 0
