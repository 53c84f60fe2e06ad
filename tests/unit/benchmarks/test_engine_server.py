"""Tests of `EngineServer` against a small server, and of how replies and logs are read."""

import sys
from pathlib import Path

import pytest

from engine_server import EngineFailed, EngineServer, free_port, last_error, read_answer

STUB = """
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply(200, {})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked["prompt"] == [0]:
            return self.reply(400, {"error": "no"})
        told = {"per_step_accepted": [1, 0]}
        choice = {"token_ids": asked["prompt"] + [asked["max_tokens"]]}
        self.reply(200, {"choices": [choice], "metrics": {"speculative_decoding": told}})

    def reply(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

print("ready soon")
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def command(tmp_path: Path, text: str, port: int) -> list[str]:
    script = tmp_path / "stub.py"
    script.write_text(text, encoding="utf-8")
    return [sys.executable, "-u", str(script), str(port)]


def test_server_answers_refuses_and_ends(tmp_path: Path) -> None:
    port = free_port()
    log = tmp_path / "log"
    with EngineServer(command(tmp_path, STUB, port), port, log, {}) as server:
        answer = server.complete("m", [4, 5], 7)
        assert answer.token_ids == (4, 5, 7)
        assert answer.accepted == (1, 0)
        assert answer.seconds > 0
        with pytest.raises(EngineFailed, match=r"^status 400: .*no"):
            server.complete("m", [0], 7)
    assert log.read_text(encoding="utf-8").startswith("ready soon")
    server.close()


def test_server_that_ends_tells_its_error(tmp_path: Path) -> None:
    text = "print('starting'); raise ValueError('head size 48 is not supported')"
    with pytest.raises(EngineFailed, match=r"^ValueError: head size 48 is not supported$"):
        EngineServer(command(tmp_path, text, 1), 1, tmp_path / "log", {})


def test_server_that_hangs_is_ended(tmp_path: Path) -> None:
    text = "import time; time.sleep(60)"
    with pytest.raises(EngineFailed, match=r"^not ready within 0.2 s"):
        EngineServer(command(tmp_path, text, 1), 1, tmp_path / "log", {}, timeout_s=0.2)


def test_last_error_is_the_engines_own() -> None:
    log = (
        "(Core pid=7) ERROR 11-30 [core.py:9] ValueError: Must provide transformer_layer_config\n"
        "  File x\n"
        "RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    assert last_error(log) == "ValueError: Must provide transformer_layer_config"
    assert last_error("a\n\nlast line \n") == "last line"
    assert last_error("") == "it said nothing"


def test_reply_without_figures_is_plain() -> None:
    answer = read_answer({"choices": [{"token_ids": [3]}], "metrics": None}, 0.5)
    assert (answer.token_ids, answer.accepted, answer.seconds) == ((3,), None, 0.5)
