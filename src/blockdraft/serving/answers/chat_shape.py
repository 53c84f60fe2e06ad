"""Deltas as OpenAI's chat objects: chunks of a stream, or one message that adds them up.

Pure; ids of tool calls are the only thing made up here.
"""

import secrets
from dataclasses import dataclass, field

from blockdraft.parsing.parts import ToolCallArguments, ToolCallStart
from blockdraft.serving.answers.choice import Delta
from blockdraft.serving.answers.logprobs import LogprobShapes
from blockdraft.serving.answers.options import Shown
from blockdraft.serving.answers.step_details import StepDetails
from blockdraft.serving.answers.token_texts import TokenTexts


@dataclass(slots=True)
class _Call:
    """A tool call as it grows."""

    name: str
    id: str
    arguments: str = ""


class ChatChoice:
    """One choice. `add` each delta in order; every one of them gives its chunk's choice too."""

    def __init__(self, index: int, shown: Shown, tokens: TokenTexts) -> None:
        self._index = index
        self._shown = shown
        self._shapes = LogprobShapes(tokens, as_ids=shown.tokens_as_ids)
        self._details = StepDetails(tokens)
        self._content = ""
        self._reasoning = ""
        self._calls: dict[int, _Call] = {}
        self._logprobs: list[object] = []
        self._ids: list[int] = []
        self._last: Delta | None = None

    def add(self, delta: Delta) -> dict[str, object] | None:
        """The choice of this delta's chunk; None when there is nothing to send."""
        self._last = delta
        self._content += delta.content
        self._reasoning += delta.reasoning
        self._ids += delta.ids
        new: dict[str, object] = {}
        if delta.reasoning:
            new["reasoning"] = new["reasoning_content"] = delta.reasoning
        if delta.content:
            new["content"] = delta.content
        if calls := self._add_calls(delta):
            new["tool_calls"] = calls
        logprobs = None
        if self._shown.logprobs:
            logprobs = self._shapes.chat(delta.ids, delta.logprobs)
            entries = logprobs["content"]
            assert isinstance(entries, list)
            self._logprobs += entries
        details = self._details.add(delta) if self._shown.step_details else None
        shows_ids = self._shown.token_ids or self._shown.step_details
        if not (new or logprobs is not None or shows_ids or delta.ending):
            return None
        return {
            "index": self._index,
            "delta": new,
            "logprobs": logprobs,
            **self._ending(delta),
            **self._token_fields(list(delta.ids), details),
        }

    def opening(self) -> dict[str, object]:
        """The choice of the first chunk, which says whose turn it is."""
        return {
            "index": self._index,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }

    def whole(self) -> dict[str, object]:
        """The choice of a plain response."""
        assert self._last is not None, "a choice has at least one token"
        message: dict[str, object] = {
            "role": "assistant",
            "content": None if self._calls and not self._content else self._content,
            "refusal": None,
        }
        if self._reasoning:
            message["reasoning"] = message["reasoning_content"] = self._reasoning
        if self._calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self._calls.values()
            ]
        logprobs = {"content": self._logprobs, "refusal": None} if self._shown.logprobs else None
        return {
            "index": self._index,
            "message": message,
            "logprobs": logprobs,
            **self._ending(self._last),
            **self._token_fields(self._ids, self._details.whole()),
        }

    def _add_calls(self, delta: Delta) -> list[dict[str, object]]:
        """What the delta adds to tool calls, one entry for each call it touches."""
        touched: dict[int, _CallDelta] = {}
        for part in delta.parts:
            if isinstance(part, ToolCallStart):
                call = _Call(part.name, f"call_{secrets.token_hex(12)}")
                self._calls[part.index] = call
                touched[part.index] = _CallDelta(started=call)
            elif isinstance(part, ToolCallArguments):
                self._calls[part.index].arguments += part.text
                touched.setdefault(part.index, _CallDelta()).arguments += part.text
        return [entry.chunk(index) for index, entry in touched.items()]

    def _ending(self, delta: Delta) -> dict[str, object]:
        made: dict[str, object] = {"finish_reason": delta.ending}
        if delta.ending is not None:
            made["stop_reason"] = delta.stop_reason
        return made

    def _token_fields(self, ids: list[int], details: object) -> dict[str, object]:
        made: dict[str, object] = {}
        if self._shown.token_ids:
            made["token_ids"] = ids
        if self._shown.step_details:
            made["blockdraft"] = details
        return made


@dataclass(slots=True)
class _CallDelta:
    """What one chunk adds to one call."""

    started: _Call | None = None
    arguments: str = field(default="")

    def chunk(self, index: int) -> dict[str, object]:
        if self.started is None:
            return {"index": index, "function": {"arguments": self.arguments}}
        return {
            "index": index,
            "id": self.started.id,
            "type": "function",
            "function": {"name": self.started.name, "arguments": self.arguments},
        }
