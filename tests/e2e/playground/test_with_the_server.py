"""The playground on `blockdraft serve` itself, with a small model that has a tokenizer."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
pytest.importorskip("xgrammar", reason="the extra `serve` is not installed")

from playground_page import ask
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

WAIT_MS = 120_000


@pytest.fixture
def server_url(text_pair: list[str], tmp_path: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "blockdraft.cli.main", "serve", *text_pair, "--port", "0"]
    command += ["--threads", "1", "--dtype", "float32", "--width", "fixed:4", "--kv-memory", "64MB"]
    log = tmp_path / "log"
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stderr=stderr)
    try:
        url = None
        for _ in range(1200):
            url = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
            if url is not None or process.poll() is not None:
                break
            threading.Event().wait(0.1)
        assert url is not None, log.read_text()
        yield url[0]
    finally:
        process.terminate()
        process.wait(60)


def test_a_chat_and_a_race(server_url: str, browser: "Browser") -> None:
    context = browser.new_context()
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(server_url)
    page.locator("#server[data-state=ready]").wait_for(timeout=WAIT_MS)
    ask(page, "two and two")
    expect(page.locator("#send")).to_be_visible(timeout=WAIT_MS)
    answer = page.locator(".message.assistant .text")
    expect(answer.locator(".token")).not_to_have_count(0)
    expect(page.locator("#live-tau")).to_have_text(re.compile(r"^\d\.\d\d$"))
    page.locator("#prompt").fill("three")
    page.locator("#race").click()
    expect(page.get_by_text("Replay side by side")).to_be_visible(timeout=WAIT_MS)
    expect(page.get_by_text("same text").first).to_be_visible()
    assert complaints == []
    context.close()
