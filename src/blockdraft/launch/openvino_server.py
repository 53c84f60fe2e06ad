"""A small OpenAI-shaped server around OpenVINO GenAI's `LLMPipeline` with a DFlash drafter.

It runs in OpenVINO's own environment, so it imports only the standard library and openvino_genai.
One request is answered at a time, greedily: the pipeline can't do more with this kind of drafter.

    python openvino_server.py openvino_server.json
"""

import importlib
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Protocol, cast

DEFAULT_NEW_TOKENS = 256


class Config(Protocol):
    """The part of openvino_genai's GenerationConfig that is set here."""

    max_new_tokens: int
    num_assistant_tokens: int
    do_sample: bool
    ignore_eos: bool
    apply_chat_template: bool
    stop_strings: set[str]


class Encoded(Protocol):
    @property
    def input_ids(self) -> "Shaped": ...


class Shaped(Protocol):
    @property
    def shape(self) -> Sequence[int]: ...


class Tokenizer(Protocol):
    def apply_chat_template(
        self, history: Sequence[Mapping[str, object]], add_generation_prompt: bool
    ) -> str: ...

    def encode(self, prompt: str) -> Encoded: ...


class Metrics(Protocol):
    def get_num_generated_tokens(self) -> int: ...


class Results(Protocol):
    @property
    def texts(self) -> Sequence[str]: ...

    @property
    def perf_metrics(self) -> Metrics: ...


class Pipeline(Protocol):
    def get_tokenizer(self) -> Tokenizer: ...

    def generate(
        self, prompts: Sequence[str], config: Config, streamer: Callable[[str], bool]
    ) -> Results: ...


class Scheduler(Protocol):
    enable_prefix_caching: bool


class GenAI(Protocol):
    """The part of the module openvino_genai that is used here."""

    def GenerationConfig(self) -> Config: ...

    def SchedulerConfig(self) -> Scheduler: ...

    def draft_model(self, path: str, device: str, **properties: object) -> object: ...

    def LLMPipeline(self, path: str, device: str, **properties: object) -> Pipeline: ...


class BadRequest(Exception):
    """A request that can't be served as it is; the message is told to the client."""


class Model:
    """The pipeline and what is asked of it, one request at a time."""

    def __init__(self, genai: GenAI, settings: Mapping[str, object]) -> None:
        self._genai = genai
        self.name = str(settings["target"])
        self._num_drafts = int(cast(int, settings["num_assistant_tokens"]))
        self._max_context = cast("int | None", settings["max_context"])
        device, precision = str(settings["device"]), settings["precision"]
        hints = {} if precision is None else {"INFERENCE_PRECISION_HINT": precision}
        if precision == "f32":
            hints["KV_CACHE_PRECISION"] = precision  # the hint alone leaves the cache lower
        scheduler = genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False  # refused together with a DFlash drafter
        drafter = genai.draft_model(str(settings["drafter"]), device, **hints)
        self._pipeline = genai.LLMPipeline(
            self.name, device, draft_model=drafter, scheduler_config=scheduler, **hints
        )
        self._tokenizer = self._pipeline.get_tokenizer()
        self._one_at_a_time = threading.Lock()

    def prompt(self, body: Mapping[str, object], *, chat: bool) -> str:
        if not chat:
            if not isinstance(body.get("prompt"), str):
                raise BadRequest("prompt has to be one string")
            return str(body["prompt"])
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise BadRequest("messages has to be a list of at least one message")
        history = cast("list[Mapping[str, object]]", messages)
        return self._tokenizer.apply_chat_template(history, add_generation_prompt=True)

    def answer(
        self, prompt: str, body: Mapping[str, object], on_text: Callable[[str], None]
    ) -> tuple[int, int]:
        """Hand the answer to `on_text` in pieces; returns prompt and answer lengths in tokens."""
        config = self._configured(body)
        with self._one_at_a_time:
            prompt_len = int(self._tokenizer.encode(prompt).input_ids.shape[-1])
            limit = self._max_context
            if limit is not None and prompt_len + config.max_new_tokens > limit:
                raise BadRequest(
                    f"{prompt_len} tokens of prompt and {config.max_new_tokens} of answer are more "
                    f"than {limit}"
                )

            def stream(piece: str) -> bool:
                on_text(piece)
                return False  # true would end the answer

            results = self._pipeline.generate([prompt], config, stream)
            return prompt_len, results.perf_metrics.get_num_generated_tokens()

    def _configured(self, body: Mapping[str, object]) -> Config:
        if body.get("temperature", 0) not in (0, None):
            raise BadRequest("temperature has to be 0: this pipeline drafts greedily")
        if body.get("n", 1) not in (1, None):
            raise BadRequest("n has to be 1")
        asked = body.get("max_completion_tokens") or body.get("max_tokens") or DEFAULT_NEW_TOKENS
        if not isinstance(asked, int) or asked < 1:
            raise BadRequest("max_tokens has to be a whole number of at least 1")
        stop = cast("str | list[str]", body.get("stop") or [])
        config = self._genai.GenerationConfig()
        config.max_new_tokens = asked
        config.num_assistant_tokens = self._num_drafts
        config.do_sample = False
        config.ignore_eos = bool(body.get("ignore_eos", False))
        config.apply_chat_template = False  # done above, for chats only
        config.stop_strings = {stop} if isinstance(stop, str) else set(stop)
        return config


class Handler(BaseHTTPRequestHandler):
    """/health, /v1/models, /v1/completions and /v1/chat/completions."""

    protocol_version = "HTTP/1.1"

    def __init__(self, model: Model, *args: object) -> None:
        self._model = model
        super().__init__(*args)  # pyright: ignore[reportArgumentType]: http.server passes them on

    def do_GET(self) -> None:
        if self.path == "/health":
            self._send(200, {"status": "ok"})
        elif self.path == "/v1/models":
            entry = {"id": self._model.name, "object": "model", "owned_by": "openvino"}
            self._send(200, {"object": "list", "data": [entry]})
        else:
            self._refuse(404, f"there is no {self.path}")

    def do_POST(self) -> None:
        chat = self.path == "/v1/chat/completions"
        try:
            body = self._body()
            if not chat and self.path != "/v1/completions":
                return self._refuse(404, f"there is no {self.path}")
            prompt = self._model.prompt(body, chat=chat)
            return (
                self._stream(prompt, body, chat)
                if body.get("stream")
                else self._whole(prompt, body, chat)
            )
        except BadRequest as error:
            self._refuse(400, str(error))

    def _body(self) -> Mapping[str, object]:
        try:
            parsed: object = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)))
        except (ValueError, TypeError) as error:
            raise BadRequest(f"the body is no JSON: {error}") from error
        if not isinstance(parsed, dict):
            raise BadRequest("the body has to be a JSON object")
        return cast("dict[str, object]", parsed)

    def _whole(self, prompt: str, body: Mapping[str, object], chat: bool) -> None:
        pieces: list[str] = []
        lengths = self._model.answer(prompt, body, pieces.append)
        text = "".join(pieces)
        said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        self._send(200, self._shape(said, lengths, body, chat, part=False))

    def _stream(self, prompt: str, body: Mapping[str, object], chat: bool) -> None:
        begun = False

        def write(event: str) -> None:
            nonlocal begun
            if not begun:
                self.close_connection = True  # the end of the answer is the end of the connection
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                begun = True
            self.wfile.write(f"data: {event}\n\n".encode())
            self.wfile.flush()

        def piece(text: str) -> None:
            said = {"delta": {"role": "assistant", "content": text}} if chat else {"text": text}
            write(json.dumps(self._shape(said, None, body, chat, part=True)))

        lengths = self._model.answer(prompt, body, piece)
        last: dict[str, object] = {"delta": {}} if chat else {"text": ""}
        write(json.dumps(self._shape(last, lengths, body, chat, part=True)))
        write("[DONE]")

    def _shape(
        self,
        said: Mapping[str, object],
        lengths: tuple[int, int] | None,
        body: Mapping[str, object],
        chat: bool,
        *,
        part: bool,
    ) -> dict[str, object]:
        """An answer, or a part of one; `lengths` is known, and told, at its end."""
        reason = None
        if lengths is not None:
            asked = body.get("max_completion_tokens") or body.get("max_tokens")
            reason = "length" if lengths[1] == (asked or DEFAULT_NEW_TOKENS) else "stop"
        kind = "chat.completion" if chat else "text_completion"
        shape: dict[str, object] = {
            "id": f"ov-{time.monotonic_ns()}",
            "object": kind + (".chunk" if part and chat else ""),
            "created": int(time.time()),
            "model": self._model.name,
            "choices": [{"index": 0, "finish_reason": reason, **said}],
        }
        if lengths is not None:
            names = ("prompt_tokens", "completion_tokens", "total_tokens")
            shape["usage"] = dict(zip(names, (*lengths, sum(lengths)), strict=True))
        return shape

    def _refuse(self, status: int, message: str) -> None:
        self._send(status, {"error": {"message": message, "code": status}})

    def _send(self, status: int, value: object) -> None:
        payload = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)


def main() -> None:
    settings = cast("dict[str, object]", json.loads(Path(sys.argv[1]).read_text("utf-8")))
    model = Model(cast(GenAI, importlib.import_module("openvino_genai")), settings)
    address = (str(settings["host"]), int(cast(int, settings["port"])))
    ThreadingHTTPServer(address, partial(Handler, model)).serve_forever()


if __name__ == "__main__":
    main()
