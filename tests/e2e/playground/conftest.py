"""A real headless Chromium and the playground in it; without Chromium the tests skip and say so.

At the end of every test nothing was asked for from outside and the console was silent.
"""

import re
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# Makes the shared modules of this folder importable under every import mode.
sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    # At run time only where the test modules have found them installed.
    from playground_server import StandIn
    from playwright.sync_api import Browser, BrowserContext, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def running_server() -> "Iterator[StandIn]":
    from playground_server import StandIn
    from uvicorn import Config, Server

    stand_in = StandIn()
    listener = socket.create_server(("127.0.0.1", 0))
    stand_in.url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    config = Config(stand_in.app(), ws="none", lifespan="off", log_level="error")
    server = Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield stand_in
    server.force_exit = True
    server.should_exit = True
    thread.join(timeout=20)
    listener.close()


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine; the package `chromium` has it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def server(running_server: "StandIn") -> "StandIn":
    for record in (running_server.bodies, running_server.keys, running_server.log):
        record.clear()
    return running_server


@pytest.fixture
def open_page(server: "StandIn", browser: "Browser") -> "Iterator[Callable[..., Page]]":
    """Opens the playground; at the end nothing came from outside and nothing was complained of."""
    complaints: list[str] = []
    outside: list[str] = []
    contexts: list[BrowserContext] = []

    def note(url: str) -> None:
        if not url.startswith(server.url):
            outside.append(url)

    def open_it(width: int = 1280, height: int = 800, dark: bool = False) -> "Page":
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: note(request.url))
        page.goto(server.url)
        page.locator("#server[data-state=ready]").wait_for()
        return page

    yield open_it
    for context in contexts:
        context.close()
    # The browser itself reports a refused request; these tests refuse some on purpose.
    expected = re.compile(r"Failed to load resource|requires 'TrustedHTML' assignment")
    assert [text for text in complaints if not expected.search(text)] == []
    assert outside == []
