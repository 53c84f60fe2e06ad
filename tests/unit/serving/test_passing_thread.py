"""A call on a thread of its own: results, errors, interrupts, and the workers it leaves behind."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from blockdraft.errors import ConfigError
from blockdraft.serving.passing_thread import in_passing_thread


def test_what_the_call_returns_and_its_thread_is_gone() -> None:
    thread = in_passing_thread(threading.current_thread)
    assert thread is not threading.current_thread() and not thread.is_alive()


def test_what_the_call_raises() -> None:
    def fail() -> None:
        raise ConfigError("no such model")

    with pytest.raises(ConfigError, match="no such model"):
        in_passing_thread(fail)


SIGNALED = """
import os, signal, sys, threading, time
from blockdraft.serving.passing_thread import in_passing_thread

def end(number, frame):
    raise SystemExit(128 + number)

signal.signal(signal.SIGTERM, end)

def load():
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
    try:
        if sys.argv[1] == "steps":
            while True:
                time.sleep(0.05)
        time.sleep(60)
    finally:
        open(sys.argv[2], "w").write("cleaned up")

try:
    in_passing_thread(load, let_go_seconds=2)
finally:
    sys.stderr.write("the caller cleans up too")
"""


@pytest.mark.parametrize("kind", ["steps", "stuck"])
def test_a_signal_ends_the_call_in_order_and_at_worst_the_process(
    kind: str, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    began = time.monotonic()
    command = [sys.executable, "-c", SIGNALED, kind, str(trace)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 143
    assert time.monotonic() - began < 40
    in_order = kind == "steps"
    assert trace.exists() == in_order
    assert ended.stderr == ("the caller cleans up too" if in_order else "")


WORKERS = """
import os, sys, threading, time
import torch
from blockdraft.serving.passing_thread import in_passing_thread

torch.set_num_threads(2)

def count():
    return len(os.listdir("/proc/self/task"))

def compute():
    matrix = torch.ones(600, 600)
    for _ in range(20):
        torch.sin(matrix @ matrix)

def on_a_thread():
    compute()
    time.sleep(0.5)  # workers that were told to end do so by themselves
    counts.append(count())

counts = []
(in_passing_thread if sys.argv[1] == "passing" else lambda call: call())(compute)
thread = threading.Thread(target=on_a_thread)
thread.start()
thread.join()
print(counts[0])
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
def test_no_workers_of_loading_are_left_beside_those_of_the_engine() -> None:
    """Two sets of OpenMP workers on two cores cost a third of the speed."""
    counts: dict[str, int] = {}
    for kind in ("passing", "staying"):
        command = [sys.executable, "-c", WORKERS, kind]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        counts[kind] = int(printed)
    assert counts["passing"] == counts["staying"] - 1
