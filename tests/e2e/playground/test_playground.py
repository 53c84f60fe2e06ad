"""The playground in a browser: what it shows, its race, phones, the keyboard, contrast."""

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
pytest.importorskip("starlette", reason="the extra `serve` is not installed")

from playground_page import Open, ask, finished, picture
from playground_server import ANSWER, WORDS, StandIn
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def test_tokens_are_colored_as_they_stream(server: StandIn, open_page: Open) -> None:
    page = open_page()
    ask(page, "clocked")
    finished(page)
    answer = page.locator(".message.assistant .text")
    expect(answer).to_have_text("".join(WORDS))
    flags = [drafted for step in ANSWER for _, drafted in step]
    spans = answer.locator(".token")
    assert [("drafted" in str(x.get_attribute("class"))) for x in spans.all()] == flags
    expect(answer.locator(".bonus")).to_have_count(flags.count(False))
    expect(page.locator("#live-tau")).to_have_text("4.60")
    expect(page.locator("#live-steps")).to_have_text("5")
    expect(page.locator("#live-tokens")).to_have_text("24")
    expect(page.locator("#live-speed")).to_have_text("18.4")
    chart = page.locator("#chart svg")
    expect(chart).to_have_attribute(
        "aria-label", "Steps by tokens committed: 1: 1, 4: 2, 6: 1, 8: 1"
    )
    expect(chart.locator("rect")).to_have_count(4)
    expect(page.locator(".message.assistant .note")).to_contain_text("24 tokens")
    picture(page, "chat")


def test_text_shows_before_the_answer_has_ended(server: StandIn, open_page: Open) -> None:
    page = open_page()
    ask(page, "slow")
    expect(page.locator(".message.assistant .token").nth(5)).to_be_visible()
    expect(page.locator("#stop")).to_be_visible()
    expect(page.locator("#live-tau")).to_have_text("1.00")
    page.locator("#stop").click()
    finished(page)


def test_the_request_asks_for_steps(server: StandIn, open_page: Open) -> None:
    page = open_page()
    ask(page, "hello")
    finished(page)
    assert server.bodies == [
        {
            "model": "stand-in",
            "messages": [{"role": "user", "content": "hello"}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            "blockdraft": {"step_details": True, "speculation": "auto"},
            "max_tokens": 256,
            "temperature": 0,
        }
    ]


def test_a_race_runs_both_ways_and_tells_the_ratio(server: StandIn, open_page: Open) -> None:
    page = open_page()
    page.locator("#prompt").fill("clocked")
    page.locator("#race").click()
    verdict = page.locator(".race .verdict")
    expect(verdict).to_be_visible(timeout=20_000)
    assert server.log == ["begin off", "end off", "begin auto", "end auto"]
    assert [body["blockdraft"]["speculation"] for body in server.bodies] == ["off", "auto"]
    # By the server's clock: a page that draws late must not tell of a speed-up that there is not.
    expect(verdict.locator("strong")).to_have_text("1.84x")
    expect(page.locator(".bar-speed")).to_have_text(["10.0 tok/s", "18.4 tok/s"])
    expect(verdict).to_contain_text("same text")
    expect(page.locator(".lane .text")).to_have_text(["".join(WORDS)] * 2)
    expect(page.locator(".lane").first.locator(".drafted")).to_have_count(0)
    expect(page.locator(".lane .note").nth(0)).to_have_text("24 tokens in 2.30 s, tau 1.00")
    expect(page.locator(".lane .note").nth(1)).to_have_text("24 tokens in 1.25 s, tau 4.60")
    expect(page.locator(".race .foot .note")).to_contain_text("One after the other")
    picture(page, "race")


def test_a_race_can_be_seen_again_side_by_side(server: StandIn, open_page: Open) -> None:
    page = open_page()
    page.locator("#prompt").fill("clocked")
    page.locator("#race").click()
    replay = page.get_by_role("button", name="Replay side by side")
    expect(replay).to_be_visible(timeout=20_000)
    before = page.locator(".race").inner_text()
    replay.click()
    expect(page.locator(".lane .note")).to_have_text(["replay", "replay"])
    finished(page)
    assert page.locator(".race").inner_text() == before
    assert len(server.bodies) == 2


def test_a_new_chat_forgets(server: StandIn, open_page: Open) -> None:
    page = open_page()
    ask(page, "slow")
    expect(page.locator(".token").first).to_be_visible()
    page.get_by_role("button", name="New chat").click()
    expect(page.locator(".message")).to_have_count(0)
    expect(page.locator("#welcome")).to_be_visible()
    ask(page, "hello")
    finished(page)
    assert server.bodies[1]["messages"] == [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone_needs_no_sideways_scroll(server: StandIn, open_page: Open, dark: bool) -> None:
    page = open_page(360, 640, dark)
    picture(page, f"phone-start-{dark}")
    fits = "document.documentElement.scrollWidth <= 360"
    # The page fills the window: only the conversation scrolls.
    assert page.evaluate("document.documentElement.scrollHeight <= 640")
    assert page.evaluate(fits)
    ask(page, "wide")
    finished(page)
    page.locator("#prompt").fill("hello")
    page.locator("#race").click()
    expect(page.locator(".verdict")).to_be_visible(timeout=20_000)
    picture(page, f"phone-race-{dark}")
    assert page.evaluate(fits)
    assert page.evaluate("scroller.scrollWidth <= scroller.clientWidth")
    page.get_by_text("Steps and colors").click()
    expect(page.locator("#chart svg")).to_be_visible()
    picture(page, f"phone-more-{dark}")
    page.get_by_role("button", name="Settings").click()
    assert page.evaluate("settings.scrollWidth <= settings.clientWidth")
    assert page.evaluate(fits)
    picture(page, f"phone-settings-{dark}")


def test_the_keyboard_is_enough(server: StandIn, open_page: Open) -> None:
    page = open_page()
    focus = "document.activeElement.id || document.activeElement.textContent"
    page.keyboard.press("Tab")
    assert page.evaluate(focus) == "Skip to the prompt"
    page.keyboard.press("Enter")
    assert page.evaluate(focus) == "prompt"
    page.keyboard.type("he")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("llo")
    page.keyboard.press("Tab")
    assert page.evaluate(focus) == "race"
    page.keyboard.press("Tab")
    assert page.evaluate(focus) == "send"
    page.keyboard.press("Enter")
    finished(page)
    assert server.bodies[0]["messages"][0]["content"] == "he\nllo"
    assert page.evaluate(focus) == "prompt"
    page.keyboard.type("slow")
    page.keyboard.press("Enter")
    expect(page.locator(".message").nth(3).locator(".token").first).to_be_visible()
    page.keyboard.press("Escape")
    finished(page)
    page.locator("#open-settings").focus()
    page.keyboard.press("Enter")
    assert page.evaluate(focus) == "temperature"
    page.keyboard.press("Escape")
    expect(page.locator("#settings")).to_be_hidden()
    assert page.evaluate(focus) == "open-settings"


CONTRAST = """(selector) => {
    const light = (color) => {
        const parts = color.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255);
        const [r, g, b] = parts.map(
            (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const element = document.querySelector(selector);
    let behind = element;
    while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") {
        behind = behind.parentElement;
    }
    const [a, b] = [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor]
        .map(light);
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out(server: StandIn, open_page: Open, dark: bool) -> None:
    page = open_page(dark=dark)
    ask(page, "busy")
    expect(page.get_by_role("alert")).to_be_visible()
    page.locator("#prompt").fill("hello")
    page.locator("#race").click()
    expect(page.locator(".verdict")).to_be_visible(timeout=20_000)
    picture(page, f"desktop-{dark}")
    parts = ["#log .drafted", "#log .bonus", ".note", ".error", ".user .text", "#send", "#keys"]
    parts += [".quiet", "dt", ".legend li", ".verdict span", "#server", "h1 span", ".lane h4"]
    low = {part: ratio for part in parts if (ratio := page.evaluate(CONTRAST, part)) < 4.5}
    assert low == {}


TALLIES: list[tuple[list[str], float | None, dict[str, int]]] = [
    # One string for a chunk; d is a drafted token, b the target's own.
    ([], None, {}),
    (["b"], None, {}),
    (["b", "ddb", "b"], 2.0, {"1": 1, "3": 1}),
    (["bddb", "bdb"], 2.0, {"1": 1, "2": 1, "3": 1}),
    (["b", "d", "d", "b"], 3.0, {"3": 1}),
    (["b", "db", "dd"], 2.0, {"2": 2}),
]


def test_steps_are_counted_however_the_chunks_are_cut(open_page: Open) -> None:
    page = open_page()
    count = """async (chunks) => {
        const { Tally } = await import("/playground/tally.js");
        const tally = new Tally(0);
        const read = (kind) => ({ text: "x", drafted: kind === "d" });
        chunks.forEach((chunk, index) => tally.add([...chunk].map(read), 100 * index));
        tally.end(null);
        return [tally.tau, Object.fromEntries(tally.widths), tally.speed];
    }"""
    for chunks, tau, widths in TALLIES:
        found = page.evaluate(count, chunks)
        assert found[:2] == [tau, widths]
    assert page.evaluate(count, ["b", "ddb", "b"])[2] == pytest.approx(20.0)
