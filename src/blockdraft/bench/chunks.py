"""One event of a streamed answer (or a whole answer that was not streamed), read.

It keeps no time and no state; `stream.py` does.
"""

from typing import NamedTuple

from blockdraft.bench.documents import (
    Document,
    as_list,
    as_object,
    count_in,
    object_in,
    text_in,
)
from blockdraft.bench.response_fields import ResponseCounts, read_counts

TEXTS = ("content", "reasoning", "reasoning_content", "text")


class Usage(NamedTuple):
    """Tokens as the server counted them; None where it does not say."""

    prompt: int | None
    cached: int | None
    completion: int | None


class Chunk(NamedTuple):
    """What one event says. `has_text`: the client has something more to show."""

    has_text: bool
    finish_reason: str | None
    usage: Usage | None
    counts: ResponseCounts | None
    error: str | None


def read_chunk(document: Document) -> Chunk:
    """An event of a stream, or a whole answer: both have their text one level down."""
    error = document.get("error")
    choice = next((as_object(choice) for choice in as_list(document.get("choices"))), None)
    said = object_in(choice, "delta") or object_in(choice, "message") or choice
    has_calls = bool(as_list(None if said is None else said.get("tool_calls")))
    return Chunk(
        has_text=has_calls or any(text_in(said, name) for name in TEXTS),
        finish_reason=text_in(choice, "finish_reason"),
        usage=_usage(object_in(document, "usage")),
        counts=read_counts(document),
        error=None if error is None else error_text(document),
    )


def error_text(document: Document) -> str:
    """The message of an error in any of the shapes that servers use, in one line."""
    error: object = document.get("error", document)
    fields = as_object(error)
    if fields is not None:
        found = [fields.get(name) for name in ("message", "detail", "error")]
        error = next((text for text in found if text), fields)
    return " ".join(str(error).split())[:300]


def _usage(fields: Document | None) -> Usage | None:
    if fields is None:
        return None
    return Usage(
        prompt=count_in(fields, "prompt_tokens"),
        cached=count_in(object_in(fields, "prompt_tokens_details"), "cached_tokens"),
        completion=count_in(fields, "completion_tokens"),
    )
