"""llama.cpp as tests use it: started in a process of its own, asked over HTTP, always ended.

It reports what the engine counted; what should have been counted is the tests' business.
"""

import http.client
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO, cast
from urllib.parse import urlsplit

WORKER = Path(__file__).with_name("llamacpp_worker.py")
COUNTERS = "llamacpp:spec_decode_num_"


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaOptions:
    """GGUF files and limits. `n_max` drafts a step; a `drafter` of None is plain decoding."""

    target: str
    drafter: str | None = None
    n_max: int = 3
    context_len: int = 512
    threads: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaStep:
    """One verification: how many drafts it had, and how many of them the engine counted."""

    num_drafted: int
    num_accepted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaAnswer:
    """An answer without the token that ended it, and the steps that had a draft, in order."""

    token_ids: tuple[int, ...]
    text: str
    steps: tuple[LlamaStep, ...]
    stop_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCounters:
    """What `/metrics` has counted since the start."""

    steps: int
    drafted: int
    accepted: int
    accepted_by_position: tuple[int, ...]


class EngineDied(Exception):
    """The engine's process ended by itself; the text is its exit status and last lines."""


class LlamaProcess:
    """A running server; get one from `llamacpp`."""

    def __init__(self, address: str) -> None:
        self._netloc = urlsplit(address).netloc

    @property
    def url(self) -> str:
        """Its root, for clients of their own."""
        return f"http://{self._netloc}"

    def complete(self, prompt_ids: Sequence[int], max_new_tokens: int) -> LlamaAnswer:
        """Greedy, streamed, so that every step's counts are seen."""
        body = _request(prompt_ids, max_new_tokens) | {"stream": True, "timings_per_token": True}
        chunks = [
            cast(dict[str, object], json.loads(line.removeprefix("data: ")))
            for line in self._call("POST", "/completion", body).splitlines()
            if line.startswith("data: {")
        ]
        last = chunks[-1]
        token_ids = tuple(i for chunk in chunks for i in cast(list[int], chunk["tokens"]))
        if last["tokens_evaluated"] != len(prompt_ids) or last["truncated"]:
            raise AssertionError(f"llama.cpp read another prompt: {last}")
        if last["tokens_predicted"] != len(token_ids):
            raise AssertionError("tokens of a split character are not streamed; use `plain_ids`")
        return LlamaAnswer(
            token_ids=token_ids,
            text="".join(str(chunk["content"]) for chunk in chunks),
            steps=_steps(chunks),
            stop_type=str(last["stop_type"]),
        )

    def plain_ids(self, prompt_ids: Sequence[int], max_new_tokens: int) -> tuple[int, ...]:
        """The ids of the same answer in one piece, for texts that split characters."""
        body = _request(prompt_ids, max_new_tokens)
        return tuple(json.loads(self._call("POST", "/completion", body))["tokens"])

    def tokenize(self, text: str) -> tuple[int, ...]:
        body = {"content": text, "add_special": False, "parse_special": True}
        return tuple(json.loads(self._call("POST", "/tokenize", body))["tokens"])

    def counters(self) -> LlamaCounters:
        text = self._call("GET", "/metrics", None)

        def total(name: str) -> int:
            found = re.search(rf"^{COUNTERS}{name}_total (\S+)$", text, re.MULTILINE)
            return int(float(found[1])) if found else 0

        by_position = re.findall(
            rf'^{COUNTERS}accepted_tokens_per_pos_total{{position="\d+"}} (\S+)$',
            text,
            re.MULTILINE,
        )
        return LlamaCounters(
            steps=total("drafts"),
            drafted=total("draft_tokens"),
            accepted=total("accepted_tokens"),
            accepted_by_position=tuple(int(float(value)) for value in by_position),
        )

    def _call(self, method: str, path: str, body: Mapping[str, object] | None) -> str:
        connection = http.client.HTTPConnection(self._netloc, timeout=600)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read().decode("utf-8")
            if response.status != http.client.OK:
                raise AssertionError(f"llama.cpp answered {response.status}: {text[:300]}")
            return text
        finally:
            connection.close()


def _request(prompt_ids: Sequence[int], max_new_tokens: int) -> dict[str, object]:
    return {
        "prompt": list(prompt_ids),
        "n_predict": max_new_tokens,
        "temperature": 0.0,
        "return_tokens": True,
        "cache_prompt": False,
    }


def _steps(chunks: Sequence[Mapping[str, object]]) -> tuple[LlamaStep, ...]:
    """The counts are totals so far, the same in all tokens of one step."""
    steps: list[LlamaStep] = []
    drafted = accepted = 0
    for chunk in chunks:
        timings = cast(Mapping[str, int], chunk.get("timings", {}))
        now_drafted, now_accepted = timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)
        if now_drafted > drafted:
            steps.append(
                LlamaStep(num_drafted=now_drafted - drafted, num_accepted=now_accepted - accepted)
            )
            drafted, accepted = now_drafted, now_accepted
    return tuple(steps)


@contextmanager
def llamacpp(options: LlamaOptions) -> Generator[LlamaProcess]:
    """A loaded server for a while. Raises EngineDied when it ends while loading or answering."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            [sys.executable, str(WORKER), json.dumps(asdict(options))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise EngineDied(_last_words(process, log))
            try:
                yield LlamaProcess(json.loads(line)["address"])
            except (ConnectionError, http.client.HTTPException) as error:
                raise EngineDied(_last_words(process, log)) from error
        finally:
            process.stdin.close()
            try:
                process.wait(timeout=20)
            finally:
                process.kill()
                process.stdout.close()


def _last_words(process: subprocess.Popen[str], log: TextIO) -> str:
    status = process.wait(timeout=20)
    log.seek(0)
    return f"exit status {status}: " + log.read()[-2000:]
