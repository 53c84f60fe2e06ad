"""One row of a workload's file to its request: a prompt, a chat or a logged request.

Plain prompts are read by `evaluation/prompts.py`, the parts of logged requests by `logged.py`.
"""

import json
from typing import NamedTuple

from blockdraft.bench.documents import as_list
from blockdraft.bench.fields import FieldRules
from blockdraft.bench.logged import check_fields, read_asks, read_chat, read_time, unwrap
from blockdraft.bench.prompt import BenchPrompt, Chat, JsonObject
from blockdraft.errors import ConfigError
from blockdraft.evaluation import read_prompt_row

CONTENTS = ("messages", "turns", "prompt", "prompt_ids")
IDS = ("id", "custom_id")


class BenchRow(NamedTuple):
    """A request, and the keys of its row that ask for nothing here."""

    prompt: BenchPrompt
    ignored: tuple[str, ...]


def read_bench_row(row: JsonObject, number: int, where: str, rules: FieldRules) -> BenchRow:
    """Raises ConfigError that begins with `where`."""
    whole, outer, is_request = unwrap(row)
    passed_over = tuple(name for name in whole if name in rules.ignored)
    body = {name: value for name, value in whole.items() if name not in rules.ignored}
    given = [name for name in CONTENTS if name in body]
    if "messages" in given and len(given) > 1:
        raise ConfigError(f"{where}: has {' and '.join(given)}; give one of them")
    # Anything of a row that is not wrapped is both: the request's, and said about it.
    about = outer or body
    if "messages" in given:
        prompt = _chat(body, about, number, where, rules)
    elif is_request and given == ["prompt"]:
        _refuse_chat_fields(body, where)
        prompt = BenchPrompt(
            where=where,
            id=_id(about, number),
            category=_category(about, where),
            content=_completion(body["prompt"], where),
            raw=True,
            asks=read_asks(body, where, rules),
            at_s=read_time(about, where),
        )
    else:
        prompt = _plain(body, about, number, where, rules)
    _check_sendable(prompt)
    ignored = check_fields(body, where, rules, is_request=is_request)
    ignored += check_fields(outer, where, rules, is_request=False) if outer else ()
    return BenchRow(prompt, passed_over + ignored)


def _check_sendable(prompt: BenchPrompt) -> None:
    """Python reads lone surrogates and NaN out of JSON; nobody takes them in a request."""
    content, asks = prompt.content, prompt.asks
    said = [content.messages, content.tools] if isinstance(content, Chat) else content
    try:
        sent = [said, prompt.system, dict(asks.fields), dict(asks.template_args)]
        json.dumps(sent, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError(f"{prompt.where}: not valid Unicode text ({error.reason})") from error
    except ValueError as error:
        raise ConfigError(f"{prompt.where}: a number is not finite ({error})") from error


def _plain(
    body: JsonObject, about: JsonObject, number: int, where: str, rules: FieldRules
) -> BenchPrompt:
    named = dict(body) | {name: about[name] for name in ("id", "category") if name in about}
    plain = read_prompt_row(named, number, where)
    if "tools" in body or not isinstance(plain.content, str):
        _refuse_chat_fields(body, where)
    return BenchPrompt(
        where=where,
        id=plain.id,
        category=plain.category,
        content=plain.content,
        system=plain.system,
        asks=read_asks(body, where, rules),
        at_s=read_time(about, where),
    )


def _chat(
    body: JsonObject, about: JsonObject, number: int, where: str, rules: FieldRules
) -> BenchPrompt:
    content, system = _simplest(read_chat(body, where, rules))
    own = body.get("system")
    if own is not None:
        raise ConfigError(f'{where}: "system" beside "messages"; put it in as the first message')
    return BenchPrompt(
        where=where,
        id=_id(about, number),
        category=_category(about, where),
        content=content,
        system=system,
        asks=read_asks(body, where, rules),
        at_s=read_time(about, where),
    )


def _simplest(chat: Chat) -> tuple[str | Chat, str | None]:
    """One question, with a system text or without, is what a plain prompt is too."""
    texts = [message.get("content") for message in chat.messages]
    roles = [message["role"] for message in chat.messages]
    is_bare = all(set(message) == {"role", "content"} for message in chat.messages)
    if chat.tools is None and is_bare and isinstance(texts[-1], str):
        if roles == ["user"]:
            return texts[-1], None
        if roles == ["system", "user"] and isinstance(texts[0], str) and texts[0].strip():
            return texts[-1], texts[0]
    return chat, None


def _completion(value: object, where: str) -> str | tuple[int, ...]:
    """A text, a list of ids, or a list of one of these."""
    if isinstance(value, str):
        if not value.strip():
            raise ConfigError(f'{where}: "prompt" is blank; fill it in or remove the line')
        return value
    values = as_list(value)
    if len(values) == 1 and (isinstance(values[0], str) or as_list(values[0])):
        return _completion(values[0], where)
    ids = tuple(one for one in values if type(one) is int)
    if not ids or len(ids) < len(values):
        raise ConfigError(
            f'{where}: "prompt" of a logged request must be one text or one list of token ids; '
            "write several as lines of their own"
        )
    return ids


def _refuse_chat_fields(body: JsonObject, where: str) -> None:
    for name in ("tools", "chat_template_kwargs"):
        if name in body:
            raise ConfigError(
                f'{where}: {name!r} is for a chat template, and this row has no "messages"; write '
                f"it as a chat, or pass the field over with --ignore-fields {name}"
            )


def _id(about: JsonObject, number: int) -> str:
    for name in IDS:
        value = about.get(name)
        if isinstance(value, str) and value:
            return value
        if type(value) is int:
            return str(value)
    return f"line {number}"


def _category(about: JsonObject, where: str) -> str:
    value = about.get("category", "")
    if not isinstance(value, str):
        raise ConfigError(f'{where}: "category" must be a string, not {value!r:.40}')
    return value
