"""Evaluation prompts, and whether a training turn repeats one of them.

It drops nothing; what is done about a leak is its caller's business (`collect.py`). Turns are
compared in three ways, each finding what the one before it can't:

    exact   the same words
    near    more than half of the shingles of the shorter one, those of instructions that many
            evaluation prompts share left out (`duplicates.py`)
    part    one is a line of the other: a question too short for shingles, under or above a line
            like "Please reason step by step."
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from blockdraft.data.duplicates import KnownTexts
from blockdraft.data.left_out import Place
from blockdraft.data.messages import RefusedRow
from blockdraft.data.reading import name_row, parse, read_rows
from blockdraft.data.sources import PromptSource
from blockdraft.data.words import fingerprint, shingles_of, words_of
from blockdraft.errors import ConfigError

LeakKind = Literal["exact", "near", "part"]


class EvalTurn(NamedTuple):
    """One user turn of an evaluation prompt."""

    place: Place
    id: str
    text: str


class RepeatedTurn(NamedTuple):
    """An evaluation turn that a training turn repeats, and how."""

    kind: LeakKind
    turn: EvalTurn


class Leak(NamedTuple):
    """A training row that repeats an evaluation turn."""

    place: Place
    id: str
    of: RepeatedTurn


class EvalPrompts:
    """The turns of evaluation prompts, held ready for comparison."""

    def __init__(self, turns: list[EvalTurn]) -> None:
        self._turns = turns
        self._exact: dict[bytes, EvalTurn] = {}
        self._by_line: dict[bytes, EvalTurn] = {}
        for turn in turns:
            self._exact.setdefault(fingerprint([words_of(turn.text)]), turn)
            for line in _lines(turn.text):
                self._by_line.setdefault(line, turn)
        self._near = KnownTexts([list(shingles_of(words_of(turn.text))) for turn in turns])

    def find(self, text: str, words: list[str], shingles: set[int]) -> RepeatedTurn | None:
        """The evaluation turn that a training turn repeats; `words`, `shingles` are those of it."""
        if not self._turns:
            return None
        whole = fingerprint([words])
        if (turn := self._exact.get(whole)) is not None:
            return RepeatedTurn("exact", turn)
        if (row := self._near.find(list(shingles))) is not None:
            return RepeatedTurn("near", self._turns[row])
        if (turn := self._by_line.get(whole)) is not None:
            return RepeatedTurn("part", turn)
        for line in _lines(text):
            if (turn := self._exact.get(line)) is not None:
                return RepeatedTurn("part", turn)
        return None


def read_eval(source: PromptSource) -> Iterator[EvalTurn]:
    """The turns of an evaluation file.

    Raises ConfigError for any row that can't be read: what is not known can't be kept out.
    """
    for row in read_rows(source):
        try:
            parsed = parse(row, source)
        except RefusedRow as error:
            raise ConfigError(
                f"{name_row(source, row.number)}: {error}; correct the evaluation file, since a "
                "prompt that can't be read can't be kept out of the training data"
            ) from error
        identity = parsed.id or f"{source.stem}-{row.number}"
        place = Place(source.name, row.number)
        yield from (EvalTurn(place, identity, turn) for turn in parsed.dialogue.turns)


def _lines(text: str) -> Iterator[bytes]:
    """Fingerprints of the lines of a text that has several."""
    lines = [words for line in text.split("\n") if (words := words_of(line))]
    if len(lines) > 1:
        yield from (fingerprint([words]) for words in lines)
