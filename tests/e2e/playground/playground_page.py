"""What the tests do with an open playground, in words of a user."""

import os
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

Open = Callable[..., Page]
"""Opens the page: (width, height, dark), each with a default."""


def ask(page: Page, text: str) -> None:
    page.locator("#prompt").fill(text)
    page.locator("#prompt").press("Enter")


def finished(page: Page) -> None:
    expect(page.locator("#send")).to_be_visible(timeout=20_000)


def picture(page: Page, name: str) -> None:
    """Keeps a picture of the page where somebody wants to look at it."""
    folder = os.environ.get("PLAYGROUND_PICTURES")
    if folder is not None:
        page.screenshot(path=Path(folder) / f"{name}.png")
