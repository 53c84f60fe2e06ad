"""Prompts of a data set or of a table: the first user turn of each row, in any shape we know.

Shapes of rows are `data/shapes.py`, reading is `data/reading.py`.
"""

from collections.abc import Iterable
from typing import NamedTuple, cast

from blockdraft.bench.prompt import BenchPrompt
from blockdraft.data.messages import RefusedRow
from blockdraft.data.reading import name_row, parse, read_rows
from blockdraft.data.sources import HUB_PREFIX, PromptSource
from blockdraft.errors import ConfigError

DEFAULT_LIMIT = 64
"""Data sets are large; so many prompts are a workload."""


class TablePrompts(NamedTuple):
    """Prompts, and what must be said of the rows that there are none of."""

    prompts: tuple[BenchPrompt, ...]
    notes: tuple[str, ...]


def hub_source(
    dataset: str, config: str | None, split: str | None, column: str | None
) -> PromptSource:
    """What `--dataset owner/name[@revision]` names."""
    name = dataset.removeprefix(HUB_PREFIX)
    if not name.strip() or ":" in name:
        raise ConfigError(
            f"--dataset {dataset!r} is no data set: give owner/name or owner/name@revision, and "
            "what follows with --config and --split"
        )
    parts = f"{name}:{config or ''}:{split or ''}".rstrip(":")
    return PromptSource(name=f"{HUB_PREFIX}{parts}", key=column)


def read_table(source: PromptSource, limit: int | None) -> TablePrompts:
    """The first `limit` prompts (64 without one).

    Rows that hold no prompt are left out with a note. Raises ConfigError for a source that can't
    be read, a column that is not there, and where no row has a prompt.
    """
    wanted = DEFAULT_LIMIT if limit is None else limit
    prompts: dict[str, BenchPrompt] = {}
    refused: list[str] = []
    is_cut = False
    for row in read_rows(source):
        if len(prompts) == wanted:
            is_cut = True
            break
        where = name_row(source, row.number)
        try:
            parsed = parse(row, source)
        except RefusedRow as error:
            if error.reason == "unknown_shape":
                raise ConfigError(f"{where}: {error}{_columns(row)}; say --column") from error
            refused.append(f"{where}: {error}")
            continue
        name = parsed.id if parsed.id is not None and parsed.id not in prompts else None
        prompt = BenchPrompt(
            where=where,
            id=name or f"row {row.number}",
            category=parsed.category or "",
            content=parsed.dialogue.turns[0],
            system=parsed.dialogue.system,
        )
        prompts[prompt.id] = prompt
    if not prompts:
        first = f" (the first: {refused[0]})" if refused else ""
        raise ConfigError(
            f"{source.name} holds no prompts{first}; choose another --column or --split"
        )
    notes = (
        [f"{len(refused)} rows hold no prompt and are left out; {refused[0]}"] if refused else []
    )
    if is_cut and limit is None:
        notes.append(f"{source.name}: its first {wanted} prompts; --limit says how many")
    return TablePrompts(tuple(prompts.values()), tuple(notes))


def _columns(row: NamedTuple) -> str:
    value: object = getattr(row, "value", None)
    if not isinstance(value, dict):
        return ""
    names: Iterable[str] = cast("dict[str, object]", value)
    return f"; its columns: {', '.join(names)}"[:200]
