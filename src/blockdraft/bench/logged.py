"""The request that a log holds: its wrapper taken off, its settings, its messages, its time.

Which fields are allowed is `fields.py`, which row is what is `rows.py`.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple, cast

from blockdraft.bench.documents import as_list, as_object
from blockdraft.bench.fields import DEFAULTS, READ, WITHOUT_EFFECT, FieldRules
from blockdraft.bench.prompt import Asks, Chat, JsonObject
from blockdraft.errors import ConfigError

WRAPPERS = ("body", "request")
TIMES = ("timestamp", "created")
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
MILLISECONDS_FROM = 1e11
"""A number of seconds since 1970 as large as this would be after the year 5000."""


class Logged(NamedTuple):
    """A request without its wrapper. `is_request`: the row says that it is one.

    Fields that are null are left out of `body`, as servers take them.
    """

    body: JsonObject
    outer: JsonObject
    is_request: bool


def unwrap(row: JsonObject) -> Logged:
    """The row itself, or what stands in "body" (the batch format) or "request" of it."""
    for name in WRAPPERS:
        inner = as_object(row.get(name))
        if inner is not None:
            outer = {key: value for key, value in row.items() if key != name}
            return Logged(_without_nulls(inner), _without_nulls(outer), True)
    is_request = isinstance(row.get("model"), str)
    return Logged(_without_nulls(row) if is_request or "messages" in row else row, {}, is_request)


def read_chat(body: JsonObject, where: str, rules: FieldRules) -> Chat:
    """The messages and tools of a chat. Raises ConfigError naming the message that is wrong."""
    values = as_list(body.get("messages"))
    if not values:
        raise ConfigError(f'{where}: "messages" must be a list of at least one message')
    messages = tuple(
        _message(value, f"{where}: message {index}", rules)
        for index, value in enumerate(values, start=1)
    )
    last = messages[-1]["role"]
    if last not in ("user", "tool", "function"):
        raise ConfigError(
            f"{where}: the last message is of the role {last!r}; it must be the user's that is to "
            "be answered"
        )
    return Chat(messages=messages, tools=_tools(body, where))


def read_asks(body: JsonObject, where: str, rules: FieldRules) -> Asks:
    """The row's own settings. Raises ConfigError for a value of a wrong kind."""
    longest = _integer(body, "max_tokens", where, least=1)
    if longest is None:
        longest = _integer(body, "max_completion_tokens", where, least=1)
    template_args = body.get("chat_template_kwargs", {})
    if as_object(template_args) is None:
        raise ConfigError(f'{where}: "chat_template_kwargs" must be an object')
    ignore_eos = body.get("ignore_eos")
    if ignore_eos is not None and not isinstance(ignore_eos, bool):
        raise ConfigError(f'{where}: "ignore_eos" must be true or false')
    return Asks(
        max_tokens=longest,
        temperature=_number(body, "temperature", where),
        seed=_integer(body, "seed", where, least=0),
        ignore_eos=ignore_eos,
        template_args=cast(Mapping[str, object], template_args),
        fields={name: value for name, value in body.items() if name in rules.taken},
    )


def read_time(outer: JsonObject, where: str) -> float | None:
    """When a request came, in seconds since 1970: a number (seconds, or milliseconds) or ISO 8601.

    None where the row does not say.
    """
    name = next((name for name in TIMES if name in outer), None)
    if name is None:
        return None
    value = outer[name]
    if isinstance(value, str):
        try:
            read = datetime.fromisoformat(value)
        except ValueError as error:
            raise ConfigError(f"{where}: {name!r} is no time ({error})") from error
        return (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp()
    seconds = _number(outer, name, where)
    assert seconds is not None
    return seconds / 1000 if seconds >= MILLISECONDS_FROM else seconds


def check_fields(
    body: JsonObject, where: str, rules: FieldRules, *, is_request: bool
) -> tuple[str, ...]:
    """The fields that are passed over. Raises ConfigError for one that would change the answer and
    can't be sent; of a plain prompt, unknown fields are none.
    """
    ignored: list[str] = []
    for name, value in body.items():
        if name in READ or name in rules.taken or name in WITHOUT_EFFECT:
            continue
        if name in DEFAULTS:
            if value != DEFAULTS[name]:
                raise ConfigError(
                    f"{where}: the field {name!r} with {value!r:.40} can't be measured here; drop "
                    f"it, or pass it over with --ignore-fields {name}"
                )
        elif is_request:
            raise ConfigError(
                f"{where}: the field {name!r} of the request is unknown here or can't be sent; "
                f"pass it over with --ignore-fields {name}"
            )
        else:
            ignored.append(name)
    return tuple(ignored)


def _without_nulls(row: JsonObject) -> JsonObject:
    return {name: value for name, value in row.items() if value is not None}


def _message(value: object, where: str, rules: FieldRules) -> JsonObject:
    message = as_object(value)
    if message is None:
        raise ConfigError(f"{where} is not an object")
    role = message.get("role")
    if role not in ROLES:
        raise ConfigError(f"{where} has the role {role!r:.40}; known are {', '.join(ROLES)}")
    content = message.get("content")
    if isinstance(content, list):
        parts = [as_object(part) for part in cast("list[object]", content)]
        if any(part is None for part in parts):
            raise ConfigError(f"{where} has a part that is not an object")
        others = {str(part.get("type")) for part in parts if part and part.get("type") != "text"}
        if others and not rules.is_sent:
            raise ConfigError(f"{where} has a part of type {min(others)!r}; only text can be asked")
    elif content is None:
        if not (message.get("tool_calls") or message.get("function_call")):
            raise ConfigError(f"{where} has no content")
    elif not isinstance(content, str):
        raise ConfigError(f"{where} has a content that is neither text nor a list of parts")
    if role == "user" and isinstance(content, str) and not content.strip():
        raise ConfigError(f"{where} is blank")
    return message


def _tools(body: JsonObject, where: str) -> tuple[JsonObject, ...] | None:
    given = body.get("tools")
    if given is None:
        return None
    values = as_list(given)
    tools = tuple(tool for value in values if (tool := as_object(value)) is not None)
    if not isinstance(given, list) or len(tools) < len(values):
        raise ConfigError(f'{where}: "tools" must be a list of objects')
    return tools or None


def _integer(body: JsonObject, name: str, where: str, *, least: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if type(value) is not int or value < least:
        raise ConfigError(f"{where}: {name!r} must be a whole number of at least {least}")
    return value


def _number(body: JsonObject, name: str, where: str) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ConfigError(f"{where}: {name!r} must be a number")
    if value < 0:
        raise ConfigError(f"{where}: {name!r} must be 0 or more")
    return float(value)
