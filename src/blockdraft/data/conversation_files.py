"""Reads files of prepared conversations: bad lines are counted, not fatal.

Other shapes of prompts are turned into this one by `blockdraft data prepare`.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

from blockdraft.data.conversations import Conversation, from_json
from blockdraft.data.manifest import sha256_of
from blockdraft.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Row:
    """A conversation and the line that it stands on, for messages."""

    conversation: Conversation
    where: str


class Problem(NamedTuple):
    """What is wrong with one row; `kind` is what it is counted as."""

    where: str
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class ConversationFiles:
    """The rows of all files, interleaved in proportion, and the lines that are none."""

    rows: tuple[Row, ...]
    problems: tuple[Problem, ...]
    digests: tuple[tuple[str, str], ...]
    """Name and SHA-256 of each file."""


def read_conversations(paths: Sequence[Path], limit: int | None = None) -> ConversationFiles:
    """Read all files, at most `limit` good rows of each.

    Rows of several files come mixed in proportion, so that a run that is ended early has some of
    each. An id that was used before is a problem of its line. Raises ConfigError for a file that
    can't be read, and when no row is left.
    """
    problems: list[Problem] = []
    seen: set[str] = set()
    lists = [_read_file(path, limit, seen, problems) for path in paths]
    places = [
        ((i + 0.5) / len(rows), f, i) for f, rows in enumerate(lists) for i in range(len(rows))
    ]
    rows = tuple(lists[f][i] for _, f, i in sorted(places))
    if not rows:
        shown = f" ({problems[0].where}: {problems[0].reason})" if problems else ""
        raise ConfigError(f"{', '.join(map(str, paths))}: no conversation in it{shown}")
    digests = tuple((path.name, sha256_of(path)) for path in paths)
    return ConversationFiles(rows, tuple(problems), digests)


def _read_file(path: Path, limit: int | None, seen: set[str], problems: list[Problem]) -> list[Row]:
    rows: list[Row] = []
    try:
        # Lines end at a line feed only, since U+2028 and its like may stand inside a prompt.
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except OSError as error:
        raise ConfigError(f"can't read prompts from {path}: {error.strerror}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if limit is not None and len(rows) == limit:
            break
        where = f"{path}, line {number}"
        try:
            conversation = _parse(line, path.name)
        except (ConfigError, ValueError, RecursionError) as error:
            problems.append(Problem(where, "bad_line", " ".join(str(error).split())))
            continue
        if conversation.id in seen:
            reason = f"id {conversation.id!r} was used before"
            problems.append(Problem(where, "repeated_id", reason))
            continue
        seen.add(conversation.id)
        rows.append(Row(conversation, where))
    return rows


def _parse(line: bytes, source: str) -> Conversation:
    """Raises ConfigError, or ValueError from decoding."""
    value: object = json.loads(line.decode("utf-8"))
    if not isinstance(value, dict):
        raise ConfigError('not an object like {"id": .., "turns": [..]}')
    conversation = from_json(cast("dict[str, object]", value), source=source)
    _check_unicode([*conversation.turns, conversation.system or "", conversation.id])
    return conversation


def _check_unicode(texts: Iterable[str]) -> None:
    for text in texts:
        text.encode("utf-8")  # half a surrogate pair can't be
