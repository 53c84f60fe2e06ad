"""The loop around an engine's process, with a fake engine: a small HTTP server that misbehaves."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from blockdraft.errors import ConfigError, EngineFault
from blockdraft.launch import LaunchPlan, RunOrder, run_plan
from blockdraft.launch.order import PlannedFile, Requirement
from blockdraft.launch.running import is_healthy

FAKE = """
import http.server, json, os, signal, subprocess, sys, threading, time

port, wait, code, mode = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
print("loading with", os.environ.get("FROM_PLAN"), "and", os.environ.get("FROM_USER"), flush=True)
began = time.monotonic()

def say_and_leave(signum, frame):
    print("got", signal.Signals(signum).name, flush=True)
    if mode != "stubborn":
        os._exit(code)

signal.signal(signal.SIGTERM, say_and_leave)
signal.signal(signal.SIGINT, say_and_leave)
if mode == "dies":
    time.sleep(wait)
    print("ValueError: no such model", file=sys.stderr, flush=True)
    sys.exit(code)
if mode == "child":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    print("child", child.pid, flush=True)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ready = mode != "sick" and time.monotonic() - began >= wait
        body = b"{}"
        if self.path == "/v1/models" and mode != "nameless":
            body = json.dumps({"data": [{"id": "the model"}]}).encode()
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass

server = http.server.HTTPServer(("127.0.0.1", port), Handler)
if mode == "ends":
    threading.Timer(wait + 1.0, os._exit, (code,)).start()
server.serve_forever()
"""

Stop = Callable[[], None]


class Told:
    """What a run said, and a chance to act when it is ready."""

    def __init__(self, at_ready: Stop | None = None) -> None:
        self.lines: list[str] = []
        self.ready: list[tuple[str, str]] = []
        self._at_ready = at_ready

    def on_ready(self, url: str, model: str) -> None:
        self.ready.append((url, model))
        if self._at_ready is not None:
            self._at_ready()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def fake_plan(mode: str, *, wait: float = 0.0, code: int = 0) -> LaunchPlan:
    port = free_port()
    return LaunchPlan(
        engine="fake",
        program=(sys.executable, "fake.py"),
        arguments=(str(port), str(wait), str(code), mode),
        needs=Requirement(program="python", module=None, install="nothing"),
        host="127.0.0.1",
        port=port,
        block_size=8,
        env=(("FROM_PLAN", "plan"), ("FROM_USER", "plan")),
        files=(PlannedFile(name="fake.py", text=FAKE),),
    )


def run(
    plan: LaunchPlan,
    told: Told,
    *,
    timeout: float = 30.0,
    grace: float = 10.0,
    folder: Path | None = None,
) -> int:
    environ = {**os.environ, "FROM_USER": "user"}
    return run_plan(
        plan,
        RunOrder(
            environ=environ,
            timeout=timeout,
            grace=grace,
            on_line=told.lines.append,
            on_ready=told.on_ready,
            folder=folder,
        ),
    )


def send(signum: int) -> Stop:
    return lambda: os.kill(os.getpid(), signum)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("code", [0, 7])
def test_ready_then_a_signal_is_handed_on(signum: signal.Signals, code: int) -> None:
    """The exit code is the engine's own."""
    told = Told(send(signum))
    plan = fake_plan("well", code=code)
    before = signal.getsignal(signum)
    assert run(plan, told) == code
    assert told.ready == [(f"http://127.0.0.1:{plan.port}", "the model")]
    assert told.lines == ["loading with plan and user", f"got {signum.name}"]
    assert signal.getsignal(signum) is before and not is_healthy(plan.health_url)


def test_a_slow_start_is_waited_for() -> None:
    told = Told(send(signal.SIGTERM))
    began = time.monotonic()
    assert run(fake_plan("nameless", wait=0.8), told) == 0
    assert time.monotonic() - began >= 0.8
    assert told.ready[0][1] == "default", "an engine that names no model"


def test_an_engine_that_ends_by_itself_gives_its_code() -> None:
    told = Told()
    assert run(fake_plan("ends", code=3), told) == 3
    assert len(told.ready) == 1


@pytest.mark.parametrize("code", [0, 1])
def test_death_before_ready_is_one_line_with_its_last_lines(code: int) -> None:
    told = Told()
    with pytest.raises(EngineFault) as raised:
        run(fake_plan("dies", wait=0.3, code=code), told)
    assert str(raised.value) == (
        f"fake ended with exit code {code} before it was ready; its last lines: "
        "loading with plan and user | ValueError: no such model"
    )
    assert not told.ready


@pytest.mark.parametrize("mode", ["sick", "stubborn"])
def test_never_healthy_is_ended_after_the_timeout(mode: str) -> None:
    """Also one that ignores SIGTERM."""
    plan = fake_plan(mode, wait=1000)
    told = Told()
    with pytest.raises(EngineFault, match=r"after 2 s \(--timeout\) and was ended") as raised:
        run(plan, told, timeout=2.0, grace=0.5)
    assert "got SIGTERM" in str(raised.value)
    with socket.create_server(("127.0.0.1", plan.port)):
        pass  # nothing holds it any more


def test_a_signal_before_ready_is_handed_on() -> None:
    told = Told()
    timer = threading.Timer(1.0, send(signal.SIGTERM))
    timer.start()
    assert run(fake_plan("well", wait=1000, code=4), told) == 4
    timer.join()
    assert not told.ready and told.lines[-1] == "got SIGTERM"


def test_one_that_does_not_end_is_killed_after_the_grace() -> None:
    told = Told(send(signal.SIGTERM))
    assert run(fake_plan("stubborn"), told, grace=0.5) == 128 + signal.SIGKILL


def test_a_second_signal_kills_at_once() -> None:
    again = threading.Timer(0.7, send(signal.SIGTERM))

    def twice() -> None:
        send(signal.SIGTERM)()
        again.start()

    began = time.monotonic()
    assert run(fake_plan("stubborn"), Told(twice), grace=60.0) == 128 + signal.SIGKILL
    assert time.monotonic() - began < 30
    again.join()


def test_what_the_engine_started_ends_with_it() -> None:
    told = Told(send(signal.SIGTERM))
    assert run(fake_plan("child"), told) == 0
    child = next(int(line.split()[1]) for line in told.lines if line.startswith("child"))
    for _ in range(100):
        if not is_running(child):
            return
        time.sleep(0.05)
    pytest.fail(f"process {child} still runs")


def is_running(pid: int) -> bool:
    """Whether `pid` is a process that is more than a zombie nobody has reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False


def test_a_port_in_use_is_found_before_anything_starts() -> None:
    plan = fake_plan("well")
    told = Told()
    with (
        socket.create_server(("127.0.0.1", plan.port)),
        pytest.raises(ConfigError, match=f"can't listen on 127.0.0.1 port {plan.port}: "),
    ):
        run(plan, told)
    assert not told.lines


def test_files_are_kept_in_a_named_folder(tmp_path: Path) -> None:
    told = Told(send(signal.SIGTERM))
    assert run(fake_plan("well"), told, folder=tmp_path / "kept") == 0
    assert (tmp_path / "kept" / "fake.py").read_text(encoding="utf-8") == FAKE


def test_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="can't be written"):
        run(fake_plan("well"), Told(), folder=tmp_path / "file" / "x")
