"""From the first request to the exit code: signals, draining, a dead engine, sockets.

The runner here is a stand-in that ends when it is told; real ones run in tests/e2e/test_serve.py.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import torch
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from blockdraft.errors import ConfigError, EngineFault, Error
from blockdraft.serving import lifecycle
from blockdraft.serving.cores import engine_threads
from blockdraft.serving.lifecycle import Lifecycle
from blockdraft.serving.logs import LogSettings, logging_as
from blockdraft.serving.uvicorn_server import HttpServer, bind_socket, is_loopback, listen, url_of


@dataclass(slots=True, eq=False)
class StandIn:
    """A runner with one request that ends when `finished` is set."""

    finished: asyncio.Event = field(default_factory=asyncio.Event)
    is_alive: bool = True
    is_draining: bool = False
    is_stopped: bool = False
    last_fault: Error | None = None

    async def drain(self, timeout: float | None) -> bool:
        self.is_draining = True
        try:
            await asyncio.wait_for(self.finished.wait(), timeout)
        except TimeoutError:
            return False
        return True

    def stop(self) -> None:
        self.is_stopped = True
        self.is_alive = False

    def die(self) -> None:
        self.last_fault = EngineFault("it died")
        self.is_alive = False


class App:
    """Answers with what the runner's state is; /slow answers once the request is finished."""

    def __init__(self, runner: StandIn) -> None:
        self._runner = runner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        if scope["path"] == "/slow":
            await self._runner.finished.wait()
        await self._answer()(scope, receive, send)

    def _answer(self) -> Response:
        status = 503 if self._runner.is_draining or not self._runner.is_alive else 200
        return PlainTextResponse("", status_code=status)


Story = Callable[[StandIn, str], Coroutine[object, object, None]]


def live(story: Story, *, drain_seconds: float = 30.0) -> tuple[int, StandIn]:
    """The exit code of a server while `story` happens to it."""

    async def both() -> tuple[int, StandIn]:
        runner = StandIn()
        app: ASGIApp = App(runner)
        bound = bind_socket("127.0.0.1", 0)
        listen(bound)
        up = asyncio.Event()
        cycle = Lifecycle(
            server=HttpServer(app),
            bound=bound,
            runner=runner,
            drain_seconds=drain_seconds,
            on_up=up.set,
        )
        url = url_of(bound)
        serving = asyncio.create_task(cycle.run())
        await up.wait()
        await story(runner, url)
        return await asyncio.wait_for(serving, 60), runner

    return asyncio.run(both())


async def get(url: str) -> int:
    async with httpx.AsyncClient(timeout=60) as client:
        return (await client.get(url)).status_code


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_ends_with_0(number: signal.Signals) -> None:
    before = signal.getsignal(number)

    async def story(runner: StandIn, url: str) -> None:
        assert await get(url) == 200
        slow = asyncio.create_task(get(f"{url}/slow"))
        await asyncio.sleep(0.05)
        signal.raise_signal(number)
        await until(lambda: runner.is_draining)
        assert await get(url) == 503  # still there to say so
        assert not slow.done() and not runner.is_stopped
        runner.finished.set()
        await slow

    code, runner = live(story)
    assert code == 0 and runner.is_stopped
    assert signal.getsignal(number) == before


def test_a_websocket_is_refused_without_the_librarys_advice(tmp_path: Path) -> None:
    async def story(runner: StandIn, url: str) -> None:
        wanted = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        }
        async with httpx.AsyncClient(timeout=60) as client:
            assert (await client.get(url, headers=wanted)).status_code == 200
        runner.finished.set()
        signal.raise_signal(signal.SIGTERM)

    log = tmp_path / "log"
    with logging_as(LogSettings(file=log)):
        code, _ = live(story)
    assert code == 0
    assert "pip install" not in log.read_text() and "upgrade" not in log.read_text()


def test_draining_takes_no_longer_than_allowed() -> None:
    async def story(runner: StandIn, url: str) -> None:
        signal.raise_signal(signal.SIGTERM)

    code, runner = live(story, drain_seconds=0.05)
    assert code == 0 and runner.is_stopped and not runner.finished.is_set()


def test_a_second_signal_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the process is the first of a container, which SIGTERM alone does not kill."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)

    async def story(runner: StandIn, url: str) -> None:
        signal.raise_signal(signal.SIGINT)
        await until(lambda: runner.is_draining)
        signal.raise_signal(signal.SIGTERM)
        assert codes == [128 + signal.SIGTERM]
        runner.finished.set()

    assert live(story)[0] == 0


def test_a_dead_engine_is_told_and_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "LAST_WORDS_SECONDS", 0.5)

    async def story(runner: StandIn, url: str) -> None:
        assert await get(url) == 200
        runner.die()
        assert await get(url) == 503

    assert live(story)[0] == 1


def test_an_engine_that_dies_while_draining_is_no_success() -> None:
    async def story(runner: StandIn, url: str) -> None:
        signal.raise_signal(signal.SIGTERM)
        await until(lambda: runner.is_draining)
        runner.die()
        runner.finished.set()

    assert live(story)[0] == 1


def test_a_bound_socket_refuses_until_it_listens() -> None:
    with bind_socket("127.0.0.1", 0) as bound:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(bound.getsockname())
        listen(bound)
        socket.create_connection(bound.getsockname()).close()
        with pytest.raises(ConfigError, match=r"can't listen on 127.0.0.1 port \d+: Address"):
            bind_socket("127.0.0.1", bound.getsockname()[1])


def test_who_listens_first_wins() -> None:
    with bind_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with bind_socket("127.0.0.1", port) as second:
            listen(first)
            with pytest.raises(ConfigError, match=f"can't listen on 127.0.0.1 port {port}: "):
                listen(second)


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("no.such.host.invalid", "is no address"),
        ("192.0.2.1", "can't listen on 192.0.2.1"),  # an address for documentation: nobody has it
        ("a" * 300, "is no address"),
    ],
)
def test_addresses_that_are_none(host: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        bind_socket(host, 0)


def test_what_the_banner_calls_an_address() -> None:
    with bind_socket("127.0.0.1", 0) as bound:
        assert is_loopback(bound)
        assert url_of(bound) == f"http://127.0.0.1:{bound.getsockname()[1]}"
    with bind_socket("0.0.0.0", 0) as bound:
        assert not is_loopback(bound)
        assert url_of(bound).startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    ("asked", "num_cores", "threads"),
    [(None, 1, 1), (None, 2, 2), (None, 3, 3), (None, 4, 3), (None, 64, 63), (5, 2, 5)],
)
def test_threads(asked: int | None, num_cores: int, threads: int) -> None:
    for environment in ({}, {"OMP_NUM_THREADS": ""}):
        assert engine_threads(asked, num_cores, environment) == threads


def test_the_environment_sets_threads_that_are_not_asked_for() -> None:
    """torch has read it when it was loaded, so its own number is the one meant."""
    set_here = {"OMP_NUM_THREADS": "1"}
    assert engine_threads(None, 1000, set_here) == torch.get_num_threads() != 999
    assert engine_threads(5, 1000, set_here) == 5
