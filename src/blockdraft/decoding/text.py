"""Text of a growing answer: whole characters only, held back while a stop string may be forming.

It needs no tokenizer library, only a function from token ids to text.
"""

from collections.abc import Callable, Sequence

DecodeText = Callable[[Sequence[int]], str]
"""Maps token ids to text; incomplete UTF-8 decodes to U+FFFD, special tokens to nothing."""

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


class TextStream:
    """Decodes tokens one by one and finds stop strings.

    Token ranges: [0, shown) is text already settled, [start, shown) is decoded again as the
    left-hand context of [shown, len(ids)), whose last character is still incomplete.

    Joined over an answer without a stop string, the pieces equal `decode` of all its ids.
    """

    def __init__(self, decode: DecodeText, stops: Sequence[str] = ()) -> None:
        self._decode = decode
        self._stops = tuple(stops)
        self._longest_stop = max((len(stop) for stop in stops), default=0)
        self._ids: list[int] = []
        self._start = 0
        self._shown = 0
        self._shown_text = ""
        self._text = ""
        self._taken = 0
        self._is_cut = False

    def push(self, token_id: int, *, find_stop: bool = True) -> bool:
        """Add a token; True when it completes a stop string (the earliest in the text wins).

        From then on the text ends before the stop string. Push nothing more after that.
        """
        self._ids.append(token_id)
        settled_len = len(self._text)
        self._settle(self._decode(self._ids[self._start :]))
        return find_stop and self._cut_at_stop(settled_len)

    def _settle(self, window: str) -> None:
        if window.endswith(_INCOMPLETE):
            return
        self._text += window[len(self._shown_text) :]
        self._start, self._shown = self._shown, len(self._ids)
        self._shown_text = self._decode(self._ids[self._start : self._shown])

    def _cut_at_stop(self, settled_len: int) -> bool:
        # Only what this token completed: a match must end in the newly settled text.
        found = [self._text.find(stop, max(0, settled_len - len(stop) + 1)) for stop in self._stops]
        places = [place for place in found if place >= 0]
        if not places:
            return False
        self._text = self._text[: min(places)]
        self._is_cut = True
        return True

    def take(self) -> str:
        """The new text that is safe to show now."""
        return self._take_until(len(self._text) - self._held_back())

    def finish(self) -> str:
        """The rest of the text, an incomplete last character included (as U+FFFD)."""
        if not self._is_cut:
            self._text += self._decode(self._ids[self._start :])[len(self._shown_text) :]
            self._is_cut = True
        return self._take_until(len(self._text))

    @property
    def text(self) -> str:
        """All settled text so far."""
        return self._text

    def _take_until(self, end: int) -> str:
        piece = self._text[self._taken : end]
        self._taken = max(self._taken, end)
        return piece

    def _held_back(self) -> int:
        """Length of the longest end of the text that may be the beginning of a stop string."""
        if self._is_cut:
            return 0
        for length in range(min(self._longest_stop - 1, len(self._text)), 0, -1):
            tail = self._text[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
