"""`ChoiceReader`: the commits of one choice as deltas - parts, ids, log-probabilities, the end.

Streaming sends the deltas, a plain answer adds them up; there is no second way to read a commit.
"""

from dataclasses import dataclass
from typing import Literal

from blockdraft.decoding import AcceptanceStats, Commit
from blockdraft.decoding.completion import TokenLogprobs
from blockdraft.parsing.parts import (
    Content,
    OutputParser,
    Part,
    Reasoning,
    ToolCallArguments,
    ToolCallStart,
    merged,
)
from blockdraft.serving.answers.options import ReadingOptions

Ending = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What one commit adds to one choice. `drafted` says of each id whether it was a draft.

    `stop_reason` is the request's own stop string or stop token that ended it.
    """

    index: int
    is_first: bool
    parts: tuple[Part, ...]
    ids: tuple[int, ...]
    drafted: tuple[bool, ...]
    logprobs: tuple[TokenLogprobs, ...]
    ending: Ending | None = None
    stop_reason: str | int | None = None
    seconds: float = 0.0
    """Since the request got its slot."""

    @property
    def content(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Content))

    @property
    def reasoning(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Reasoning))


@dataclass(frozen=True, slots=True)
class StepDrafts:
    """One verification: how many tokens were drafted for it, and how many of them kept."""

    num_drafted: int
    num_accepted: int


class ChoiceReader:
    """Reads the commits of choice `index` in order."""

    def __init__(self, options: ReadingOptions, index: int) -> None:
        self.stats = AcceptanceStats()
        self.steps: list[StepDrafts] = []
        self.ids: list[int] = []
        self.num_cached = 0
        self.queue_seconds: float | None = None
        self.is_finished = False
        self._options = options
        self._index = index
        self._parser: OutputParser | None = None
        if options.make_parser is not None:
            self._parser = options.make_parser()
        self._text_len = 0
        self._reasoning_end = 0
        self._has_answer_begun = False
        self._called = False

    def read(self, commit: Commit) -> Delta:
        """The delta of the next commit."""
        assert not self.is_finished, "a choice ends with its finish reason"
        is_first = not self.ids
        self.ids += commit.ids
        self._count(commit.stats)
        ending: Ending | None = commit.finish_reason
        stop_reason, rest = (None, "") if ending != "stop" else self._stop(commit)
        text = commit.text + (rest if self._options.include_stop else "")
        parts = self._parse(text, at_end=ending is not None)
        if is_first and self._options.echo:
            parts.insert(0, Content(self._options.echo))
        if ending == "stop" and self._called:
            ending = "tool_calls"
        self.is_finished = ending is not None
        return Delta(
            index=self._index,
            is_first=is_first,
            parts=tuple(merged(parts)),
            ids=commit.ids,
            drafted=tuple(k < commit.num_accepted for k in range(len(commit.ids))),
            logprobs=commit.logprobs,
            ending=ending,
            stop_reason=stop_reason,
            seconds=commit.stats.seconds,
        )

    @property
    def num_reasoning(self) -> int:
        """Tokens up to the last one of the reasoning, an opening marker included."""
        decode = self._options.decode
        if not self._reasoning_end or decode is None:
            return 0
        end = self._reasoning_end
        reasoning = decode(self.ids)[:end]
        low, high = 1, len(self.ids)
        while low < high:
            middle = (low + high) // 2
            # Compared as text: a half character is not that character yet.
            if decode(self.ids[:middle])[:end] == reasoning:
                high = middle
            else:
                low = middle + 1
        return low

    def _count(self, stats: AcceptanceStats) -> None:
        before = self.stats
        if stats.steps > before.steps:
            self.steps.append(
                StepDrafts(
                    sum(stats.drafted) - sum(before.drafted),
                    sum(stats.accepted) - sum(before.accepted),
                )
            )
        self.stats = stats

    def _stop(self, commit: Commit) -> tuple[str | int | None, str]:
        """What stopped the answer, and the text of it that was cut off."""
        options, last = self._options, commit.ids[-1]
        all_text = "" if options.decode is None else options.decode(self.ids)
        rest = all_text[self._text_len + len(commit.text) :]
        if last in options.model_stop_ids:
            return None, rest
        if last in options.stop_ids:
            return last, rest
        for stop in options.stop:
            if rest.startswith(stop):
                return stop, stop
        return None, ""

    def _parse(self, text: str, *, at_end: bool) -> list[Part]:
        if self._parser is None:
            self._text_len += len(text)
            return [Content(text)]
        parts: list[Part] = []
        # Letter by letter until the answer proper begins, to know where the reasoning ends.
        fine = text if not self._has_answer_begun else ()
        for letter in fine:
            self._take(self._parser.feed(letter), 1, parts)
        if self._has_answer_begun and not fine:
            self._take(self._parser.feed(text), len(text), parts)
        if at_end:
            self._take(self._parser.end(), 0, parts)
        return self._wanted(parts)

    def _take(self, new: list[Part], num_letters: int, parts: list[Part]) -> None:
        self._text_len += num_letters
        parts += new
        for part in new:
            if isinstance(part, Reasoning):
                self._reasoning_end = self._text_len
            elif not isinstance(part, Content) or part.text.strip():
                self._has_answer_begun = True

    def _wanted(self, parts: list[Part]) -> list[Part]:
        most = self._options.max_tool_calls
        kept: list[Part] = []
        for part in parts:
            if isinstance(part, ToolCallStart | ToolCallArguments):
                self._called = True
                if most is not None and part.index >= most:
                    continue
            elif isinstance(part, Reasoning) and not self._options.include_reasoning:
                continue
            kept.append(part)
        return kept
