"""`EngineServer`: another engine's OpenAI server as a process, asked for token ids, greedily.

It knows no engine's flags. Only this machine is asked, and its group of processes is its own.
"""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import httpx

from engine_answers import EngineAnswer

START_TIMEOUT_S = 600.0
REQUEST_TIMEOUT_S = 600.0
END_TIMEOUT_S = 30.0
POLL_S = 1.0
_ERROR = re.compile(r"\b[A-Za-z_.]*(?:Error|Exception|NotImplemented)\b.*")


class EngineFailed(Exception):
    """An engine did not start, or refused; the message is its own last error."""


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def last_error(log: str) -> str:
    """The last line of a log that names an error, without what the logger puts before it."""
    found = [match.group() for line in log.splitlines() if (match := _ERROR.search(line))]
    # The parent process repeats the engine's failure as "Engine core initialization failed".
    own = [line for line in found if "initialization failed" not in line]
    if own or found:
        return (own or found)[-1].strip()
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


class EngineServer:
    """A server started by `command`, which is given `port`; ready once /health answers 200.

    Raises EngineFailed, with the engine's own error, when it ends before that or takes too long.
    """

    def __init__(
        self,
        command: Sequence[str],
        port: int,
        log: Path,
        variables: Mapping[str, str],
        *,
        timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait(timeout_s)
        except BaseException:
            self.close()
            raise

    def _wait(self, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        while not self._healthy():
            if self._process.poll() is not None:
                text = self._log.read_text(encoding="utf-8", errors="replace")
                raise EngineFailed(last_error(text))
            if time.monotonic() > until:
                raise EngineFailed(f"not ready within {timeout_s:g} s; see {self._log}")
            time.sleep(POLL_S)

    def _healthy(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=POLL_S * 5).status_code == 200
        except httpx.TransportError:
            return False

    def close(self) -> None:
        """End it and its children; harmless when they have ended."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def complete(self, model: str, prompt_ids: Sequence[int], max_tokens: int) -> EngineAnswer:
        """The greedy answer to `prompt_ids`, as ids. Raises EngineFailed for a refusal."""
        body = {
            "model": model,
            "prompt": list(prompt_ids),
            "max_tokens": max_tokens,
            "temperature": 0,
            "return_token_ids": True,
        }
        started = time.monotonic()
        reply = httpx.post(f"{self.url}/v1/completions", json=body, timeout=REQUEST_TIMEOUT_S)
        seconds = time.monotonic() - started
        if reply.status_code != 200:
            raise EngineFailed(f"status {reply.status_code}: {reply.text[:500]}")
        return read_answer(cast(dict[str, object], reply.json()), seconds)


def read_answer(reply: Mapping[str, object], seconds: float) -> EngineAnswer:
    """The ids of the first choice, and what `metrics.speculative_decoding` says of its steps."""
    choices = cast(list[Mapping[str, object]], reply["choices"])
    metrics = cast(Mapping[str, object], reply.get("metrics") or {})
    told = cast(Mapping[str, list[int] | None], metrics.get("speculative_decoding") or {})
    accepted = told.get("per_step_accepted")
    return EngineAnswer(
        token_ids=tuple(cast(list[int], choices[0]["token_ids"])),
        seconds=seconds,
        accepted=None if accepted is None else tuple(accepted),
    )
