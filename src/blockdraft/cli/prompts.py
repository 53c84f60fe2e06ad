"""Prompts from a file, an argument or standard input, checked before any model is loaded.

It applies no chat template and knows no tokenizer.
"""

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import cast

from blockdraft.errors import ConfigError
from blockdraft.evaluation import read_prompt_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRecord:
    """One conversation to be had: user turns as text, or one prompt as ready token ids."""

    id: str
    category: str = ""
    turns: tuple[str, ...] = ()
    prompt_ids: tuple[int, ...] | None = None

    @property
    def prompts(self) -> tuple[str | tuple[int, ...], ...]:
        """The turns, or the one prompt of ready ids."""
        return self.turns if self.prompt_ids is None else (self.prompt_ids,)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSet:
    """What to answer. In a set from a file, one bad prompt does not end the others' run."""

    records: tuple[PromptRecord, ...]
    from_file: bool = False

    @property
    def num_turns(self) -> int:
        return sum(len(record.prompts) for record in self.records)


def read_prompts(args: Namespace) -> PromptSet | None:
    """The prompts that the arguments name; None when they name none.

    Raises ConfigError for arguments that contradict each other and for a file that is missing or
    malformed, naming the line.
    """
    prompt: str | None = args.prompt
    file: str | None = args.prompts
    prompt_ids: tuple[int, ...] | None = args.prompt_ids
    limit: int | None = args.limit
    named = [text for text in (prompt, file, prompt_ids) if text is not None]
    if len(named) > 1:
        raise ConfigError(
            "prompts come from one place: a prompt argument, --prompts or --prompt-ids"
        )
    if limit is not None and file is None:
        raise ConfigError("--limit counts the prompts of a file, so it needs --prompts FILE")
    if prompt_ids is not None and (args.raw or args.system or args.template_arg):
        raise ConfigError("--prompt-ids are final; drop --raw, --system and --template-arg")
    if args.raw and (args.system or args.template_arg):
        raise ConfigError("--raw applies no chat template; drop --system and --template-arg")
    records: tuple[PromptRecord, ...]
    if file is not None:
        records = read_prompt_file(Path(file))[:limit]
    elif prompt_ids is not None:
        records = (PromptRecord(id="prompt", prompt_ids=prompt_ids),)
    elif prompt is not None:
        records = (PromptRecord(id="prompt", turns=(_checked_text(prompt, "the prompt"),)),)
    else:
        return None
    _check_raw(records, raw=args.raw)
    return PromptSet(records=records, from_file=file is not None)


def builtin_prompts() -> PromptSet:
    """A few prompts of different kinds that are part of the package."""
    path = Path(str(files("blockdraft.builtin") / "prompts.jsonl"))
    return PromptSet(records=read_prompt_file(path))


def read_stdin() -> PromptSet:
    """All of standard input as one prompt, its last line break removed."""
    if sys.stdin.isatty():
        raise ConfigError(
            "no prompt: give one as an argument, on standard input, in --prompts or as --prompt-ids"
        )
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise ConfigError(f"standard input is not UTF-8: {error.reason}") from error
    text = _checked_text(text.removesuffix("\n"), "standard input")
    return PromptSet(records=(PromptRecord(id="prompt", turns=(text,)),))


def read_prompt_file(path: Path) -> tuple[PromptRecord, ...]:
    """The records of a JSON-lines file, at least one.

    Raises ConfigError that names the line and what is wrong with it.
    """
    records: dict[str, PromptRecord] = {}
    for number, row in read_prompt_rows(path).rows:
        record = _record(row, f"{path}, line {number}")
        if record.id in records:
            raise ConfigError(f"{path}, line {number}: id {record.id!r} was used before")
        records[record.id] = record
    if not records:
        raise ConfigError(f'{path} holds no prompts; each line is {{"id": .., "turns": [..]}}')
    return tuple(records.values())


def _record(fields: Mapping[str, object], where: str) -> PromptRecord:
    turns = fields.get("turns")
    if not isinstance(turns, list) or not turns:
        raise ConfigError(f'{where}: "turns" must be a list of at least one user turn')
    return PromptRecord(
        id=_text(fields, "id", where),
        category=_text(fields, "category", where) if "category" in fields else "",
        turns=tuple(_turn(turn, where) for turn in cast("list[object]", turns)),
    )


def _text(fields: Mapping[str, object], name: str, where: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise ConfigError(f'{where}: "{name}" must be a string')
    return value


def _turn(turn: object, where: str) -> str:
    if not isinstance(turn, str):
        raise ConfigError(f'{where}: "turns" holds {turn!r:.40}, which is not a string')
    return _checked_text(turn, where)


def _checked_text(text: str, where: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError(f"{where}: not valid Unicode text ({error.reason})") from error
    return text


def _check_raw(records: Sequence[PromptRecord], *, raw: bool) -> None:
    for record in records:
        if raw and len(record.turns) > 1:
            raise ConfigError(
                f"prompt {record.id!r} has {len(record.turns)} turns, and --raw has no way to join "
                "them; leave it out, or give single turns"
            )
