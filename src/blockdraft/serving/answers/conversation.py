"""Messages and tools of a request as what a chat template reads.

It renders nothing and refuses only what no template can be given.
"""

import json
from collections.abc import Sequence
from typing import cast

from blockdraft.serving.errors import ApiError
from blockdraft.serving.protocol.messages import ChatMessageIn, TextPart, Tool, ToolCall
from blockdraft.target.text import ChatMessage


def template_messages(messages: Sequence[ChatMessageIn], template: str) -> list[ChatMessage]:
    """One mapping a message. Text parts are joined with line breaks, calls get their arguments as
    objects, and `developer` is `system` for a template that does not know it."""
    knows_developer = "developer" in template
    return [
        _message(message, place, knows_developer=knows_developer)
        for place, message in enumerate(messages)
    ]


def template_tools(tools: Sequence[Tool]) -> list[dict[str, object]]:
    """The definitions in the OpenAI shape, with what the client left out left out."""
    return [tool.model_dump(exclude_none=True) for tool in tools]


def message_text(content: str | list[TextPart] | None) -> str:
    """The text of a message's content."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content)


def _message(message: ChatMessageIn, place: int, *, knows_developer: bool) -> ChatMessage:
    role = message.role
    if role == "developer" and not knows_developer:
        role = "system"
    if message.content is None and role != "assistant":
        raise ApiError(f"messages.{place}.content: a {role} message needs text", param="messages")
    if message.tool_calls and role != "assistant":
        raise ApiError(
            f"messages.{place}.tool_calls: only the assistant makes calls", param="messages"
        )
    made: dict[str, object] = {"role": role, "content": message_text(message.content)}
    reasoning = message.reasoning or message.reasoning_content
    if reasoning:
        made["reasoning"] = made["reasoning_content"] = reasoning
    for name in ("name", "tool_call_id"):
        if (value := getattr(message, name)) is not None:
            made[name] = value
    if message.tool_calls:
        made["tool_calls"] = [_call(call, place) for call in message.tool_calls]
    return made


def _call(call: ToolCall, place: int) -> dict[str, object]:
    arguments = call.function.arguments
    if isinstance(arguments, str) and arguments.strip():
        arguments = _object(arguments, f"messages.{place}.tool_calls")
    made: dict[str, object] = {
        "type": "function",
        "function": {"name": call.function.name, "arguments": arguments or {}},
    }
    if call.id is not None:
        made["id"] = call.id
    return made


def _object(text: str, where: str) -> dict[str, object]:
    try:
        value = cast(object, json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ApiError(f"{where}: arguments are not JSON", param="messages") from error
    if not isinstance(value, dict):
        raise ApiError(f"{where}: arguments are no JSON object", param="messages")
    return cast(dict[str, object], value)
