"""The Hermes format, also of Qwen2.5 and Qwen3: a JSON object between <tool_call> tags.

It reads answers; `forced` writes the grammar of the same format.
"""

from collections.abc import Collection

from blockdraft.parsing.call_object import CallObject
from blockdraft.parsing.matching import Expect, FreeText
from blockdraft.parsing.stepping import Sink

OPEN_TAG = "<tool_call>"
CLOSE_TAG = "</tool_call>"


class HermesMachine:
    """Text, then a tag, then an object, then the closing tag, which may be missing."""

    def __init__(self, sink: Sink, names: Collection[str]) -> None:
        self._sink = sink
        self._names = names
        self._text = FreeText(sink, [OPEN_TAG])
        self._opened = ""
        self._expect: Expect | None = None
        self._call: CallObject | None = None

    def step(self, char: str) -> None:
        if self._call is not None:
            self._step_call(self._call, char)
        elif self._expect is not None:
            self._step_expect(self._expect, char)
        elif tag := self._text.step(char):
            self._opened, self._expect = tag, Expect("{")

    def end(self) -> None:
        if self._call is not None:
            if not self._call.has_started:
                self._sink.content(self._opened + "".join(self._call.raw))
        else:
            self._sink.content(self._opened)
            self._text.end()

    def _step_expect(self, expect: Expect, char: str) -> None:
        literal = expect.step(char)
        if self._opened:
            if literal == "{":
                self._call, self._expect = CallObject(self._sink, self._names), None
            elif literal is None:
                self._give_up(self._opened, char)
            else:
                self._opened += char
        elif literal is None:
            self._resume(after_call=True)
            self._sink.read_again(expect.partial)
        elif literal:
            self._resume(after_call=True)

    def _step_call(self, call: CallObject, char: str) -> None:
        progress = call.step(char)
        if progress == "open":
            return
        if not call.has_all_arguments or not call.has_started:
            rest = char if progress == "broken" else ""
            text = "" if call.has_started else self._opened + "".join(call.raw)
            self._give_up(text, rest)
            return
        self._call, self._opened, self._expect = None, "", Expect(CLOSE_TAG)
        if progress == "broken":  # a missing brace does no harm
            self._sink.read_again(char)

    def _give_up(self, text: str, rest: str) -> None:
        self._sink.content(text)
        self._resume(after_call=False)
        self._sink.read_again(rest)

    def _resume(self, *, after_call: bool) -> None:
        self._call, self._opened, self._expect = None, "", None
        self._text.resume(after_mark=after_call)
