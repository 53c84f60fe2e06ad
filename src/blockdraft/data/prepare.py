"""`prepare`: many inputs of prompts to one folder of conversations that are ready for answers.

It answers nothing and loads no model; a tokenizer is handed in as a function that counts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from blockdraft.data.collect import (
    Collected,
    Collector,
    CountTokens,
    Progress,
    RowFilter,
)
from blockdraft.data.conversations import to_line
from blockdraft.data.duplicates import find_near, group_near
from blockdraft.data.folders import check_new_folder, new_folder
from blockdraft.data.leaks import EvalPrompts, EvalTurn, read_eval
from blockdraft.data.manifest import read_manifest, sha256_of, write_manifest
from blockdraft.data.sources import PromptSource
from blockdraft.data.split import Holdout, Split, num_heldout, shuffled, split
from blockdraft.errors import ConfigError

TRAIN_FILE = "train.jsonl"
HELDOUT_FILE = "heldout.jsonl"
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareOptions:
    """What to read and what to keep of it. `limit` counts all rows that are written."""

    sources: tuple[PromptSource, ...]
    eval_sources: tuple[PromptSource, ...] = ()
    row_filter: RowFilter = field(default_factory=RowFilter)
    near_duplicates: Literal["drop", "keep"] = "drop"
    limit: int | None = None
    holdout: Holdout | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.sources:
            raise ConfigError("there is no input: name at least one file or data set")
        if self.near_duplicates not in ("drop", "keep"):
            raise ConfigError(f"near_duplicates {self.near_duplicates!r}: use drop or keep")
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"limit is {self.limit}: keep at least 1 row")
        if self.holdout is not None:
            fits = self.holdout >= 1 if isinstance(self.holdout, int) else 0 < self.holdout < 1
            if not fits:
                raise ConfigError(
                    f"holdout {self.holdout}: use a number of rows, or a fraction between 0 and 1"
                )

    def to_json(self) -> dict[str, object]:
        """The settings that are not those of one input."""
        return {
            "seed": self.seed,
            "limit": self.limit,
            "holdout": self.holdout,
            "near_duplicates": self.near_duplicates,
            "min_chars": self.row_filter.min_chars,
            "max_chars": self.row_filter.max_chars,
            "max_prompt_tokens": self.row_filter.max_prompt_tokens,
            "on_bad": self.row_filter.on_bad,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where the folder goes, and what its manifest says of the run (version, argv, target)."""

    folder: Path
    overwrite: bool = False
    made_by: Mapping[str, object]


def prepare(
    options: PrepareOptions,
    destination: Destination,
    *,
    count_tokens: CountTokens | None = None,
    progress: Progress | None = None,
) -> dict[str, object]:
    """Write train.jsonl, heldout.jsonl where wanted, and manifest.json; returns the manifest.

    The folder appears whole or not at all, and the same inputs and settings give the same bytes.
    Raises ConfigError for inputs that can't be read, a folder that may not be written, a bad row
    under the policy "stop", and when no rows are left.
    """
    check_new_folder(destination.folder, overwrite=destination.overwrite)
    _check_inputs_stay(options, destination.folder)
    if options.row_filter.max_prompt_tokens is not None and count_tokens is None:
        raise ConfigError("max_prompt_tokens counts tokens, so it needs a target with a tokenizer")
    eval_turns = [list(read_eval(source)) for source in options.eval_sources]
    all_turns = [turn for turns in eval_turns for turn in turns]
    collector = Collector(options.row_filter, EvalPrompts(all_turns), count_tokens)
    for source in options.sources:
        collector.read(source, progress or _ignore)
    collected = collector.collected
    parts = _choose(options, collected)
    with new_folder(destination.folder, overwrite=destination.overwrite) as folder:
        outputs = {TRAIN_FILE: _write(folder / TRAIN_FILE, collected, parts.train)}
        if options.holdout is not None:
            outputs[HELDOUT_FILE] = _write(folder / HELDOUT_FILE, collected, parts.heldout)
        document: dict[str, object] = {
            "kind": "prompts",
            **destination.made_by,
            "settings": options.to_json(),
            "inputs": _describe_inputs(options.sources, collected, parts),
            "eval": _describe_eval(options.eval_sources, eval_turns),
            "rows_read": collected.num_rows,
            "rows_kept": len(parts.train) + len(parts.heldout),
            **_describe_rows(collected, [*parts.train, *parts.heldout]),
            "dropped": collected.dropped.to_json(),
            "changed": collected.changed.to_json(),
            "leaks": _describe_leaks(collected),
            "outputs": outputs,
        }
        write_manifest(folder, document)
    return read_manifest(destination.folder)


def _choose(options: PrepareOptions, collected: Collected) -> Split:
    """The rows to write; what is left out is counted in `collected`."""
    ids = [conversation.id for conversation in collected.conversations]
    collected.shingles.close()
    drops_near = options.near_duplicates == "drop"
    repeated = find_near(collected.shingles) if drops_near else {}
    for row, original in repeated.items():
        detail = f"repeats {ids[original]}"
        collected.dropped.add("near_duplicate", collected.places[row], detail)
    rows = shuffled(ids, [row for row in range(len(ids)) if row not in repeated], options.seed)
    for row in rows[options.limit :] if options.limit is not None else ():
        collected.dropped.add("over_limit", collected.places[row])
    rows = rows[: options.limit]
    if not rows:
        raise ConfigError(
            f"no rows are left of {collected.num_rows} ({collected.dropped.to_text()}); nothing "
            "was written; check the inputs and the limits"
        )
    if options.holdout is None:
        return Split(rows, [])
    # Where near duplicates were dropped, each row is a group of its own.
    group_of = range(len(ids)) if drops_near else group_near(collected.shingles)
    return split(rows, group_of, num_heldout(options.holdout, len(rows)))


def _check_inputs_stay(options: PrepareOptions, folder: Path) -> None:
    for source in (*options.sources, *options.eval_sources):
        if source.kind != "hub" and source.path.resolve().is_relative_to(folder.resolve()):
            raise ConfigError(
                f"the input {source.name} lies in {folder}, which is written anew: name another "
                "folder"
            )


def _write(path: Path, collected: Collected, rows: Sequence[int]) -> dict[str, object]:
    """Write a file of conversations; what the manifest says of it."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(to_line(collected.conversations[row]) for row in rows)
    return {"rows": len(rows), "bytes": path.stat().st_size, "sha256": sha256_of(path)}


def _describe_inputs(
    sources: Sequence[PromptSource], collected: Collected, parts: Split
) -> list[object]:
    kept = Counter(collected.input_of[row] for row in (*parts.train, *parts.heldout))
    return [
        {
            "name": source.name,
            "sha256": counts.sha256,
            "license": source.license,
            "category": source.category,
            "limit": source.limit,
            "key": source.key,
            "rows_read": counts.rows,
            "rows_kept": kept[index],
            "shapes": dict(counts.shapes),
        }
        for index, (source, counts) in enumerate(zip(sources, collected.inputs, strict=True))
    ]


def _describe_eval(
    sources: Sequence[PromptSource], turns: Sequence[Sequence[EvalTurn]]
) -> list[object]:
    return [
        {
            "name": source.name,
            "sha256": None if source.kind == "hub" else sha256_of(source.path),
            "turns": len(own),
        }
        for source, own in zip(sources, turns, strict=True)
    ]


def _describe_rows(collected: Collected, rows: Sequence[int]) -> dict[str, object]:
    """What the written rows are: licenses, categories, sizes."""
    kept = [collected.conversations[row] for row in rows]
    return {
        "licenses": dict(sorted(Counter(item.license or UNKNOWN for item in kept).items())),
        "categories": dict(sorted(Counter(item.category or UNKNOWN for item in kept).items())),
        "turns": sum(len(item.turns) for item in kept),
        "chars": sum(sum(map(len, item.turns)) for item in kept),
    }


def _describe_leaks(collected: Collected) -> list[object]:
    return [
        {
            "file": leak.place.file,
            "line": leak.place.line,
            "id": leak.id,
            "kind": leak.of.kind,
            "eval_file": leak.of.turn.place.file,
            "eval_line": leak.of.turn.place.line,
            "eval_id": leak.of.turn.id,
        }
        for leak in collected.leaks
    ]


def _ignore(num_rows: int) -> None:
    pass
