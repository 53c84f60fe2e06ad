"""Prompts to evaluate on, read from a JSON-lines file with the line of each.

It knows no tokenizer; the encoder of a prompt names the line through `EvalPrompts.where`.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

from blockdraft.errors import ConfigError
from blockdraft.json_values import as_list

EXAMPLE = '{"id": "1", "turns": ["Hello"]}'
"""The shortest line that every command with `--prompts` takes."""

SHAPES = '{"turns": ["first user turn", ..]}, {"prompt": "text"} or {"prompt_ids": [12, 7]}'


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalPrompt:
    """One row of a file; of a conversation the first user turn, `num_turns` tells how many it had.

    `content` is text, or token ids that stand for themselves. `system` is the row's own system
    text, None when it brings none.
    """

    line: int
    id: str
    category: str
    content: str | tuple[int, ...]
    num_turns: int = 1
    system: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalPrompts:
    """The prompts of a file in its order, and the SHA-256 of the whole file."""

    path: Path
    sha256: str
    prompts: tuple[EvalPrompt, ...]

    def where(self, prompt: EvalPrompt) -> str:
        """The head of an error message about one prompt."""
        return f"{self.path}, line {prompt.line}"


class PromptRows(NamedTuple):
    """The rows of a JSON-lines file that are not blank, each with its line; SHA-256 of the file."""

    sha256: str
    rows: tuple[tuple[int, dict[str, object]], ...]


def read_eval_prompts(path: Path) -> EvalPrompts:
    """The prompts of a JSON-lines file, at least one; lines end at a line feed only.

    Raises ConfigError that names the line and what is wrong with it.
    """
    file = read_prompt_rows(path)
    found: dict[str, EvalPrompt] = {}
    for number, row in file.rows:
        where = f"{path}, line {number}"
        prompt = read_prompt_row(row, number, where)
        if prompt.id in found:
            raise ConfigError(
                f"{where}: id {prompt.id!r} was used in line {found[prompt.id].line}; "
                "give each prompt its own"
            )
        found[prompt.id] = prompt
    if not found:
        raise ConfigError(f"{path} holds no prompts; each line is {SHAPES}")
    return EvalPrompts(path=path, sha256=file.sha256, prompts=tuple(found.values()))


def read_prompt_rows(path: Path) -> PromptRows:
    """The objects of a JSON-lines file. Raises ConfigError that names a line that is none.

    Lines end at a line feed only, since U+2028 and its like may stand inside a prompt.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"can't read prompts from {path}: {error.strerror}") from error
    lines = enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1)
    rows = tuple(
        (number, _parse_line(line, f"{path}, line {number}"))
        for number, line in lines
        if line.strip()
    )
    return PromptRows(hashlib.sha256(data).hexdigest(), rows)


def _parse_line(line: bytes, where: str) -> dict[str, object]:
    try:
        value: object = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _no_row(where, f"not UTF-8 ({error.reason})") from error
    except ValueError as error:
        raise _no_row(where, f"not JSON ({error})") from error
    except RecursionError as error:
        raise _no_row(where, "nested too deeply") from error
    if not isinstance(value, dict):
        raise _no_row(where, "not an object")
    return cast("dict[str, object]", value)


def _no_row(where: str, what: str) -> ConfigError:
    return ConfigError(f"{where}: {what}; each line is one JSON object, like {EXAMPLE}")


def read_prompt_row(row: Mapping[str, object], number: int, where: str) -> EvalPrompt:
    """One row of the shapes above. Raises ConfigError that begins with `where`."""
    given = [name for name in READERS if name in row]
    if len(given) != 1:
        what = f"has {' and '.join(given)}" if given else "has no prompt"
        raise ConfigError(f"{where}: {what}; one of these is needed: {SHAPES}")
    content, num_turns = READERS[given[0]](row[given[0]], where)
    system = row.get("system")
    if system is not None and not isinstance(content, str):
        raise ConfigError(f'{where}: "system" beside "prompt_ids", which stand for themselves')
    return EvalPrompt(
        line=number,
        id=_string(row.get("id", f"line {number}"), '"id"', where),
        category=_string(row.get("category", ""), '"category"', where),
        content=content,
        num_turns=num_turns,
        system=None if system is None else _text(system, '"system"', where),
    )


Content = tuple[str | tuple[int, ...], int]


def _read_turns(value: object, where: str) -> Content:
    turns = as_list(value)
    if not turns:
        raise ConfigError(f'{where}: "turns" must be a list of at least one user turn')
    texts = [_text(turn, 'each of "turns"', where) for turn in turns]
    return texts[0], len(texts)


def _read_prompt(value: object, where: str) -> Content:
    return _text(value, '"prompt"', where), 1


def _read_ids(value: object, where: str) -> Content:
    ids = as_list(value)
    whole = [token_id for token_id in ids if type(token_id) is int]
    if not whole or len(whole) < len(ids):
        raise ConfigError(f'{where}: "prompt_ids" must be a list of at least one whole number')
    return tuple(whole), 1


def _text(value: object, name: str, where: str) -> str:
    """A string that is not blank."""
    text = _string(value, name, where)
    if not text.strip():
        raise ConfigError(f"{where}: {name} is blank; fill it in or remove the line")
    return text


def _string(value: object, name: str, where: str) -> str:
    """A string that can be encoded (JSON may hold lone surrogates)."""
    if not isinstance(value, str):
        raise ConfigError(f"{where}: {name} must be a string, not {value!r:.40}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError(f"{where}: {name} is not valid Unicode text ({error.reason})") from error
    return value


READERS: dict[str, Callable[[object, str], Content]] = {
    "turns": _read_turns,
    "prompt": _read_prompt,
    "prompt_ids": _read_ids,
}
