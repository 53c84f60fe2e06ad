"""Whether an engine is there: programs on the PATH, modules of its Python, environments."""

import os
import sys
from pathlib import Path

import pytest

from blockdraft.errors import ConfigError
from blockdraft.launch import LaunchPlan, engine_environment, found_device, locate
from blockdraft.launch.order import Requirement


def plan(program: str, module: str | None) -> LaunchPlan:
    return LaunchPlan(
        engine="fake",
        program=(program, "serve"),
        arguments=(),
        needs=Requirement(program=program, module=module, install="pip install fake>=2"),
        host="127.0.0.1",
        port=8000,
        block_size=8,
    )


def executable(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_a_program_of_the_named_environment_comes_first(tmp_path: Path) -> None:
    there = executable(tmp_path / "venv" / "bin" / "fake")
    executable(tmp_path / "other" / "fake")
    environ = engine_environment(tmp_path / "venv", {"PATH": str(tmp_path / "other"), "A": "b"})
    assert environ["A"] == "b" and environ["VIRTUAL_ENV"] == str(tmp_path / "venv")
    assert locate(plan("fake", None), environ).command == (there, "serve")


def test_a_missing_program_says_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fake is not on the PATH: pip install fake>=2; --venv"):
        locate(plan("fake", None), {"PATH": str(tmp_path)})


def test_a_module_is_looked_for_in_the_engines_python() -> None:
    environ = {**os.environ, "PATH": str(Path(sys.executable).parent)}
    assert locate(plan("python", "json"), environ).program[0].endswith("python")
    with pytest.raises(ConfigError, match=r"has no module not_there_: pip install fake>=2"):
        locate(plan("python", "not_there_"), environ)


def test_without_any_python_on_the_path_ours_is_taken(tmp_path: Path) -> None:
    found = locate(plan("python", "json"), {**os.environ, "PATH": str(tmp_path)})
    assert found.program == (sys.executable, "serve")


def test_of_a_named_environment_only_what_is_in_it_counts(tmp_path: Path) -> None:
    """Another Python, on the PATH or ours, is not a substitute that goes unsaid."""
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    executable(tmp_path / "other" / "fake")
    environ = engine_environment(venv, {"PATH": f"{tmp_path / 'other'}:{os.environ['PATH']}"})
    for program in ("fake", "python"):
        with pytest.raises(ConfigError, match=rf"--venv .*venv has no {program} in its folder bin"):
            locate(plan(program, None), environ, venv)
    (venv / "bin" / "python3").symlink_to(sys.executable)
    found = locate(plan("python", "json"), environ, venv).program[0]
    assert found == str(venv / "bin" / "python3")
    with pytest.raises(ConfigError, match=r"--venv .* has no module not_there_: there, pip"):
        locate(plan("python", "not_there_"), environ, venv)


def test_a_folder_that_is_no_environment(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no virtual environment"):
        engine_environment(tmp_path, {})
    assert engine_environment(None, {"A": "b"}) == {"A": "b"}


def test_a_device_is_found() -> None:
    assert found_device() in ("cuda", "cpu")
