"""The shapes that rows of prompts come in, and the user turns of each.

It reads no files; roles and contents of chat messages are in `messages.py`.

    turns          {"turns": ["..", ..]}
    request        {"body": {..}} or {"request": {..}}, with one of the shapes below inside
    messages       {"messages": [{"role": "user", "content": ".." or [text parts]}, ..]}
    conversations  {"conversations": [{"from": "human", "value": ".."}, ..]}, or with role, content
    instruction    {"instruction": "..", "input": ".."}, joined by a line feed
    prompt         {"prompt": ".."} (or a list of messages)
    question       {"question": ".."}

The first that fits is taken, in this order. Keys that are not named here are ignored: answers,
scores and sampling settings are none of a prompt's business. {"text": ..} is no shape: such rows
are mostly whole documents or chats that are already rendered; name the key where it is a prompt.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple, cast

from blockdraft.data.conversations import Tool, is_list_of
from blockdraft.data.messages import Dialogue, RefusedRow, check_text, read_messages

WRAPPERS = ("body", "request")
ID_KEYS = ("id", "question_id", "task_id", "custom_id", "prompt_id", "uuid")


class ParsedRow(NamedTuple):
    """What a row says; None where it says nothing."""

    shape: str
    dialogue: Dialogue
    tools: tuple[Tool, ...] | None
    id: str | None
    category: str | None
    license: str | None


def parse_row(row: object, *, key: str | None = None) -> ParsedRow:
    """The user turns of one row of any known shape.

    `key` names the key that holds the prompt; no shape is looked for then. Raises RefusedRow, with
    the reason by which such rows are counted.
    """
    if not isinstance(row, dict):
        raise RefusedRow("not_an_object", f"the row is a {type(row).__name__}, not an object")
    fields = cast("dict[str, object]", row)
    inner, prefix = (fields, "") if key is not None else _unwrap(fields)
    shape, dialogue = _keyed(inner, key) if key is not None else _dialogue(inner)
    system = inner.get("system")
    if dialogue.system is None and isinstance(system, str) and system.strip():
        dialogue = dialogue._replace(system=check_text(system))
    return ParsedRow(
        shape=prefix + shape,
        dialogue=dialogue,
        tools=_tools(inner),
        id=_identity(fields),
        category=_optional_text(fields, "category"),
        license=_optional_text(fields, "license"),
    )


def _unwrap(fields: dict[str, object]) -> tuple[dict[str, object], str]:
    """The request that a log or a batch file wraps, and how its shape's name begins."""
    for name in WRAPPERS:
        value = fields.get(name)
        if isinstance(value, dict):
            return cast("dict[str, object]", value), "request/"
    return fields, ""


def _keyed(fields: Mapping[str, object], key: str) -> tuple[str, Dialogue]:
    if key not in fields:
        raise RefusedRow("unknown_shape", f"the row has no key {key!r}")
    return f"key {key}", _prompt(fields[key], key)


def _dialogue(fields: Mapping[str, object]) -> tuple[str, Dialogue]:
    """The name of the first shape that fits, and its content."""
    if isinstance(fields.get("turns"), list):
        return "turns", _turns(cast("list[object]", fields["turns"]))
    for name in ("messages", "conversations"):
        if isinstance(fields.get(name), list):
            return name, read_messages(cast("list[object]", fields[name]))
    if isinstance(fields.get("instruction"), str):
        return "instruction", _instruction(fields)
    for name in ("prompt", "question"):
        if isinstance(fields.get(name), str | list):
            return name, _prompt(fields[name], name)
    keys = ", ".join(list(fields)[:5]) or "no keys"
    raise RefusedRow("unknown_shape", f"no known shape (keys: {keys[:100]})")


def _turns(turns: list[object]) -> Dialogue:
    if not turns:
        raise RefusedRow("no_user_turn", '"turns" is empty')
    return Dialogue(system=None, turns=tuple(_turn(turn, "turns") for turn in turns), cut=False)


def _prompt(value: object, name: str) -> Dialogue:
    if is_list_of(value, dict):
        return read_messages(cast("list[object]", value))
    return Dialogue(system=None, turns=(_turn(value, name),), cut=False)


def _instruction(fields: Mapping[str, object]) -> Dialogue:
    text = _turn(fields["instruction"], "instruction")
    more = fields.get("input")
    if isinstance(more, str) and more.strip():
        text = f"{text}\n{check_text(more)}"
    return Dialogue(system=None, turns=(text,), cut=False)


def _turn(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise RefusedRow("not_text", f'"{name}" holds a {type(value).__name__}, not a string')
    if not value.strip():
        raise RefusedRow("empty_turn", f'"{name}" holds an empty turn')
    return check_text(value)


def _tools(fields: Mapping[str, object]) -> tuple[Tool, ...] | None:
    """The tools of a request; older ones call them functions, some files keep them as JSON text."""
    value = fields.get("tools")
    if isinstance(value, str):
        try:
            value = cast("object", json.loads(value.strip() or "null"))
        except (ValueError, RecursionError) as error:
            raise RefusedRow("bad_tools", '"tools" is a string that is not JSON') from error
    if value:
        if not is_list_of(value, dict):
            raise RefusedRow("bad_tools", '"tools" is not a list of objects')
        return tuple(cast("list[Tool]", value))
    functions = fields.get("functions")
    if not functions:
        return None
    if not is_list_of(functions, dict):
        raise RefusedRow("bad_tools", '"functions" is not a list of objects')
    listed = cast("list[object]", functions)
    return tuple({"type": "function", "function": function} for function in listed)


def _identity(fields: Mapping[str, object]) -> str | None:
    for name in ID_KEYS:
        value = fields.get(name)
        if isinstance(value, str) and value:
            return check_text(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    return None


def _optional_text(fields: Mapping[str, object], name: str) -> str | None:
    value = fields.get(name)
    return check_text(value) if isinstance(value, str) and value else None
