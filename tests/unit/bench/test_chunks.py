"""Events and refusals in the shapes that servers send."""

import pytest

from blockdraft.bench.chunks import Chunk, Usage, read_chunk
from blockdraft.bench.stream import read_refusal


def chat(**delta: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


@pytest.mark.parametrize(
    ("document", "has_text"),
    [
        (chat(role="assistant"), False),
        (chat(role="assistant", content=""), False),
        (chat(content="a"), True),
        (chat(content=None, reasoning="hm"), True),
        (chat(reasoning_content="hm"), True),
        (chat(tool_calls=[{"index": 0, "function": {"name": "f"}}]), True),
        ({"choices": [{"index": 0, "text": "a"}]}, True),
        ({"choices": [{"index": 0, "text": ""}]}, False),
        ({"choices": []}, False),
        ({"choices": "odd"}, False),
        ({"choices": [{"message": {"content": "whole"}}]}, True),
    ],
)
def test_what_is_text(document: dict[str, object], has_text: bool) -> None:
    assert read_chunk(document) == Chunk(has_text, None, None, None, None)


def test_usage_with_gaps() -> None:
    usage: dict[str, object] = {"prompt_tokens": 3, "completion_tokens": 7.0}
    assert read_chunk({"choices": [], "usage": usage}).usage == Usage(3, None, 7)
    usage["prompt_tokens_details"] = {"cached_tokens": 2}
    usage["completion_tokens"] = True
    assert read_chunk({"usage": usage}).usage == Usage(3, 2, None)
    assert read_chunk({"usage": None}).usage is None


def test_errors_in_the_middle() -> None:
    for error in ({"message": "no\n more"}, "no more", {"detail": "no more"}):
        assert read_chunk({"error": error}).error == "no more"


@pytest.mark.parametrize(
    ("status", "text", "kind", "ends_run"),
    [
        (400, '{"error": {"message": "maximum context length is 4096"}}', "prompt too long", False),
        (400, '{"error": {"type": "exceed_context_size_error"}}', "prompt too long", False),
        (400, '{"error": {"message": "Input is longer than the model"}}', "prompt too long", False),
        (400, '{"message": "The prompt is too long"}', "prompt too long", False),
        (400, '{"error": {"message": "unknown field a"}}', "refused", False),
        (401, "Unauthorized", "refused", True),
        (403, "", "refused", True),
        (404, '{"detail": "Not Found"}', "refused", True),
        (503, '{"error": {"message": "overloaded"}}', "refused", False),
    ],
)
def test_refusals(status: int, text: str, kind: str, ends_run: bool) -> None:
    failure = read_refusal(status, text)
    assert (failure.kind, failure.ends_run) == (kind, ends_run)
    assert failure.message.startswith(f"status {status}: ") and "\n" not in failure.message
