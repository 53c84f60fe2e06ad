"""The protocol of one JSON line a message between the harness and a peer's worker.

It knows no peer and imports the standard library only: it runs in every peer's own environment.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TextIO


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The first line in: what a worker loads.

    `model` is a Hugging Face folder, for llama.cpp a GGUF file; `drafter` likewise, None without
    one. `dtype` is float32 or bfloat16 (llama.cpp: whatever the file holds). `draft_len` is the
    number of drafts a step, None for the peer's own default. `context_len` bounds prompt + answer.
    """

    mode: str
    model: str
    dtype: str
    threads: int
    drafter: str | None = None
    draft_len: int | None = None
    context_len: int = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One greedy request. A stop id ends the answer and is its last token; no ids: never stop."""

    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    stop_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`seconds` run from request start to last token, prefill inside.

    `steps` are target passes after the prefill, None where the peer does not tell.
    """

    token_ids: tuple[int, ...]
    seconds: float
    steps: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A peer that is ready. `notes` are facts a reader of its figures has to know."""

    versions: Mapping[str, str]
    answer: Callable[[Request], Answer]
    notes: Sequence[str] = field(default_factory=tuple)


def serve(load: Callable[[Settings], Loaded]) -> None:
    """Read settings, load, say ready, then answer requests until standard input ends.

    Descriptor 1 is kept private to the protocol: what libraries print there goes to stderr. Every
    failure becomes one {"error": reason} line; a failed load ends the process with status 1.
    """
    out = _private_stdout()
    settings = Settings(**json.loads(sys.stdin.readline()))
    try:
        peer = load(settings)
    except Exception as error:  # noqa: BLE001  a foreign library raises what it likes; report it
        _say(out, {"error": _reason(error)})
        sys.exit(1)
    _say(out, {"ready": True, "versions": dict(peer.versions), "notes": list(peer.notes)})
    for line in sys.stdin:
        try:
            request = _read_request(line)
            message = _answer_message(request, peer.answer(request))
        except Exception as error:  # noqa: BLE001  as above; the next request may still work
            message = {"error": _reason(error)}
        _say(out, message)


def through_stop(token_ids: Iterable[int], stop_ids: Sequence[int]) -> tuple[int, ...]:
    """`token_ids` up to and with the first stop id."""
    kept: list[int] = []
    for token_id in token_ids:
        kept.append(token_id)
        if token_id in stop_ids:
            break
    return tuple(kept)


def accepted_length(num_tokens: int, steps: int | None) -> float | None:
    """Tokens for each target pass after the prefill; the first token is the prefill's own."""
    return (num_tokens - 1) / steps if steps else None


def peak_memory_bytes() -> int:
    """Largest resident size of this process so far, loading included."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._start


def settings_line(settings: Settings) -> str:
    return json.dumps(asdict(settings)) + "\n"


def request_line(request: Request) -> str:
    return json.dumps(asdict(request)) + "\n"


def _read_request(line: str) -> Request:
    fields = json.loads(line)
    return Request(
        prompt_ids=tuple(fields["prompt_ids"]),
        max_new_tokens=fields["max_new_tokens"],
        stop_ids=tuple(fields["stop_ids"]),
    )


def _answer_message(request: Request, answer: Answer) -> dict[str, object]:
    token_ids = through_stop(answer.token_ids, request.stop_ids)[: request.max_new_tokens]
    return {
        "token_ids": list(token_ids),
        "seconds": answer.seconds,
        "steps": answer.steps,
        "tau": accepted_length(len(token_ids), answer.steps),
        "peak_memory_bytes": peak_memory_bytes(),
    }


def _private_stdout() -> TextIO:
    private = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(private, "w", encoding="utf-8")


def _say(out: TextIO, message: Mapping[str, object]) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"
