"""Inputs to conversations: read, parsed, filtered row by row, in the order of the inputs.

Near duplicates among the conversations need all of them and are found later (`prepare.py`).
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from blockdraft.data.conversations import Conversation
from blockdraft.data.duplicates import ShingleTable
from blockdraft.data.leaks import EvalPrompts, Leak
from blockdraft.data.left_out import Place, RowCounts
from blockdraft.data.manifest import sha256_of
from blockdraft.data.messages import RefusedRow
from blockdraft.data.reading import BrokenRow, RawRow, name_row, parse, read_rows
from blockdraft.data.shapes import ParsedRow
from blockdraft.data.sources import PromptSource
from blockdraft.data.words import fingerprint, shingles_of, words_of
from blockdraft.errors import ConfigError, RequestError

CountTokens = Callable[[Conversation], int]
"""The tokens of a conversation's prompts; may raise RequestError for one that has no text form."""

Progress = Callable[[int], None]
"""Takes the number of rows read so far."""

MOST_LEAKS_NAMED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """Which rows are wanted. Lengths are those of all user turns together, bounds included."""

    min_chars: int = 1
    max_chars: int | None = None
    max_prompt_tokens: int | None = None
    on_bad: Literal["skip", "stop"] = "skip"

    def __post_init__(self) -> None:
        if self.min_chars < 1:
            raise ConfigError(f"min_chars is {self.min_chars}: use at least 1")
        if self.max_chars is not None and self.max_chars < self.min_chars:
            raise ConfigError(f"max_chars {self.max_chars} is below min_chars {self.min_chars}")
        if self.max_prompt_tokens is not None and self.max_prompt_tokens < 1:
            raise ConfigError(f"max_prompt_tokens is {self.max_prompt_tokens}: use at least 1")


@dataclass(slots=True, eq=False)
class InputCounts:
    """What came out of one input; the hash is that of the file, or of a data set's rows."""

    rows: int = 0
    usable: int = 0
    sha256: str = ""
    shapes: Counter[str] = field(default_factory=Counter[str])


@dataclass(slots=True, eq=False)
class Collected:
    """The conversations that passed, with what is known of each, and counts of the rest."""

    conversations: list[Conversation] = field(default_factory=list[Conversation])
    places: list[Place] = field(default_factory=list[Place])
    input_of: list[int] = field(default_factory=list[int])
    shingles: ShingleTable = field(default_factory=ShingleTable)
    dropped: RowCounts = field(default_factory=RowCounts)
    changed: RowCounts = field(default_factory=RowCounts)
    leaks: list[Leak] = field(default_factory=list[Leak])
    inputs: list[InputCounts] = field(default_factory=list[InputCounts])

    @property
    def num_rows(self) -> int:
        return sum(counts.rows for counts in self.inputs)


class Collector:
    """Takes rows, keeps those that pass."""

    def __init__(
        self, row_filter: RowFilter, eval_prompts: EvalPrompts, count_tokens: CountTokens | None
    ) -> None:
        self._filter = row_filter
        self._eval_prompts = eval_prompts
        self._count_tokens = count_tokens
        self._ids: set[str] = set()
        self._seen: dict[bytes, int] = {}
        self._short_name = ""
        self.collected = Collected()

    def read(self, source: PromptSource, progress: Progress) -> None:
        """Take the rows of one input, up to its limit.

        Raises ConfigError for a bad row when bad rows are to stop the run.
        """
        counts = InputCounts()
        self.collected.inputs.append(counts)
        self._short_name = source.short_name
        num_before = self.collected.num_rows
        digest = hashlib.sha256()
        is_hub = source.kind == "hub"
        for row in read_rows(source):
            counts.rows += 1
            progress(num_before + counts.rows)
            if is_hub:  # which has no file that could be hashed
                digest.update(json.dumps(row, sort_keys=True, default=str).encode("utf-8"))
            try:
                parsed = parse(row, source)
                counts.shapes[parsed.shape] += 1
                if self._take(parsed, source, row.number):
                    counts.usable += 1
            except RefusedRow as error:
                if self._filter.on_bad == "stop":
                    raise ConfigError(
                        f"{name_row(source, row.number)}: {error} ({error.reason}); nothing was "
                        "written; correct the row, or leave such rows out (--on-bad skip)"
                    ) from error
                self.collected.dropped.add(error.reason, _place(source, row), str(error))
            if counts.usable == source.limit:
                break
        counts.sha256 = digest.hexdigest() if is_hub else sha256_of(source.path)

    def _take(self, parsed: ParsedRow, source: PromptSource, number: int) -> bool:
        """Keep the row or count why not; RefusedRow when its template fails."""
        place = Place(source.name, number)
        conversation = self._conversation(parsed, source, number)
        reason = self._unfit(conversation)
        if reason is not None:
            self.collected.dropped.add(reason, place)
            return False
        words = [words_of(turn) for turn in conversation.turns]
        shingles = [shingles_of(turn) for turn in words]
        for text, own_words, own_shingles in zip(conversation.turns, words, shingles, strict=True):
            found = self._eval_prompts.find(text, own_words, own_shingles)
            if found is not None:
                self._drop_leak(Leak(place, conversation.id, found))
                return False
        if self._repeats(words, place):
            return False
        if conversation.id != parsed.id and parsed.id is not None:
            self.collected.changed.add("renamed_id", place, f"{parsed.id} to {conversation.id}")
        if parsed.dialogue.cut:
            self.collected.changed.add("cut_at_tool", place)
        self._ids.add(conversation.id)
        self.collected.conversations.append(conversation)
        self.collected.places.append(place)
        self.collected.input_of.append(len(self.collected.inputs) - 1)
        self.collected.shingles.append(set[int]().union(*shingles))
        return True

    def _conversation(self, parsed: ParsedRow, source: PromptSource, number: int) -> Conversation:
        return Conversation(
            id=self._free_id(parsed.id or f"{source.stem}-{number}"),
            turns=parsed.dialogue.turns,
            source=self._short_name,
            category=parsed.category or source.category,
            license=parsed.license or source.license,
            system=parsed.dialogue.system,
            tools=parsed.tools,
        )

    def _free_id(self, wanted: str) -> str:
        """`wanted`, or with the first free number behind it."""
        identity, number = wanted, 2
        while identity in self._ids:
            identity, number = f"{wanted}#{number}", number + 1
        return identity

    def _unfit(self, conversation: Conversation) -> str | None:
        """By which length limit the conversation is left out."""
        num_chars = sum(map(len, conversation.turns))
        if num_chars < self._filter.min_chars:
            return "too_short"
        if self._filter.max_chars is not None and num_chars > self._filter.max_chars:
            return "too_long"
        if self._filter.max_prompt_tokens is not None and self._count_tokens is not None:
            try:
                num_tokens = self._count_tokens(conversation)
            except RequestError as error:
                raise RefusedRow("template_error", str(error)) from error
            if num_tokens > self._filter.max_prompt_tokens:
                return "too_many_tokens"
        return None

    def _drop_leak(self, leak: Leak) -> None:
        of = leak.of.turn
        detail = f"repeats {of.id} of {of.place.file}, line {of.place.line}"
        self.collected.dropped.add(f"leak_{leak.of.kind}", leak.place, detail)
        if len(self.collected.leaks) < MOST_LEAKS_NAMED:
            self.collected.leaks.append(leak)

    def _repeats(self, words: list[list[str]], place: Place) -> bool:
        key = fingerprint(words)
        first = self._seen.setdefault(key, len(self.collected.conversations))
        if first == len(self.collected.conversations):
            return False
        detail = f"repeats {self.collected.conversations[first].id}"
        self.collected.dropped.add("exact_duplicate", place, detail)
        return True


def _place(source: PromptSource, row: RawRow | BrokenRow) -> Place:
    return Place(source.name, row.number)
