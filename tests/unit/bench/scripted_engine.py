"""`ScriptedEngine`: an HTTP server that answers in an engine's dialect, with known acceptance.

What each answer accepts is drawn from its prompt, so a test can compute every figure on its own.
"""

import json
import random
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

NUM_DRAFTS = 4
"""Drafts of every step."""

OWNERS = {
    "blockdraft": "blockdraft",
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llamacpp",
    "trtllm": "tensorrt_llm",
    "plain": "someone",
}
OWN_FIELDS = {"blockdraft": {"blockdraft"}, "sglang": {"return_meta_info"}}
KNOWN_FIELDS = {
    *("model", "messages", "prompt", "max_tokens", "temperature", "seed", "ignore_eos"),
    *("stream", "stream_options", "chat_template_kwargs"),
}
Body = dict[str, object]


def steps_of(text: str) -> list[int]:
    """Accepted drafts of each step of the answer to a prompt."""
    source = random.Random(text)
    return [source.randint(0, NUM_DRAFTS) for _ in range(source.randint(3, 9))]


def prompt_text(body: Body) -> str:
    messages = body.get("messages")
    if messages is None:
        return str(body["prompt"])
    return cast("list[dict[str, str]]", messages)[-1]["content"]


def ignore_error(request: object, client_address: object) -> None:
    pass


@dataclass(slots=True)
class Counted:
    """What the engine has counted."""

    steps: int = 0
    accepted: int = 0
    tokens: int = 0
    by_position: list[int] = field(default_factory=lambda: [0] * NUM_DRAFTS)


class ScriptedEngine:
    """Serves "tiny" from its making on. Attributes change how it behaves."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.key: str | None = None
        self.models = ["tiny"]
        self.tells_counts = True
        self.tells_usage = True
        self.has_metrics = dialect != "plain"
        self.streams = True
        self.first_text = "a"
        self.line_end = b"\n"
        self.context = 1000
        self.delay = 0.0
        self.requests_until_death: int | None = None
        self.broken: dict[str, str] = {}
        self.lies: Body = {}
        self.bodies: list[Body] = []
        self.paths: list[str] = []
        self.counted = Counted()
        self.most_running = 0
        self._running = 0
        self._lock = threading.Lock()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), make_handler(self))
        self.http.daemon_threads = True
        self.http.handle_error = ignore_error  # clients that time out go away
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self._thread = threading.Thread(
            target=self.http.serve_forever, kwargs={"poll_interval": 0.01}
        )
        self._thread.start()
        self.is_down = threading.Event()

    def stop(self) -> None:
        """Nothing listens on its port afterwards."""
        if not self.is_down.is_set():
            self.http.shutdown()
            self._thread.join()
            self.http.server_close()
            self.is_down.set()

    def count(self, steps: list[int]) -> None:
        with self._lock:
            self.counted.steps += len(steps)
            self.counted.accepted += sum(steps)
            self.counted.tokens += 1 + len(steps) + sum(steps)
            for accepted in steps:
                for position in range(accepted):
                    self.counted.by_position[position] += 1

    def refuse(self, body: Body) -> tuple[int, object] | None:
        """A status and what is said with it; None for a request that is answered."""
        known = KNOWN_FIELDS | OWN_FIELDS.get(self.dialect, set())
        if self.dialect in ("blockdraft", "trtllm") and (unknown := set(body) - known):
            return 400, {"error": {"message": f"unknown field {unknown.pop()}"}}
        if body["model"] not in self.models:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
        if len(prompt_text(body)) > self.context:
            message = f"This model's maximum context length is {self.context} tokens."
            return 400, {"error": {"message": message, "code": 400}}
        return None

    def begin(self, body: Body) -> bool:
        """Whether the engine is still alive."""
        with self._lock:
            self.bodies.append(body)
            self._running += 1
            self.most_running = max(self.most_running, self._running)
            if self.requests_until_death is None:
                return True
            self.requests_until_death -= 1
            return self.requests_until_death >= 0

    def end(self) -> None:
        with self._lock:
            self._running -= 1

    def last_fields(self, body: Body, steps: list[int]) -> Body:
        """What the last chunk of an answer carries besides its choices."""
        accepted, drafted = sum(steps), NUM_DRAFTS * len(steps)
        fields: Body = {}
        if self.tells_usage:
            fields["usage"] = {
                "prompt_tokens": len(prompt_text(body)),
                "completion_tokens": 1 + len(steps) + accepted,
                "prompt_tokens_details": {"cached_tokens": 2},
            }
        if self.lies:
            return fields | self.lies
        if not self.tells_counts:
            return fields
        is_asked = body.get("blockdraft") == {"metrics": "summary"}
        if self.dialect == "vllm" or (self.dialect == "blockdraft" and is_asked):
            histogram = [steps.count(kept) for kept in range(NUM_DRAFTS + 1)]
            fields["metrics"] = {
                "speculative_decoding": {
                    "num_spec_steps": len(steps),
                    "num_draft_tokens": drafted,
                    "num_accepted_draft_tokens": accepted,
                    "acceptance_histogram": histogram,
                }
            }
        if self.dialect == "llamacpp":
            fields["timings"] = {"draft_n": drafted, "draft_n_accepted": accepted}
        if self.dialect == "sglang" and body.get("return_meta_info"):
            length = (len(steps) + accepted) / len(steps)
            info = {"spec_verify_ct": len(steps), "spec_accept_length": length}
            fields["choices"] = [{"index": 0, "delta": {}, "meta_info": info}]
        return fields

    def page(self) -> str:
        """The metrics in the engine's names; of another model there is something too."""
        now = self.counted
        drafted = NUM_DRAFTS * now.steps
        if self.dialect == "sglang":
            return (
                f'sglang:spec_verify_calls_total{{model_name="tiny"}} {now.steps}\n'
                f'sglang:generation_tokens_total{{model_name="tiny"}} {now.tokens}.0\n'
                'sglang:spec_accept_length{model_name="tiny"} 2.75\n'
                'sglang:spec_accept_rate{model_name="tiny"} 0.4375\n'
            )
        if self.dialect == "trtllm":
            return "# TYPE trtllm:spec_accept_length gauge\ntrtllm:spec_accept_length 2.5\n"
        prefix = "llamacpp:" if self.dialect == "llamacpp" else "vllm:"
        name = f"{prefix}spec_decode_num_"
        label = "" if self.dialect == "llamacpp" else 'model_name="tiny",engine="0"'
        lines = [
            f"# HELP {name}drafts_total drafts",
            f"{name}drafts_total{{{label}}} {now.steps}.0",
            f"{name}draft_tokens_total{{{label}}} {float(drafted)}",
            f"{name}accepted_tokens_total{{{label}}} {now.accepted}",
        ]
        if label:
            lines.append(f'{name}drafts_total{{model_name="other",engine="0"}} 1e6')
        for position, number in enumerate(now.by_position):
            inner = f'{label},position="{position}"'.removeprefix(",")
            lines.append(f"{name}accepted_tokens_per_pos_total{{{inner}}} {number}.0")
        return "\n".join(lines) + "\n"


def make_handler(engine: ScriptedEngine) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                if not self.has_key():
                    return self.say(401, {"error": {"message": "Unauthorized"}})
                owner = OWNERS[engine.dialect]
                listed = [{"id": name, "owned_by": owner} for name in engine.models]
                return self.say(200, {"object": "list", "data": listed})
            if not engine.has_metrics:
                return self.say(404, {"detail": "Not Found"})
            if self.path == "/metrics" and engine.dialect == "trtllm":
                return self.say(200, [{"iter": 1}])
            if self.path == ("/prometheus" * (engine.dialect == "trtllm")) + "/metrics":
                return self.send(200, "text/plain", engine.page().encode())
            return self.say(404, {"detail": "Not Found"})

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body = cast(Body, json.loads(self.rfile.read(length)))
            if self.path not in ("/v1/chat/completions", "/v1/completions"):
                return self.say(404, {"detail": "Not Found"})
            engine.paths.append(self.path)
            try:
                if engine.begin(body):
                    self.answer(body)
                else:
                    self.die()
            finally:
                engine.end()

        def answer(self, body: Body) -> None:
            text = prompt_text(body)
            if not self.has_key():
                return self.say(401, {"error": {"message": "Unauthorized"}})
            refused = engine.refuse(body)
            if refused is not None:
                return self.say(*refused)
            steps = steps_of(text)
            how = engine.broken.get(text, "")
            if how == "500":
                return self.say(500, "no JSON at all")
            if not engine.streams:
                engine.count(steps)
                choice = {"message": {"content": "text"}, "finish_reason": "stop"}
                return self.say(200, {"choices": [choice], **engine.last_fields(body, steps)})
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            self.event({"choices": [{"index": 0, "delta": {"role": "assistant"}}]})
            time.sleep(engine.delay)
            self.event(self.piece(body, engine.first_text, None))
            for accepted in steps:
                time.sleep(engine.delay)
                if how == "hangs":
                    time.sleep(1.5)
                if how == "error":
                    return self.event({"error": {"message": "the engine failed"}})
                if how == "cut":
                    return None
                self.event(self.piece(body, "b" * (accepted + 1), None))
            engine.count(steps)
            self.event(self.piece(body, "", "stop"))
            self.event({"choices": [], **engine.last_fields(body, steps)})
            self.wfile.write(b"data: [DONE]\n\n")
            return None

        def piece(self, body: Body, text: str, reason: str | None) -> Body:
            said: Body = {"text": text} if "prompt" in body else {"delta": {"content": text}}
            return {"choices": [{"index": 0, "finish_reason": reason, **said}]}

        def event(self, document: Body) -> None:
            text = json.dumps(document, ensure_ascii=False)
            self.wfile.write(b"data: " + text.encode() + engine.line_end * 2)

        def die(self) -> None:
            self.close_connection = True
            threading.Thread(target=engine.stop).start()
            engine.is_down.wait()

        def has_key(self) -> bool:
            sent = self.headers["Authorization"]
            return engine.key is None or sent == f"Bearer {engine.key}"

        def say(self, status: int, document: object) -> None:
            self.send(status, "application/json", json.dumps(document).encode())

        def send(self, status: int, kind: str, raw: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
