"""The generated OpenVINO server, run as a script against a fake openvino_genai."""

import json
import os
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import cast

import pytest

from blockdraft.launch import ENGINES, LaunchDrafter, LaunchOrder, LaunchTarget, PairForLaunch
from blockdraft.launch.process import EngineProcess
from blockdraft.launch.running import check_port, files_of, is_healthy

FAKE_GENAI = """
from types import SimpleNamespace as Object

class GenerationConfig:
    pass

def render(history, add_generation_prompt):
    return "<u>" + history[-1]["content"]

class SchedulerConfig:
    enable_prefix_caching = True

def draft_model(path, device, **properties):
    return ("drafter", path, device, properties)

class LLMPipeline:
    def __init__(self, path, device, draft_model, scheduler_config, **properties):
        assert not scheduler_config.enable_prefix_caching
        assert draft_model == ("drafter", "/m/d", device, properties), draft_model
        both = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
        assert properties == both, properties
    def get_tokenizer(self):
        return Object(
            apply_chat_template=render,
            encode=lambda prompt: Object(input_ids=Object(shape=[1, len(prompt)])),
        )
    def generate(self, prompts, config, streamer):
        assert not config.do_sample and not config.apply_chat_template
        text = f"{prompts[0]}|{config.num_assistant_tokens}|{sorted(config.stop_strings)}"
        for piece in (text[:4], text[4:]):
            assert streamer(piece) is False
        metrics = Object(get_num_generated_tokens=lambda: min(config.max_new_tokens, 9))
        return Object(texts=[text], perf_metrics=metrics)
"""

Body = dict[str, object]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("openvino")
    (folder / "openvino_genai.py").write_text(FAKE_GENAI, encoding="utf-8")
    pair = PairForLaunch(
        target=LaunchTarget(where="/m/t", layout="openvino"),
        drafter=LaunchDrafter(where="/m/d", layout="openvino", block_size=8),
    )
    order = LaunchOrder(
        pair=pair, device="cpu", dtype="float32", max_model_len=40, port=free_port()
    )
    plan = ENGINES["openvino"].make_plan(order)
    check_port(plan)
    lines: list[str] = []
    with files_of(plan, folder) as ready:
        engine = EngineProcess(
            (sys.executable, *ready.command[1:]),
            environ={**os.environ, "PYTHONPATH": str(folder)},
            on_line=lines.append,
        )
        try:
            while not is_healthy(plan.health_url):
                assert engine.wait(0.1) is None, lines
            yield plan.url
        finally:
            engine.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def ask(url: str, path: str, body: Body | str | None = None) -> tuple[int, str]:
    text = body if isinstance(body, str) or body is None else json.dumps(body)
    request = urllib.request.Request(url + path, None if text is None else text.encode())
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def choice(text: str) -> Body:
    (only,) = cast(list[Body], cast(Body, json.loads(text))["choices"])
    return only


def test_completion(url: str) -> None:
    status, text = ask(url, "/v1/completions", {"prompt": "once", "max_tokens": 5, "stop": "x"})
    assert status == 200
    assert choice(text) == {"index": 0, "finish_reason": "length", "text": "once|7|['x']"}
    assert json.loads(text)["usage"] == {
        "prompt_tokens": 4,
        "completion_tokens": 5,
        "total_tokens": 9,
    }


def test_chat(url: str) -> None:
    body: Body = {"messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 20}
    status, text = ask(url, "/v1/chat/completions", body)
    assert status == 200 and choice(text)["finish_reason"] == "stop"
    assert choice(text)["message"] == {"role": "assistant", "content": "<u>hi|7|[]"}


@pytest.mark.parametrize("chat", [True, False])
def test_streams_end_with_usage_and_done(url: str, chat: bool) -> None:
    said: Body = {"messages": [{"role": "user", "content": "hi"}]} if chat else {"prompt": "hi"}
    path = "/v1/chat/completions" if chat else "/v1/completions"
    status, text = ask(url, path, {**said, "max_tokens": 20, "stream": True})
    assert status == 200
    *events, done, end = text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    parts = [choice(event.removeprefix("data: ")) for event in events]
    if chat:
        pieces = [cast(dict[str, str], part["delta"]).get("content", "") for part in parts]
    else:
        pieces = [str(part["text"]) for part in parts]
    assert "".join(pieces) == ("<u>hi|7|[]" if chat else "hi|7|[]")
    assert [part["finish_reason"] for part in parts] == [None, None, "stop"]
    assert json.loads(events[-1].removeprefix("data: "))["usage"]["completion_tokens"] == 9


def test_models(url: str) -> None:
    assert json.loads(ask(url, "/v1/models")[1])["data"][0]["id"] == "/m/t"


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/completions", {"prompt": "a", "temperature": 0.5}, 400, "temperature has to be 0"),
        ("/v1/completions", {"prompt": "a", "n": 2}, 400, "n has to be 1"),
        ("/v1/completions", {"prompt": "a", "max_tokens": "b"}, 400, "max_tokens has to be"),
        ("/v1/completions", {"prompt": "a", "max_tokens": 40}, 400, "are more than 40"),
        ("/v1/completions", {"prompt": ["a"]}, 400, "prompt has to be one string"),
        ("/v1/chat/completions", {"messages": []}, 400, "messages has to be a list"),
        ("/v1/completions", "{", 400, "the body is no JSON"),
        ("/v1/completions", "[]", 400, "the body has to be a JSON object"),
        ("/v1/nothing", {}, 404, "there is no /v1/nothing"),
        ("/nothing", None, 404, "there is no /nothing"),
        (
            "/v1/completions",
            {"prompt": "a", "max_tokens": 40, "stream": True},
            400,
            "are more than 40",
        ),
    ],
)
def test_what_it_can_not_do_is_told(
    url: str, path: str, body: Body | str | None, status: int, message: str
) -> None:
    """A setting that would change the output is refused, never ignored."""
    got, text = ask(url, path, body)
    assert got == status and message in json.loads(text)["error"]["message"]
