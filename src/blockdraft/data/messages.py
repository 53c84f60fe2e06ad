"""Lists of chat messages (OpenAI, ShareGPT) to user turns; the assistant's words are left out.

It applies no chat template. The target answers by itself, so what another model answered, called
or was told by a tool can't be kept: a conversation ends where it depends on that.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, cast

from blockdraft.errors import ConfigError

Role = Literal["system", "user", "assistant", "tool"]

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "function_call": "tool",
    "tool_call": "tool",
    "function_response": "tool",
    "tool_response": "tool",
}
TEXT_PARTS = ("text", "input_text")


class RefusedRow(ConfigError):
    """A row that no conversation can be made of; `reason` is the name that it is counted under."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Dialogue(NamedTuple):
    """The user's side of a conversation; `cut` tells that turns after a tool call were dropped."""

    system: str | None
    turns: tuple[str, ...]
    cut: bool


def read_messages(messages: list[object]) -> Dialogue:
    """The system prompt and the user turns of a list of messages.

    A user turn is one message; it is followed by nothing, or by an assistant message. From the
    first tool call or tool result on, nothing is kept. Raises RefusedRow for any other order of
    roles, for a system message that is not the first, and for contents that are not text.
    """
    system: str | None = None
    turns: list[str] = []
    previous: Role | None = None
    for index, value in enumerate(messages):
        if not isinstance(value, dict):
            raise RefusedRow("not_text", f"message {index} is not an object")
        message = cast("dict[str, object]", value)
        role = _role(message, index)
        if role == "tool" or (role == "assistant" and _calls_tool(message)):
            if not turns:
                raise RefusedRow("wrong_roles", f"message {index} ({role}) comes before any user")
            return Dialogue(system, tuple(turns), cut=_has_user(messages[index + 1 :]))
        _check_order(role, previous, index)
        if role == "user":
            turns.append(_user_text(message, index))
        elif role == "system":
            text = _content(message, index)
            system = text if text.strip() else None
        previous = role
    if not turns:
        raise RefusedRow("no_user_turn", "no message of a user")
    return Dialogue(system, tuple(turns), cut=False)


def check_text(text: str) -> str:
    """`text` itself; RefusedRow when it can't be written as UTF-8 (half a surrogate pair)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RefusedRow("bad_unicode", f"not valid Unicode text ({error.reason})") from error
    return text


def _role(message: Mapping[str, object], index: int) -> Role:
    role = _known_role(message)
    if role is None:
        name = str(message.get("role") or message.get("from"))
        raise RefusedRow("unknown_role", f"message {index} has the role {name[:40]!r}")
    return role


def _known_role(message: Mapping[str, object]) -> Role | None:
    name = message.get("role") or message.get("from")
    return ROLES.get(name.lower()) if isinstance(name, str) else None


def _check_order(role: Role, previous: Role | None, index: int) -> None:
    allowed: dict[Role | None, tuple[Role, ...]] = {
        None: ("system", "user"),
        "system": ("user",),
        "user": ("assistant",),
        "assistant": ("user",),
    }
    if role not in allowed[previous]:
        after = "at the start" if previous is None else f"after {previous}"
        raise RefusedRow("wrong_roles", f"message {index} is {role} {after}")


def _user_text(message: Mapping[str, object], index: int) -> str:
    text = _content(message, index)
    if not text.strip():
        raise RefusedRow("empty_turn", f"message {index} is an empty user turn")
    return text


def _content(message: Mapping[str, object], index: int) -> str:
    """The text of a message; several text parts are joined without anything between them."""
    value = message.get("content")
    if value is None:  # also where a table has columns for both shapes
        value = message.get("value")
    if value is None:
        return ""
    if isinstance(value, str):
        return check_text(value)
    if not isinstance(value, list):
        raise RefusedRow("not_text", f"message {index} holds a {type(value).__name__}")
    parts = [_part(part, index) for part in cast("list[object]", value)]
    return check_text("".join(parts))


def _part(part: object, index: int) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        fields = cast("dict[str, object]", part)
        text = fields.get("text")
        if fields.get("type", "text") in TEXT_PARTS and isinstance(text, str):
            return text
        kind = str(fields.get("type"))[:40]
        raise RefusedRow("not_text", f"message {index} has a part of type {kind!r}")
    raise RefusedRow("not_text", f"message {index} has a part that is not text")


def _calls_tool(message: Mapping[str, object]) -> bool:
    return bool(message.get("tool_calls") or message.get("function_call"))


def _has_user(messages: list[object]) -> bool:
    """Whether a user speaks in the messages that are dropped."""
    rest = [cast("dict[str, object]", value) for value in messages if isinstance(value, dict)]
    return any(_known_role(message) == "user" for message in rest)
