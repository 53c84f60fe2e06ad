"""What the set-up script decides: which build of torch, when there is work to do, when to refuse.

Nothing is installed here; `.ci/run` does that for real.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import setup_env


def touch_stamp(venv: Path, level: str, stamp: str) -> None:
    (venv / "bin").mkdir(parents=True, exist_ok=True)
    (venv / "bin" / "python").touch()
    (venv / f".ready-{level}").write_text(stamp)


def test_without_a_gpu_every_cpu_build_is_tried_before_the_cuda_build() -> None:
    attempts = setup_env.torch_attempts("2.13.0", "Linux", has_gpu=False)
    assert [attempt.pip_args[0] for attempt in attempts] == [
        "torch==2.13.0+cpu",
        "torch==2.13.0+cpu",
        "torch==2.13.0",
    ]
    assert setup_env.CPU_INDEX not in attempts[0].pip_args
    assert setup_env.CPU_INDEX in attempts[1].pip_args
    assert attempts[2].download_mb == setup_env.TORCH_CUDA_MB


def test_an_unreachable_index_is_given_up_soon() -> None:
    for attempt in setup_env.torch_attempts("2.13.0", "Linux", has_gpu=False)[:2]:
        assert "--timeout" in attempt.pip_args and "--retries" in attempt.pip_args


@pytest.mark.parametrize(("system", "has_gpu"), [("Linux", True), ("Darwin", False)])
def test_elsewhere_the_plain_build_is_taken(system: str, has_gpu: bool) -> None:
    (attempt,) = setup_env.torch_attempts("2.13.0", system, has_gpu)
    assert attempt.pip_args == ("torch==2.13.0",)


def test_torch_is_pinned_once_and_read_from_the_pins() -> None:
    text = setup_env.CONSTRAINTS.read_text()
    assert setup_env.pinned_version(text, "torch") == "2.13.0"
    with pytest.raises(SystemExit, match="does not pin"):
        setup_env.pinned_version(text, "no-such-package")


@pytest.mark.parametrize("done", setup_env.LEVELS)
def test_a_level_is_ready_when_one_that_holds_it_is(tmp_path: Path, done: str) -> None:
    touch_stamp(tmp_path, done, "now")
    for level in setup_env.LEVELS:
        holds = setup_env.LEVELS.index(done) >= setup_env.LEVELS.index(level)
        assert setup_env.is_ready(tmp_path, level, "now") == holds
        assert not setup_env.is_ready(tmp_path, level, "later")


def test_an_environment_without_its_python_is_not_ready(tmp_path: Path) -> None:
    touch_stamp(tmp_path, "dev", "now")
    (tmp_path / "bin" / "python").unlink()
    assert not setup_env.is_ready(tmp_path, "dev", "now")


def test_download_is_told_for_what_is_missing(tmp_path: Path) -> None:
    sizes = setup_env.DOWNLOAD_MB
    assert setup_env.missing_mb(tmp_path, "test") == sizes["runtime"] + sizes["test"]
    touch_stamp(tmp_path, "runtime", "any")
    assert setup_env.missing_mb(tmp_path, "dev") == sizes["test"] + sizes["dev"]
    assert setup_env.missing_mb(tmp_path, "runtime") == 0


def test_nothing_is_done_twice(tmp_path: Path) -> None:
    touch_stamp(tmp_path, "dev", setup_env.fingerprint())
    before = sorted(tmp_path.iterdir())
    setup_env.set_up(tmp_path, "test", wheel=None)
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_is_no_environment_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(SystemExit, match="not a virtual environment"):
        setup_env.create_venv(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_a_python_without_venv_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_nothing(name: str) -> None:
        return None

    monkeypatch.setattr(setup_env.importlib.util, "find_spec", find_nothing)
    with pytest.raises(SystemExit, match="apt-get install python3-venv"):
        setup_env.create_venv(tmp_path / "venv")


FAKE_PIP = """\
import json, sys
args = sys.argv[3:]
log = {log!r}
with open(log, "a") as file:
    file.write(json.dumps(args) + chr(10))
plain = "torch==2.13.0" in args
sys.stderr.write({stderr!r})
sys.exit(0 if plain and {plain_works} else 1)
"""


def fake_python(venv: Path, stderr: str, *, plain_works: bool) -> Path:
    """An environment whose `python -m pip` records its arguments and fails with `stderr`."""
    log = venv / "log"
    script = venv / "pip.py"
    (venv / "bin").mkdir(parents=True)
    script.write_text(FAKE_PIP.format(log=str(log), stderr=stderr, plain_works=plain_works))
    python = venv / "bin" / "python"
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit 1\nexec {sys.executable} {script} "$@"\n')
    python.chmod(0o755)
    return log


def test_the_cuda_build_is_the_last_resort_and_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup_env, "has_nvidia_gpu", bool)
    monkeypatch.setattr(setup_env.platform, "system", lambda: "Linux")
    log = fake_python(tmp_path, "ERROR: No matching distribution found\n", plain_works=True)
    setup_env.install_torch(tmp_path, "2.13.0")
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(calls) == 3 and "torch==2.13.0" in calls[-1]
    assert "WARNING: no CPU build" in capfd.readouterr().err


def test_a_broken_download_does_not_end_in_the_cuda_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup_env, "has_nvidia_gpu", bool)
    monkeypatch.setattr(setup_env.platform, "system", lambda: "Linux")
    log = fake_python(tmp_path, "ERROR: Read timed out\n", plain_works=True)
    with pytest.raises(SystemExit, match="could not install torch"):
        setup_env.install_torch(tmp_path, "2.13.0")
    assert len(log.read_text().splitlines()) == 1
    assert "Read timed out" in capfd.readouterr().err


def test_the_script_runs_on_the_standard_library_alone() -> None:
    script = Path(setup_env.__file__)
    run = subprocess.run(
        [sys.executable, "-I", "-S", str(script), "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0 and "--venv" in run.stdout
