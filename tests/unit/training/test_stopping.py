"""Signals: a flag for the first, the old ways for the second; real processes that are killed."""

import os
import runpy
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from blockdraft.training.run.checkpoints import Checkpoints
from blockdraft.training.run.stopping import StopRequest

WORKER = Path(__file__).with_name("stopping_worker.py")
ENDLESS = 10**9


def start(folder: Path, num_steps: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WORKER), str(folder), str(num_steps)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def wait_for_step(process: subprocess.Popen[str], step: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= step:
            return
    raise AssertionError("the worker ended by itself")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_only_sets_the_flag(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopRequest() as stop:
        assert not stop.requested and stop.signal_name is None
        os.kill(os.getpid(), number)
        assert stop.requested and stop.signal_name == number.name
    assert signal.getsignal(number) is before


def test_the_second_signal_acts_as_it_did_before() -> None:
    with pytest.raises(KeyboardInterrupt), StopRequest():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


def test_handlers_are_put_back_after_an_error() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ValueError, match="broken"), StopRequest():
        raise ValueError("broken")
    assert signal.getsignal(signal.SIGTERM) is before


def test_outside_of_the_main_thread_it_never_asks() -> None:
    asked: list[bool] = []

    def enter() -> None:
        with StopRequest() as stop:
            asked.append(stop.requested)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert asked == [False]


@pytest.mark.slow
def test_sigkill_loses_at_most_one_interval_and_sigterm_saves_and_exits_with_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with start(folder, ENDLESS) as process:
        wait_for_step(process, 23)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    latest = Checkpoints(folder).load_latest()
    assert latest is not None and latest.progress.step >= 20

    with start(folder, ENDLESS) as process:
        wait_for_step(process, latest.progress.step + 7)
        process.terminate()
        assert process.stdout is not None
        last = process.stdout.read().splitlines()[-1]
    assert process.returncode == 0
    stopped = Checkpoints(folder).load_latest()
    assert stopped is not None
    assert last == f"stopped by SIGTERM at {stopped.progress.step}"
    assert not list(folder.glob(".*"))

    straight = tmp_path / "straight"
    monkeypatch.setattr(sys, "argv", [str(WORKER), str(straight), str(stopped.progress.step)])
    runpy.run_path(str(WORKER), run_name="__main__")
    reference = Checkpoints(straight).load(stopped.progress.step)
    for name, tensor in reference.model.items():
        assert tensor.equal(stopped.model[name]), name
