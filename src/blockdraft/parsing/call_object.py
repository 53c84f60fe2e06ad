"""`CallObject`: one tool call written as a JSON object, {"name": .., "arguments": {..}}.

Hermes and Llama-3 share it; what stands around the object is theirs. Arguments are passed on as
the model writes them, as soon as it is certain that they belong to a call of an offered tool.
"""

import json
from collections.abc import Collection
from typing import Literal

from blockdraft.parsing.json_scanner import JsonScanner, escaped, is_json
from blockdraft.parsing.stepping import Sink

ARGUMENT_KEYS = ("arguments", "parameters")
"""Hermes writes the first, Llama-3 the second; models mix them up, so both are read everywhere."""

_MAX_KEY_LEN = 512
Progress = Literal["open", "done", "broken"]


class CallObject:
    """Reads from behind the opening brace to the closing one and writes the call to a sink.

    Nothing is written before the name is known, offered, and the arguments have their first key
    (or none): until then the call may turn out to be text. `raw` is all that was read.
    """

    def __init__(
        self,
        sink: Sink,
        names: Collection[str],
        *,
        needs_arguments: bool = False,
        other_keys: Collection[str] | None = None,
    ) -> None:
        """`other_keys`: what else may stand in the object; None allows anything."""
        self._sink = sink
        self._names = names
        self._needs_arguments = needs_arguments
        self._other_keys = other_keys
        self._scanner = JsonScanner()
        self._scanner.step("{")
        self.raw: list[str] = ["{"]
        self.has_started = False
        self.has_all_arguments = False
        self._name: str | None = None
        self._held: list[str] = []
        self._is_certain = False
        self._keys: set[str] = set()
        self._key = ""
        self._text: list[str] = []
        self._text_len = 0

    def step(self, char: str) -> Progress:
        """Read `char`; on "broken" it was not read and the object is of no more use."""
        before = self._scanner.depth
        role = self._scanner.step(char)
        if role is None or not self._follow(char, role, before):
            return "broken"
        progress: Progress = "open" if self._scanner.depth else self._finish()
        if progress != "broken":
            self.raw.append(char)
        return progress

    def _follow(self, char: str, role: str, before: int) -> bool:
        is_inner = before > 1 or self._scanner.depth > 1
        if is_inner:
            return self._follow_inner(char, role, before)
        if role == "key":
            return self._collect(char, limit=_MAX_KEY_LEN)
        if role == "value" and self._scanner.depth == 1:
            limit = _MAX_KEY_LEN if self._key == "name" else None
            return self._collect(char, limit=limit)
        if char == ":":
            return self._take_key()
        # A comma or the closing brace ends a value; white space may stand before it.
        return self._take_value() if char in ",}" else True

    def _follow_inner(self, char: str, role: str, before: int) -> bool:
        if self._key not in ARGUMENT_KEYS:
            return self._key != "name"
        if before == 1 and char == "[":
            return False
        self._held.append(escaped(char) if self._scanner.in_string else char)
        self.has_all_arguments = self._scanner.depth == 1
        if self.has_all_arguments or (char == ":" and role == "gap"):
            self._is_certain = True
        self._pass_on()
        return True

    def _collect(self, char: str, *, limit: int | None) -> bool:
        self._text.append(char)
        self._text_len += 1
        return limit is None or self._text_len <= limit

    def _taken_text(self) -> str:
        text = "".join(self._text)
        self._text, self._text_len = [], 0
        return text

    def _take_key(self) -> bool:
        self._key = _decoded(self._taken_text())
        kind = "arguments" if self._key in ARGUMENT_KEYS else self._key
        if kind in self._keys:
            return False
        self._keys.add(kind)
        is_ours = kind in ("name", "arguments")
        return is_ours or self._other_keys is None or self._key in self._other_keys

    def _take_value(self) -> bool:
        text = self._taken_text()
        if self._key == "name":
            self._name = _decoded(text) if text.startswith('"') else None
            if self._name not in self._names:
                return False
        elif self._key in ARGUMENT_KEYS and not self.has_all_arguments:
            arguments = _arguments_of(text)
            if arguments is None:
                return False
            self._held = [arguments]
            self.has_all_arguments = self._is_certain = True
        self._key = ""
        self._pass_on()
        return True

    def _finish(self) -> Progress:
        if self._name is None:
            return "broken"
        if not self.has_all_arguments:
            if self._needs_arguments:
                return "broken"
            self._held = ["{}"]
            self.has_all_arguments = self._is_certain = True
            self._pass_on()
        return "done"

    def _pass_on(self) -> None:
        if self._name is None or not self._is_certain:
            return
        if not self.has_started:
            self.has_started = True
            self._sink.start(self._name)
        self._sink.arguments("".join(self._held))
        self._held = []


def _decoded(text: str) -> str:
    """The value of a JSON string that a scanner has checked."""
    value: object = json.loads(text, strict=False)
    assert isinstance(value, str)
    return value


def _arguments_of(text: str) -> str | None:
    """The JSON object that a scalar stands for: null (no arguments), or JSON inside a string."""
    if text == "null":
        return "{}"
    arguments = _decoded(text).strip() if text.startswith('"') else ""
    if not (arguments.startswith("{") and is_json(arguments) and _is_unicode(arguments)):
        return None
    scanner = JsonScanner()
    result: list[str] = []
    for char in arguments:
        scanner.step(char)
        result.append(escaped(char) if scanner.in_string else char)
    return "".join(result)


def _is_unicode(text: str) -> bool:
    """False with half a surrogate pair, which no answer could carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
