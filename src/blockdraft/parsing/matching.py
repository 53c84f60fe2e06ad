"""Finding marks (tags) in text that arrives character by character, holding back what may be one.

It decides nothing about what a mark means; the machines of the formats do.
"""

from collections.abc import Sequence

from blockdraft.parsing.stepping import Sink

WHITE_SPACE = " \t\r\n"
"""The white space of JSON and of templates; other blanks (no-break, ideographic) are text."""

MAX_BLANKS = 256
"""Longest run of white space between a mark and what has to follow it."""


class FreeText:
    """Text for the reader up to the next mark; white space beside a mark belongs to the mark."""

    def __init__(
        self,
        sink: Sink,
        marks: Sequence[str],
        line_marks: Sequence[str] = (),
        *,
        on_every_line: bool = True,
    ) -> None:
        """`line_marks` count only where nothing but white space stands before them on the line;
        without `on_every_line` only at the beginning of the text and behind another mark."""
        self._sink = sink
        self._marks = tuple(marks)
        self._line_marks = tuple(line_marks)
        self._on_every_line = on_every_line
        self._blanks: list[str] = []
        self._partial: str = ""
        self._skips_blanks = False
        self._at_line_start = True
        self._special = {*WHITE_SPACE, *(mark[0] for mark in (*marks, *line_marks))}

    def step(self, char: str) -> str | None:
        """The mark that `char` completes, with the white space before it; else None."""
        if not self._partial and char not in self._special:
            self._let_go(char)
            return None
        self._partial += char
        while self._partial:
            first = self._partial[0]
            if first in WHITE_SPACE:
                self._hold_blank(first)
            else:
                marks = self._candidates()
                if self._partial in marks:
                    return self._take()
                if any(mark.startswith(self._partial) for mark in marks):
                    return None
                self._let_go(first)
            self._partial = self._partial[1:]
        return None

    def resume(self, *, after_mark: bool) -> None:
        """Read on; behind a mark, white space is skipped."""
        self._skips_blanks = after_mark
        self._at_line_start = after_mark

    def end(self) -> None:
        """Write what is held back."""
        self._sink.content("".join(self._blanks) + self._partial)
        self._blanks, self._partial = [], ""

    def _candidates(self) -> tuple[str, ...]:
        return self._marks + self._line_marks if self._at_line_start else self._marks

    def _hold_blank(self, blank: str) -> None:
        if not self._skips_blanks:
            self._blanks.append(blank)
        if blank == "\n" and self._on_every_line:
            self._at_line_start = True

    def _let_go(self, first: str) -> None:
        if self._blanks:
            self._sink.content("".join(self._blanks))
            self._blanks = []
        self._sink.content(first)
        self._skips_blanks = self._at_line_start = False

    def _take(self) -> str:
        taken = "".join(self._blanks) + self._partial
        self._blanks, self._partial = [], ""
        return taken


class Expect:
    """One of some literals, after some white space, and nothing else."""

    def __init__(self, *literals: str) -> None:
        self._literals = literals
        self._num_blanks_left = MAX_BLANKS
        self.partial: str = ""

    def step(self, char: str) -> str | None:
        """The literal that `char` completes, "" while more is needed, None when it fits none.

        On None, `partial` holds what was read since the white space, `char` included.
        """
        if not self.partial and char in WHITE_SPACE and self._num_blanks_left:
            self._num_blanks_left -= 1
            return ""
        self.partial += char
        if self.partial in self._literals:
            return self.partial
        fits = any(literal.startswith(self.partial) for literal in self._literals)
        return "" if fits else None
