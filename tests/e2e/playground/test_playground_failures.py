"""The playground in a browser: stops, hostile text, broken streams, errors, secrets."""

import time

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
pytest.importorskip("starlette", reason="the extra `serve` is not installed")

from playground_page import Open, ask, finished, picture
from playground_server import MARKUP, WORDS, StandIn
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def test_stop_keeps_what_came_and_frees_the_server(server: StandIn, open_page: Open) -> None:
    page = open_page()
    ask(page, "slow")
    expect(page.locator(".token").nth(8)).to_be_visible()
    page.locator("#stop").click()
    finished(page)
    deadline = time.monotonic() + 10
    while "gone" not in server.log and time.monotonic() < deadline:
        page.wait_for_timeout(20)
    assert server.log == ["begin auto", "gone"]
    expect(page.locator(".message.assistant .note")).to_contain_text("not finished")
    expect(page.locator("#status")).to_have_text("Stopped")
    kept = page.locator(".message.assistant .text").inner_text()
    ask(page, "hello")
    finished(page)
    assert [message["role"] for message in server.bodies[1]["messages"]] == [
        "user",
        "assistant",
        "user",
    ]
    assert server.bodies[1]["messages"][1]["content"].strip() == kept.strip()


def test_a_stopped_race_gives_no_verdict(server: StandIn, open_page: Open) -> None:
    page = open_page()
    page.locator("#prompt").fill("slow")
    page.locator("#race").click()
    expect(page.locator(".lane .token").nth(3)).to_be_visible()
    page.keyboard.press("Escape")
    finished(page)
    expect(page.locator(".race .verdict")).to_be_hidden()
    expect(page.locator(".lane .note").nth(1)).to_have_text("not finished")


def test_markup_in_an_answer_or_a_prompt_stays_text(server: StandIn, open_page: Open) -> None:
    page = open_page()
    ask(page, MARKUP)
    finished(page)
    ask(page, "markup")
    finished(page)
    expect(page.locator(".message.assistant .text").last).to_have_text(f"a {MARKUP} z")
    expect(page.locator(".message.user .text").first).to_have_text(MARKUP)
    assert page.locator("#log :is(img, script, b, strong)").count() == 0
    assert page.evaluate("window.hit === undefined")


def test_the_browser_itself_refuses_markup(server: StandIn, open_page: Open) -> None:
    """Defense in depth: even code with a mistake in it could not interpret an answer."""
    page = open_page()
    try_it = """() => {
        try { document.createElement("p").innerHTML = "<b>x</b>"; return "taken"; }
        catch (error) { return error.name; }
    }"""
    assert page.evaluate(try_it) == "TypeError"


@pytest.mark.parametrize("name", ["bytes", "cut", "bare"])
def test_unusual_streams(server: StandIn, open_page: Open, name: str) -> None:
    page = open_page()
    ask(page, name)
    finished(page)
    text = page.locator(".message.assistant .text")
    if name == "bytes":
        expect(text).to_have_text("gr\u00fc\u00df \U0001f600 \u6f22")
    elif name == "cut":
        expect(text).to_have_text("abcde")
        expect(page.locator("#live-steps")).to_have_text("2")
        expect(page.locator(".message.assistant .note")).to_contain_text("cut at max tokens")
    else:
        expect(text).to_have_text("".join(WORDS))
        expect(text.locator(".drafted, .bonus")).to_have_count(0)


@pytest.mark.parametrize(
    ("name", "message", "keeps_text"),
    [
        ("busy", "try again in 7 s. The queue is full.", False),
        ("bad", "The server refused (400): max_tokens is 0; give at least 1", False),
        ("plain text", "The server answered 502.", False),
        ("locked", "set it in Settings. Wrong key.", False),
        ("break", "The connection ended before the answer was complete.", True),
        ("fault", "The engine failed.", True),
    ],
)
def test_errors_are_shown_and_the_chat_goes_on(
    server: StandIn, open_page: Open, name: str, message: str, keeps_text: bool
) -> None:
    page = open_page()
    ask(page, name)
    expect(page.get_by_role("alert")).to_contain_text(message)
    finished(page)
    expect(page.locator(".message.assistant")).to_have_count(1 if keeps_text else 0)
    # A prompt that came to nothing is in the box again.
    expect(page.locator("#prompt")).to_have_value("" if keeps_text else name)
    ask(page, "hello")
    finished(page)
    expect(page.locator(".message.assistant .text").last).to_have_text("".join(WORDS))


def test_a_server_that_is_gone(server: StandIn, open_page: Open) -> None:
    page = open_page()
    page.route("**/v1/chat/completions", lambda route: route.abort())
    ask(page, "hello")
    expect(page.get_by_role("alert")).to_contain_text("Is it still running?")


def test_settings_reach_the_server_and_the_key_stays_in_memory(
    server: StandIn, open_page: Open
) -> None:
    page = open_page()
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Temperature").fill("")
    page.get_by_label("Max tokens").fill("32")
    page.get_by_label("Seed").fill("7")
    page.get_by_label("Drafting").select_option("off")
    page.get_by_label("System prompt").fill("Be brief.")
    page.get_by_label("API key").fill("secret")
    picture(page, "settings")
    page.get_by_role("button", name="Done").click()
    ask(page, "locked")
    finished(page)
    body = server.bodies[0]
    assert body["max_tokens"] == 32
    assert body.get("seed") == 7
    assert "temperature" not in body
    assert body["blockdraft"] == {"step_details": True, "speculation": "off"}
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert server.keys == ["Bearer secret"]
    stored = "localStorage.length + sessionStorage.length + document.cookie.length"
    assert page.evaluate(stored) == 0
    page.reload()
    page.get_by_role("button", name="Settings").click()
    expect(page.get_by_label("API key")).to_have_value("")


def test_a_senseless_setting_is_refused_here(server: StandIn, open_page: Open) -> None:
    page = open_page()
    page.locator("#temperature").evaluate("(input) => { input.value = '-1'; }")
    ask(page, "hello")
    expect(page.get_by_role("alert")).to_contain_text("Temperature in Settings is not usable")
    expect(page.locator("#prompt")).to_have_value("hello")
    assert server.bodies == []
