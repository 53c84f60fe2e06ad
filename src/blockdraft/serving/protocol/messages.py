"""Chat messages and tools as clients send them.

Turning them into what a chat template reads is in `answers/conversation.py`.
"""

from typing import Annotated, Literal

from pydantic import Field

from blockdraft.serving.protocol.wire import JsonObject, Wire

ToolName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.\-]{1,64}$")]


class TextPart(Wire):
    """A piece of text; other kinds of content (images, audio) are not served here."""

    type: Literal["text"]
    text: str


class CalledFunction(Wire):
    name: str
    arguments: str | JsonObject | None = None


class ToolCall(Wire):
    """A call that the assistant made earlier."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None


class ChatMessageIn(Wire):
    """One message. The last four fields are what other servers' answers carry: null or empty."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: None = None
    annotations: Annotated[list[object], Field(max_length=0)] | None = None
    audio: None = None
    function_call: None = None


class FunctionDefinition(Wire):
    name: ToolName
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class Tool(Wire):
    type: Literal["function"]
    function: FunctionDefinition


class NamedFunction(Wire):
    name: ToolName


class NamedTool(Wire):
    type: Literal["function"]
    function: NamedFunction


ToolChoice = Literal["none", "auto", "required"] | NamedTool
