"""The folder of one run's answers: a log while it runs, packed columns and a manifest at the end.

It generates nothing and decides nothing about answers. Files:

    settings.json            what the run was asked for; a later run must ask for the same
    answers.jsonl            the log, one answer a line in the order they finished; while it is
                             there, the run is not finished, whatever else there is
    answers.parquet          the same as columns, or several files answers-00000.parquet
    manifest.json            settings, counts and checksums, written last
"""

import fcntl
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from blockdraft.data.answer_columns import AnswerChunk, chunk_answers, write_parquet
from blockdraft.data.answer_row import Answer, parse_answer, render_answer
from blockdraft.data.durable import cut_torn_line, new_file, sync
from blockdraft.data.manifest import sha256_of, write_manifest
from blockdraft.errors import ConfigError

LOG_FILE = "answers.jsonl"
PACKED_FILE = "answers.parquet"
SETTINGS_FILE = "settings.json"
SHARD_ANSWERS = 500_000
"""Answers of a file; a run with more gets several files."""

Rank = Callable[[Answer], int | None]
"""The place of an answer among all; None leaves it out."""


class AnswerLog:
    """The log of a run, open for more: what `add` took in survives the end of this process.

    Opening cuts off a line that an earlier run left half written. Raises ConfigError when another
    run has it open.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOG_FILE
        folder.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = self.path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise ConfigError(f"another run is writing to {folder}; wait for it to end") from error
        cut_torn_line(self.path)

    def __enter__(self) -> "AnswerLog":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.fsync(self._file.fileno())
        self._file.close()

    def read(self) -> Iterator[Answer]:
        """What is in the log so far."""
        return read_log(self.path)

    def add(self, answer: Answer) -> None:
        self._file.write(render_answer(answer))
        self._file.flush()


def read_log(path: Path) -> Iterator[Answer]:
    """The answers of a log; a last line without a line feed is left out. Raises ConfigError."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield parse_answer(line, f"{path}, line {number}")


def packed_files(folder: Path) -> list[Path]:
    """The packed files of a folder in their order; none while nothing is packed."""
    single = folder / PACKED_FILE
    return [single] if single.exists() else sorted(folder.glob("answers-?????.parquet"))


def is_finished(folder: Path) -> bool:
    return bool(packed_files(folder)) and not (folder / LOG_FILE).exists()


Fields = Mapping[str, object] | Callable[[frozenset[str]], Mapping[str, object]]
"""What a manifest says besides the counts; a function gets the ids of all packed conversations."""


def pack(
    folder: Path,
    fields: Fields,
    *,
    vocab_size: int | None = None,
    rank: Rank | None = None,
    shard_answers: int = SHARD_ANSWERS,
) -> None:
    """Turn the log of `folder` into packed columns and a manifest, then remove it.

    `rank` orders the answers (default: as they are in the log) and leaves some out; the first of
    several with the same key stays. The manifest is `fields`, which may depend on which
    conversations are in it, and what the answers themselves say. A run that dies in here finds its
    log again. Raises ConfigError for an empty or damaged log and for an id outside of `vocab_size`.
    """
    log = folder / LOG_FILE
    cut_torn_line(log)
    chunks = list(chunk_answers(read_log(log), short=False))
    places = _places(chunks, rank)
    if not places:
        raise ConfigError(f"{log} holds no answers to keep, so there is nothing to pack")
    largest = max(chunk.largest_id for chunk in chunks)
    if vocab_size is not None and largest >= vocab_size:
        raise ConfigError(
            f"{log} holds token id {largest}, and the target's vocabulary has {vocab_size}: its "
            "answers are another target's"
        )
    short = (largest + 1 if vocab_size is None else vocab_size) <= 1 << 16
    answers = (chunks[chunk][row] for chunk, row in places)
    files = write_shards(folder, answers, len(places), short=short, shard_answers=shard_answers)
    ids = frozenset(chunks[chunk][row].id for chunk, row in places)
    manifest = {
        **(fields(ids) if callable(fields) else fields),
        "answers": count_answers(chunks[chunk][row] for chunk, row in places),
        "id_type": "uint16" if short else "int32",
        "files": {file.name: sha256_of(file) for file in files},
    }
    write_manifest(folder, manifest)
    log.unlink()
    sync(folder)


def write_shards(
    folder: Path, answers: Iterable[Answer], num_answers: int, *, short: bool, shard_answers: int
) -> list[Path]:
    """One file, or numbered ones; packed files of before are removed."""
    for old in folder.glob("answers*.parquet"):
        old.unlink()
    rows, files = iter(answers), list[Path]()
    for index in range(-(-num_answers // shard_answers)):
        single = num_answers <= shard_answers
        files.append(folder / (PACKED_FILE if single else f"answers-{index:05d}.parquet"))
        with new_file(files[-1]) as unfinished:
            write_parquet(unfinished, islice(rows, shard_answers), short=short)
    return files


def count_answers(answers: Iterable[Answer]) -> dict[str, object]:
    """What a manifest says of the answers: how many, how long, how they ended."""
    totals: Counter[str] = Counter()
    categories: Counter[str] = Counter()
    for answer in answers:
        totals["number"] += 1
        totals["prompt_tokens"] += len(answer.prompt_ids)
        totals["answer_tokens"] += len(answer.answer_ids)
        totals["ended_by_themselves"] += answer.finish_reason == "stop"
        totals["sampled"] += answer.temperature > 0
        categories[answer.category or ""] += 1
    return {**totals, "by_category": dict(sorted(categories.items()))}


def _places(chunks: Sequence[AnswerChunk], rank: Rank | None) -> list[tuple[int, int]]:
    """Chunk and row of every answer that stays, in their order."""
    seen: set[tuple[str, int]] = set()
    kept: list[tuple[int, int, int]] = []
    for index, chunk in enumerate(chunks):
        for row in range(len(chunk)):
            answer = chunk[row]
            if answer.key in seen:
                continue
            seen.add(answer.key)
            place = 0 if rank is None else rank(answer)
            if place is not None:
                kept.append((place, index, row))
    return [(index, row) for _, index, row in sorted(kept)]
