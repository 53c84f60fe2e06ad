"""Runs a `LaunchPlan`: writes its files, starts the engine, waits for health, passes signals on.

It prints nothing: lines and news go to what the caller hands in.
"""

import http.client
import json
import signal
import socket
import tempfile
import time
import urllib.request
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import cast

from blockdraft.errors import ConfigError, EngineFault
from blockdraft.launch.order import LaunchPlan
from blockdraft.launch.process import EngineProcess

SIGNALS = (signal.SIGTERM, signal.SIGINT)
LOOK_SECONDS = 0.2
ANSWER_SECONDS = 5.0
"""How long one question to a server that may be busy loading may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """How a plan is run. `folder` None means: files go into a temporary one.

    `timeout` is the seconds until it has to be healthy, `grace` those it gets to end after a
    signal. `on_line` takes the engine's output, `on_ready` the URL and the model's name.
    """

    environ: Mapping[str, str]
    timeout: float
    grace: float
    on_line: Callable[[str], None]
    on_ready: Callable[[str, str], None]
    folder: Path | None = None


def run_plan(plan: LaunchPlan, order: RunOrder) -> int:
    """Run the engine until it ends; its exit code.

    SIGTERM and SIGINT are handed to it; a second one, or `grace` after the first, kills it. Raises
    EngineFault when it ends or is not healthy in time before it is ready, ConfigError for a port in
    use or a program that can't be started. Nothing of it runs afterwards. Main thread only.
    """
    check_port(plan)
    with files_of(plan, order.folder) as ready, signals_caught() as caught:
        environ = {**dict(plan.env), **order.environ}
        engine = EngineProcess(ready.command, environ=environ, on_line=order.on_line)
        try:
            if _wait_until_healthy(engine, ready, order, caught):
                order.on_ready(plan.url, served_model(plan))
            return _wait_until_ended(engine, order, caught)
        finally:
            engine.close()


def check_port(plan: LaunchPlan) -> None:
    """Raise ConfigError where something listens already: its health would be taken for ours."""
    try:
        found = socket.getaddrinfo(plan.host, plan.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise ConfigError(
            f"can't listen on {plan.host} port {plan.port}: {error.strerror or error}; choose "
            "another with --port"
        ) from error


@contextmanager
def files_of(plan: LaunchPlan, folder: Path | None) -> Generator[LaunchPlan]:
    """The plan with its files written and their paths in the command."""
    with tempfile.TemporaryDirectory(prefix="blockdraft-launch-") as scratch:
        where = Path(scratch) if folder is None else folder
        paths: dict[str, str] = {}
        for file in plan.files:
            path = where / file.name
            try:
                where.mkdir(parents=True, exist_ok=True)
                path.write_text(file.text, encoding="utf-8")
            except OSError as error:
                raise ConfigError(f"{path} can't be written: {error.strerror}") from error
            paths[file.name] = str(path)
        yield replace(
            plan,
            program=tuple(paths.get(word, word) for word in plan.program),
            arguments=tuple(paths.get(word, word) for word in plan.arguments),
        )


@contextmanager
def signals_caught() -> Generator[list[int]]:
    """The signals that came, in order, for as long as this is entered."""
    caught: list[int] = []

    def catch(signum: int, frame: FrameType | None) -> None:
        caught.append(signum)

    before = {signum: signal.signal(signum, catch) for signum in SIGNALS}
    try:
        yield caught
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def is_healthy(url: str) -> bool:
    """Whether `url` answers with status 200."""
    try:
        with _direct().open(url, timeout=ANSWER_SECONDS) as answer:
            return answer.status == 200
    except (OSError, http.client.HTTPException, ValueError):
        return False  # refused, reset, 503 while it loads, not yet HTTP


def served_model(plan: LaunchPlan) -> str:
    """The name by which requests call the model; where the engine does not say, "default"."""
    try:
        with _direct().open(plan.url + "/v1/models", timeout=ANSWER_SECONDS) as answer:
            listed = cast("dict[str, list[dict[str, str]]]", json.loads(answer.read()))
        return listed["data"][0]["id"]
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        return "default"


def _direct() -> urllib.request.OpenerDirector:
    """Straight to the engine: a proxy of the environment is not meant for this machine."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _wait_until_healthy(
    engine: EngineProcess, plan: LaunchPlan, order: RunOrder, caught: list[int]
) -> bool:
    """False when a signal came first."""
    deadline = time.monotonic() + order.timeout
    while not caught:
        # Asked before its health, which another server could answer once it is gone.
        code = engine.exit_code
        if code is not None:
            raise EngineFault(
                f"{plan.engine} ended with exit code {code} before it was ready; its last lines: "
                f"{engine.last_lines() or '(none)'}"
            )
        if is_healthy(plan.health_url):
            return True
        if time.monotonic() >= deadline:
            engine.stop(order.grace)
            raise EngineFault(
                f"{plan.engine} was not healthy at {plan.health_url} after {order.timeout:g} s "
                f"(--timeout) and was ended; its last lines: {engine.last_lines() or '(none)'}"
            )
        engine.wait(LOOK_SECONDS)
    return False


def _wait_until_ended(engine: EngineProcess, order: RunOrder, caught: list[int]) -> int:
    handed_on = 0
    kill_at: float | None = None
    while (code := engine.exit_code) is None:
        if len(caught) > handed_on:
            if handed_on:
                kill_at = time.monotonic()  # asked twice
            else:
                engine.send(caught[0])
                kill_at = time.monotonic() + order.grace
            handed_on = len(caught)
        if kill_at is not None and time.monotonic() >= kill_at:
            engine.kill()
        engine.wait(LOOK_SECONDS)
    return code
