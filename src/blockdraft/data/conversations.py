"""Conversation: the prompts that one training sample is made of, and its line in a prepared file.

It holds no answers (the target writes them) and reads no files; other shapes are in `shapes.py`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from blockdraft.errors import ConfigError

KEYS = ("id", "category", "source", "license", "system", "turns", "tools")

Tool = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """User turns that are answered one after the other.

    `turns` has at least one turn, none of them blank. `source` names the file or data set,
    `category` and `license` are what its owner says of it. `tools` are JSON objects that are handed
    to the chat template as they are. Raises ConfigError for values outside of that.
    """

    id: str
    turns: tuple[str, ...]
    source: str
    category: str | None = None
    license: str | None = None
    system: str | None = None
    tools: tuple[Tool, ...] | None = None

    def __post_init__(self) -> None:
        if not self.id:
            raise ConfigError("a conversation needs an id that is not empty")
        if not self.turns:
            raise ConfigError(f"conversation {self.id!r} has no turns; give at least one user turn")
        for index, turn in enumerate(self.turns):
            if not turn.strip():
                raise ConfigError(
                    f"turn {index} of conversation {self.id!r} is empty; leave the conversation out"
                )


def to_json(conversation: Conversation) -> dict[str, object]:
    """The conversation as a JSON object; what is None is left out."""
    record: dict[str, object] = {
        "id": conversation.id,
        "category": conversation.category,
        "source": conversation.source,
        "license": conversation.license,
        "system": conversation.system,
        "turns": list(conversation.turns),
        "tools": None if conversation.tools is None else list(conversation.tools),
    }
    return {key: value for key, value in record.items() if value is not None}


def to_line(conversation: Conversation) -> str:
    """One line of a prepared file, its line feed included."""
    return json.dumps(to_json(conversation), ensure_ascii=False) + "\n"


def from_json(record: Mapping[str, object], *, source: str) -> Conversation:
    """The conversation of a JSON object in the prepared form; `source` for one that names none.

    Raises ConfigError for a key that is unknown, a value of the wrong kind, or no turns.
    """
    unknown = [key for key in record if key not in KEYS]
    if unknown:
        raise ConfigError(f"unknown key {unknown[0]!r}; a conversation has {', '.join(KEYS)}")
    identity = _text(record, "id")
    if identity is None:
        raise ConfigError('a conversation needs an "id", a string')
    turns = record.get("turns")
    if not is_list_of(turns, str):
        raise ConfigError(f'"turns" of {identity!r} must be a list of strings')
    tools = record.get("tools")
    if tools is not None and not is_list_of(tools, dict):
        raise ConfigError(f'"tools" of {identity!r} must be a list of objects')
    return Conversation(
        id=identity,
        turns=tuple(cast("list[str]", turns)),
        source=_text(record, "source") or source,
        category=_text(record, "category"),
        license=_text(record, "license"),
        system=_text(record, "system"),
        tools=None if tools is None else tuple(cast("list[Tool]", tools)),
    )


def is_list_of(value: object, kind: type) -> bool:
    """Whether `value` is a list whose items are all of type `kind`."""
    return isinstance(value, list) and all(
        isinstance(item, kind) for item in cast("list[object]", value)
    )


def _text(record: Mapping[str, object], key: str) -> str | None:
    value = record.get(key)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f'"{key}" must be a string, not {type(value).__name__}')
    return value
