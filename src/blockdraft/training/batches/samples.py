"""Answers to samples: what is left out or cut, by which policy, and how much of it there was.

Nothing is read from files here. Every answer that does not become a whole sample is counted by
reason. Samples are made when they are asked for, so that a million answers need no second copy.
"""

import hashlib
from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, overload

from blockdraft.errors import ConfigError
from blockdraft.training.batches.batch import Sample

Policy = Literal["skip", "cut", "refuse"]
_NAMED = 5
"""Rows named for each reason in a report."""


class AnswerRow(Protocol):
    """What is read of an answer; `blockdraft.data.Answer` is one."""

    @property
    def category(self) -> str | None: ...
    @property
    def prompt_ids(self) -> tuple[int, ...]: ...
    @property
    def answer_ids(self) -> tuple[int, ...]: ...


class AnswerRows(Protocol):
    """Answers by row; `blockdraft.data.AnswerTable` is one."""

    def __len__(self) -> int: ...
    def __getitem__(self, row: int, /) -> AnswerRow: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleConfig:
    """Limits of a sample in tokens, prompt included, and what happens to answers beyond them.

    `on_long`: cut = the answer's beginning is kept (its missing end is not taught), skip, refuse.
    `on_bad`: answers shorter than `min_answer_tokens`, or with ids outside the vocabulary.
    `categories` empty = all.
    """

    max_tokens: int = 2048
    min_answer_tokens: int = 2
    on_long: Policy = "cut"
    on_bad: Literal["skip", "refuse"] = "skip"
    categories: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.min_answer_tokens < 2:
            raise ConfigError(
                f"min_answer_tokens is {self.min_answer_tokens}; give at least 2 (anchor, label)"
            )
        if self.max_tokens <= self.min_answer_tokens:
            raise ConfigError(
                f"max_tokens is {self.max_tokens}; give more than min_answer_tokens "
                f"{self.min_answer_tokens}"
            )
        if self.on_long not in ("skip", "cut", "refuse"):
            raise ConfigError(f"on_long is {self.on_long!r}; give cut, skip or refuse")
        if self.on_bad not in ("skip", "refuse"):
            raise ConfigError(f"on_bad is {self.on_bad!r}; give skip or refuse")


@dataclass(slots=True)
class Rejects:
    """How many answers were cut or left out for one reason, and the first rows of them."""

    count: int = 0
    rows: list[int] = field(default_factory=list[int])

    def add(self, row: int) -> None:
        self.count += 1
        if len(self.rows) < _NAMED:
            self.rows.append(row)


class SampleSet(Sequence[Sample]):
    """Samples in the order of their rows, made from the answers when asked for."""

    def __init__(self, answers: AnswerRows, max_tokens: int) -> None:
        self._answers = answers
        self._max_tokens = max_tokens
        self._rows = array("q")
        self.categories: list[str | None] = []
        """The category of each sample."""
        self.rejects: dict[str, Rejects] = {}
        """What was cut or left out, by reason."""
        self.num_tokens = 0
        self.num_answer_tokens = 0

    def add(self, row: int, answer: AnswerRow) -> None:
        """Take in the answer of `row`, cut to the limit."""
        sample = self._make(row, answer)
        self._rows.append(row)
        self.categories.append(answer.category)
        self.num_tokens += len(sample.ids)
        self.num_answer_tokens += sample.answer_len

    def reject(self, reason: str, row: int) -> None:
        self.rejects.setdefault(reason, Rejects()).add(row)

    def __len__(self) -> int:
        return len(self._rows)

    def row_of(self, index: int) -> int:
        """The row of a sample, without making it."""
        return self._rows[index]

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = self._rows[index]
        return self._make(row, self._answers[row])

    def _make(self, row: int, answer: AnswerRow) -> Sample:
        ids = (answer.prompt_ids + answer.answer_ids)[: self._max_tokens]
        return Sample(row=row, ids=ids, answer_start=len(answer.prompt_ids))


def make_samples(
    answers: AnswerRows, rows: Collection[int], config: SampleConfig, vocab_size: int
) -> SampleSet:
    """The samples of `rows` of `answers`.

    Raises ConfigError, naming the row, where the policy is to refuse.
    """
    made = SampleSet(answers, config.max_tokens)
    for row in rows:
        answer = answers[row]
        if config.categories and answer.category not in config.categories:
            made.reject("other category", row)
            continue
        reason = _why_bad(answer, config, vocab_size)
        if reason is not None:
            if config.on_bad == "refuse":
                raise ConfigError(f"answer {row}: {reason}; remove it, or set on_bad to skip")
            made.reject(reason, row)
            continue
        length = len(answer.prompt_ids) + len(answer.answer_ids)
        if length > config.max_tokens:
            if config.on_long == "refuse":
                raise ConfigError(
                    f"answer {row} has {length} tokens, more than max_tokens "
                    f"{config.max_tokens}: raise it, or set on_long to cut or skip"
                )
            made.reject(f"longer than {config.max_tokens} tokens: {config.on_long}", row)
            if config.on_long == "skip":
                continue
        made.add(row, answer)
    return made


def digest_samples(samples: Sequence[Sample]) -> str:
    """A short digest of how many samples there are and of up to 1,000 of them, evenly spread."""
    digest = hashlib.blake2b(str(len(samples)).encode(), digest_size=16)
    step = max(1, len(samples) // 1000)
    for index in range(0, len(samples), step):
        sample = samples[index]
        digest.update(repr((sample.row, sample.answer_start, sample.ids)).encode())
    return digest.hexdigest()


def _why_bad(answer: AnswerRow, config: SampleConfig, vocab_size: int) -> str | None:
    if not answer.prompt_ids:
        return "no prompt"
    if len(answer.answer_ids) < config.min_answer_tokens:
        return f"answer shorter than {config.min_answer_tokens} tokens"
    if len(answer.prompt_ids) + config.min_answer_tokens > config.max_tokens:
        return f"prompt leaves no room in {config.max_tokens} tokens"
    for ids in (answer.prompt_ids, answer.answer_ids):
        if min(ids) < 0 or max(ids) >= vocab_size:
            return f"ids outside the target's vocabulary of {vocab_size}"
    return None
