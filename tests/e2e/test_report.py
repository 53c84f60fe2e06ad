"""report.html in a real headless Chromium, from the file, with no network: phone and desktop."""

import json
import runpy
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("matplotlib", reason="the extra `bench` is not installed")

from playwright.sync_api import expect, sync_playwright

from blockdraft.bench.report.page import write_page
from blockdraft.bench.report.reading import parse_document

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
SAMPLES = Path(__file__).parent.parent / "unit" / "bench" / "report" / "sample_bench.py"
SIZES = ((1280, 800), (390, 844))
CONTRAST = """
selectors => {
  const channel = value => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  };
  const light = text => {
    const [r, g, b] = text.match(/[\\d.]+/g).map(Number);
    return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  };
  const ground = element => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (!color.startsWith("rgba(0, 0, 0, 0")) return color;
    }
  };
  return selectors.map(selector => {
    const element = document.querySelector(selector);
    const pair = [light(getComputedStyle(element).color), light(ground(element))].sort();
    return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
  });
}
"""
OVERLAPS = """
() => {
  const found = [];
  for (const chart of document.querySelectorAll("svg.chart")) {
    const box = chart.getBoundingClientRect();
    const texts = [...chart.querySelectorAll("text")].map(
      text => ({ text: text.textContent, at: text.getBoundingClientRect() }));
    for (const { text, at } of texts) {
      if (at.left < box.left - 1 || at.right > box.right + 1 || at.top < box.top - 2
          || at.bottom > box.bottom + 1) found.push("outside: " + text);
    }
    const axis = texts.filter(one => one.at.top > box.top + box.height * 0.75);
    axis.forEach((one, idx) => axis.slice(idx + 1).forEach(other => {
      const wide = Math.min(one.at.right, other.at.right) - Math.max(one.at.left, other.at.left);
      const high = Math.min(one.at.bottom, other.at.bottom) - Math.max(one.at.top, other.at.top);
      if (wide > 1 && high > 3) found.push(one.text + " on " + other.text);
    }));
  }
  return found;
}
"""


def sample(name: str, **options: bool) -> dict[str, object]:
    """A document made up by the unit tests' `make_document` or `make_endpoint_document`."""
    return cast("Callable[..., dict[str, object]]", runpy.run_path(str(SAMPLES))[name])(**options)


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine; the package `chromium` has it")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    # Through JSON, as it is read from a file.
    write_page(path, parse_document(json.loads(json.dumps(sample("make_document")))))
    return path


def open_page(browser: "Browser", path: Path, size: tuple[int, int], *, dark: bool) -> "Page":
    """Fails at a message of the console or anything that is asked for from elsewhere."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        offline=True,
    )
    page = context.new_page()
    page.on("console", lambda message: pytest.fail(message.text))
    page.on("request", lambda request: _check_source(request.url))
    page.goto(path.as_uri())
    return page


def _check_source(url: str) -> None:
    assert url.startswith(("file:", "data:")), url


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_the_answers_are_on_the_first_screen(
    browser: "Browser", page_file: Path, size: tuple[int, int], dark: bool
) -> None:
    page = open_page(browser, page_file, size, dark=dark)
    answers = page.locator(".answer")
    expect(answers).to_have_count(5)
    for answer in answers.all():
        box = answer.bounding_box()
        assert box is not None and box["y"] >= 0 and box["y"] + box["height"] <= size[1]
        expect(answer.locator(".badge")).to_be_visible()
        expect(answer.locator("p")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert page.evaluate(OVERLAPS) == []
    selectors = [*(f".{verdict} .badge" for verdict in ("yes", "mixed")), ".answer p", "dt", "h2"]
    ratios = page.evaluate(CONTRAST, selectors)
    assert min(ratios) >= 4.5
    page.context.close()


@pytest.mark.parametrize("size", SIZES)
def test_open_tables_do_not_widen_the_page(
    browser: "Browser", page_file: Path, size: tuple[int, int]
) -> None:
    page = open_page(browser, page_file, size, dark=False)
    for summary in page.locator("summary").all():
        summary.click()
    expect(page.locator("#speedup table")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    page.context.close()


def test_an_endpoint_without_a_baseline(browser: "Browser", tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_page(path, parse_document(sample("make_endpoint_document", has_baseline=False)))
    page = open_page(browser, path, SIZES[1], dark=True)
    expect(page.locator(".answer.unknown")).to_have_count(5)
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[1][0]
    page.context.close()
