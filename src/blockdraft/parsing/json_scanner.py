"""`JsonScanner`: checks JSON (RFC 8259) one character at a time and says what each one is part of.

It builds no values. It is lenient in one point: raw control characters may stand inside strings,
as language models write them; `escaped` makes them proper.
"""

import json
from typing import Literal

from blockdraft.parsing.matching import WHITE_SPACE

Role = Literal["gap", "key", "value"]

MAX_DEPTH = 128
"""Deeper nesting is not taken for JSON: the readers of what comes out use recursion."""

_WORDS = {"t": "true", "f": "false", "n": "null"}
_DIGITS = "0123456789"
_HEX_DIGITS = "0123456789abcdefABCDEF"
_NUMBER_STEPS: dict[str, tuple[tuple[str, str], ...]] = {
    "minus": (("0", "zero"), ("123456789", "int")),
    "zero": ((".", "dot"), ("eE", "exp")),
    "int": ((_DIGITS, "int"), (".", "dot"), ("eE", "exp")),
    "dot": ((_DIGITS, "frac"),),
    "frac": ((_DIGITS, "frac"), ("eE", "exp")),
    "exp": ((_DIGITS, "exp_int"), ("+-", "exp_sign")),
    "exp_sign": ((_DIGITS, "exp_int"),),
    "exp_int": ((_DIGITS, "exp_int"),),
}
_NUMBER_ENDS = ("zero", "int", "frac", "exp_int")


def escaped(char: str) -> str:
    """A character of a JSON string as it must be written there."""
    return json.dumps(char)[1:-1] if char < " " else char


class JsonScanner:
    """One JSON value, with white space around it."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._state = "value"
        self._in_key = False
        self._rest: str = ""

    @property
    def depth(self) -> int:
        """Number of open objects and arrays."""
        return len(self._open)

    @property
    def in_string(self) -> bool:
        return self._state in ("string", "escape", "hex")

    @property
    def is_done(self) -> bool:
        """The value is complete; a number at the top level could still go on."""
        return not self._open and self._state in ("after", *_NUMBER_ENDS)

    def step(self, char: str) -> Role | None:
        """What `char` is part of; None when it can't stand here (the scanner is of no use then)."""
        if self.in_string:
            return self._step_string(char)
        if self._state == "word":
            return self._step_word(char)
        if self._state in _NUMBER_STEPS:
            for chars, state in _NUMBER_STEPS[self._state]:
                if char in chars:
                    self._state = state
                    return "value"
            if self._state not in _NUMBER_ENDS:
                return None
            self._state = "after"
        if char in WHITE_SPACE:
            return "gap"
        return self._step_structure(char)

    def _step_string(self, char: str) -> Role | None:
        role: Role = "key" if self._in_key else "value"
        if self._state == "hex":
            self._rest += char
            if char not in _HEX_DIGITS:
                return None
            if len(self._rest) == 4:
                self._state = "string"
        elif self._state == "escape":
            if char not in '"\\/bfnrtu':
                return None
            self._state = "hex" if char == "u" else "string"
            self._rest = ""
        elif char == "\\":
            self._state = "escape"
        elif char == '"':
            self._state = "colon" if self._in_key else "after"
        return role

    def _step_word(self, char: str) -> Role | None:
        if char != self._rest[0]:
            return None
        self._rest = self._rest[1:]
        if not self._rest:
            self._state = "after"
        return "value"

    def _step_structure(self, char: str) -> Role | None:
        match self._state:
            case "value" | "first_item":
                if char == "]" and self._state == "first_item":
                    return self._close()
                return self._begin_value(char)
            case "key" | "first_key":
                if char == "}" and self._state == "first_key":
                    return self._close()
                return self._begin_string(is_key=True) if char == '"' else None
            case "colon":
                self._state = "value"
                return "gap" if char == ":" else None
            case _:
                return self._step_after(char)

    def _step_after(self, char: str) -> Role | None:
        if not self._open:
            return None
        opener = self._open[-1]
        if char == ",":
            self._state = "key" if opener == "{" else "value"
            return "gap"
        return self._close() if opener + char in ("{}", "[]") else None

    def _begin_value(self, char: str) -> Role | None:
        if char in "{[":
            if len(self._open) == MAX_DEPTH:
                return None
            self._open.append(char)
            self._state = "first_key" if char == "{" else "first_item"
            return "value"
        if char == '"':
            return self._begin_string(is_key=False)
        if char in _WORDS:
            self._state, self._rest = "word", _WORDS[char][1:]
            return "value"
        first: dict[str, str] = {"-": "minus", "0": "zero"}
        if char in first or char in _DIGITS:
            self._state = first.get(char, "int")
            return "value"
        return None

    def _begin_string(self, *, is_key: bool) -> Role:
        self._state, self._in_key = "string", is_key
        return "key" if is_key else "value"

    def _close(self) -> Role:
        self._open.pop()
        self._state = "after"
        return "value"


def is_json(text: str) -> bool:
    """Whether `text` is one JSON value, by the rules of `JsonScanner`."""
    scanner = JsonScanner()
    return all(scanner.step(char) is not None for char in text) and scanner.is_done
