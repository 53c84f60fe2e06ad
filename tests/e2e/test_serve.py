"""`blockdraft serve` as a process: what it answers, what it logs, and all the ways it ends.

What the answers say is tested in the serving package; here it is the operator's side.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("xgrammar")

COMMAND = [sys.executable, "-m", "blockdraft.cli.main", "serve"]
DYING = """
import sys
from blockdraft.cli.main import main
from blockdraft.engine import Engine

def step(engine):
    raise SystemExit("a defect")

Engine.step = step
sys.exit(main(sys.argv[1:]))
"""
SMALL = ["--threads", "1", "--dtype", "float32", "--width", "fixed:4", "--kv-memory", "64MB"]
SECRET_TEXT = "the moon is made of cheese"

pytestmark = pytest.mark.slow


class Server:
    """A process that serves; `url` is known once it is up."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str]) -> None:
        self.url = ""
        self.headers: dict[str, str] = {}
        self._log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env={**os.environ, **environment},
            )

    def up(self) -> "Server":
        """Wait until it serves."""
        until = time.monotonic() + 120
        while not self.url:
            assert self.process.poll() is None and time.monotonic() < until, self.said()
            for line in self.said().splitlines():
                if " serves on " in line:
                    self.url = line.rpartition(" ")[2]
                elif line.startswith("{") and json.loads(line)["event"] == "serving":
                    self.url = json.loads(line)["url"]
            time.sleep(0.02)
        return self

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=60)

    def complete(self, **fields: object) -> httpx.Response:
        body = {"prompt": [12, 7], "max_tokens": 4, **fields}
        url = f"{self.url}/v1/completions"
        return httpx.post(url, json=body, headers=self.headers, timeout=60)


class Start:
    """Starts servers of the small model on any free port; `folder` is for their logs."""

    def __init__(self, folder: Path, cache: Path, pair: list[str]) -> None:
        self.folder = folder
        self.command = COMMAND
        self.started: list[Server] = []
        self._cache = cache
        self._pair = pair

    def __call__(self, *arguments: str, **environment: str) -> Server:
        # The last --port counts. Nothing is measured, which takes longer than the test.
        given = [*self.command, *self._pair, *SMALL, "--port", "0", *arguments]
        environment["XDG_CACHE_HOME"] = str(self._cache)
        log = self.folder / f"stderr-{len(self.started)}"
        self.started.append(Server(given, log, environment))
        return self.started[-1]


@pytest.fixture
def servers(tmp_path: Path, cache_dir: Path, text_pair: list[str]) -> Iterator[Start]:
    start = Start(tmp_path, cache_dir, text_pair)
    yield start
    for server in start.started:
        server.process.kill()
        server.process.wait()


@contextmanager
def long_stream(server: Server) -> Generator[httpx.Response]:
    """A stream that has begun and goes on for a while."""
    body = {"prompt": [12, 7], "max_tokens": 300, "n": 8, "stream": True, "ignore_eos": True}
    url = f"{server.url}/v1/completions"
    with httpx.stream("POST", url, json=body, headers=server.headers, timeout=60) as response:
        assert response.status_code == 200
        yield response


def events(response: httpx.Response) -> list[str]:
    """What is left of a stream."""
    return [line.removeprefix("data: ") for line in response.iter_lines() if line]


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_one_line_a_request_and_a_drain_that_loses_nothing(servers: Start) -> None:
    """No text of a request is in any log; what was accepted when SIGTERM came is answered."""
    server = servers("--log-format", "json", "--served-model-name", "tiny").up()
    answer = server.complete(prompt=SECRET_TEXT, max_tokens=8, temperature=0)
    assert answer.status_code == 200 and answer.json()["model"] == "tiny"
    assert server.complete(temperature=SECRET_TEXT).status_code == 400
    constrained = server.complete(structured_outputs={"choice": ["yes", "no"]}, max_tokens=20)
    assert constrained.json()["choices"][0]["text"] in ("yes", "no")
    assert server.get("/health").status_code == server.get("/ready").status_code == 200
    assert server.get("/nowhere").status_code == 404
    assert b"vllm:generation_tokens_total" in server.get("/metrics").content
    with long_stream(server) as response:
        server.process.send_signal(signal.SIGTERM)
        until(lambda: server.get("/ready").status_code == 503)
        refused = server.complete()
        assert server.get("/health").status_code == 200
        told = events(response)
    assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["code"] == "draining"
    chunks = [json.loads(event) for event in told[:-1]]
    assert told[-1] == "[DONE]" and not any("error" in chunk for chunk in chunks)
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    assert reasons.count("length") == 8
    assert server.process.wait(60) == 0

    said = server.said()
    assert SECRET_TEXT not in said and answer.json()["choices"][0]["text"] not in said
    lines = [json.loads(line) for line in said.splitlines()]
    assert lines[0]["event"] == "serving" and lines[0]["models"] == ["tiny"]
    assert lines[0]["threads"] == 1 and lines[0]["dtype"] == "float32"
    first, second, _, third, *rest = [line for line in lines if line["event"] == "request"]
    assert (first["status"], first["tokens"], first["end"]) == (200, 8, "length")
    assert first["id"] == answer.headers["x-request-id"]
    assert first["prompt_tokens"] == answer.json()["usage"]["prompt_tokens"]
    assert (second["status"], "tokens" in second) == (400, False)
    assert (third["path"], third["status"]) == ("/nowhere", 404)
    assert {"tokens": 2400, "end": "length"}.items() <= rest[-1].items()
    assert lines[-1]["event"] == "drained" and lines[-1]["in_time"] is True


def test_full_disks_keys_and_a_drain_that_takes_too_long(servers: Start) -> None:
    """Lines that could not be written are counted, and told once writing works again."""
    path = servers.folder / "server.log"
    path.symlink_to("/dev/full")
    arguments = ("--log-file", str(path), "--drain-timeout", "0.05", "--host", "0.0.0.0")
    server = servers(*arguments, BLOCKDRAFT_API_KEY="sesame-1234").up()
    assert server.complete().status_code == 401
    server.headers["Authorization"] = "Bearer sesame-1234"
    assert server.complete().status_code == server.complete().status_code == 200
    time.sleep(0.2)
    path.unlink()  # the operator makes room
    assert server.complete().status_code == 200
    until(lambda: path.exists() and path.read_text().count("\n") == 2)
    told, request = path.read_text().splitlines()
    # The banner's line and three requests.
    assert "log lines were lost lost_lines=4" in told and "No space left" in told
    assert "info    request id=" in request and "status=200" in request
    with long_stream(server) as response:
        server.process.send_signal(signal.SIGTERM)
        failed = [event for event in events(response) if "error" in event]
    assert len(failed) == 1 and "send it again" in failed[0]
    assert server.process.wait(60) == 0
    assert "fail now" in path.read_text()
    assert "sesame" not in path.read_text() + server.said()


def test_a_kill_leaves_nothing_behind_and_a_second_signal_ends_at_once(servers: Start) -> None:
    """Nothing on disk needs repair, and no process is left that holds the port."""
    server = servers().up()
    with long_stream(server):
        server.process.kill()
        server.process.wait()
    again = servers("--port", server.url.rpartition(":")[2]).up()
    assert again.url == server.url
    assert again.complete().status_code == 200
    with long_stream(again):
        again.process.send_signal(signal.SIGINT)
        until(lambda: "stopping" in again.said())
        again.process.send_signal(signal.SIGTERM)
        assert again.process.wait(30) == 128 + signal.SIGTERM


def test_a_dead_engine_is_told_and_ends_the_server(servers: Start) -> None:
    """Exit code 1, so that a supervisor starts it again; no client waits for ever."""
    servers.command = [sys.executable, "-c", DYING, "serve"]
    server = servers("--log-format", "json").up()
    failed = server.complete()
    assert failed.status_code == 500 and "restart the server" in failed.json()["error"]["message"]
    assert server.get("/health").status_code == 503
    assert server.process.wait(60) == 1
    lines = [json.loads(line) for line in server.said().splitlines()]
    dead = [line for line in lines if line["level"] == "critical"]
    assert len(dead) == 2 and "SystemExit" in dead[0]["traceback"]
