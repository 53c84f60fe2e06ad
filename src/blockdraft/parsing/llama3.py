"""The JSON format of Llama 3.x: {"name": .., "parameters": ..}, bare or behind <|python_tag|>.

Calls of built-in tools in Python syntax (`brave_search.call(..)`) are not read: they stay text.
"""

from collections.abc import Mapping

from blockdraft.parsing.call_object import ARGUMENT_KEYS, CallObject
from blockdraft.parsing.matching import Expect, FreeText
from blockdraft.parsing.offered import OfferedTool
from blockdraft.parsing.stepping import Sink

PYTHON_TAG = "<|python_tag|>"
SEPARATOR = ";"
_KEYS = ("name", "type", "id", *ARGUMENT_KEYS)


class Llama3Machine:
    """Text, then objects at the beginning of a line or behind the tag, separated by semicolons.

    Since a bare object has no tag, it is a call only with the keys of one, a known name and
    parameters; JSON that answers something else comes out as text at its first key. Where a tool
    is strict, an object inside the text is none: no grammar could have held it.
    """

    def __init__(self, sink: Sink, tools: Mapping[str, OfferedTool]) -> None:
        self._sink = sink
        self._names = tools.keys()
        is_free = not any(tool.is_strict for tool in tools.values())
        self._text = FreeText(sink, [PYTHON_TAG], line_marks=["{"], on_every_line=is_free)
        self._opened = ""
        self._expect: Expect | None = None
        self._call: CallObject | None = None

    def step(self, char: str) -> None:
        if self._call is not None:
            self._step_call(self._call, char)
        elif self._expect is not None:
            self._step_expect(self._expect, char)
        elif mark := self._text.step(char):
            self._open(mark)

    def end(self) -> None:
        if self._call is not None:
            if not self._call.has_started:
                self._sink.content(self._opened + "".join(self._call.raw))
        elif self._expect is not None:
            is_only_separator = self._opened.strip() in ("", SEPARATOR)
            self._sink.content(self._expect.partial if is_only_separator else self._opened)
        else:
            self._text.end()

    def _open(self, mark: str) -> None:
        """Go on behind a mark: the brace of a call, the tag or a separator."""
        if mark.endswith("{"):
            self._opened = mark[:-1]
            self._call, self._expect = self._new_call(), None
        else:
            self._opened = mark
            is_separator = mark.endswith(SEPARATOR)
            self._expect = Expect("{", PYTHON_TAG) if is_separator else Expect("{")

    def _new_call(self) -> CallObject:
        return CallObject(self._sink, self._names, needs_arguments=True, other_keys=_KEYS)

    def _step_expect(self, expect: Expect, char: str) -> None:
        literal = expect.step(char)
        if literal:
            self._open(self._opened + literal)
        elif literal is None:
            is_after_call = not self._opened
            self._sink.content(self._opened)
            self._resume(after_call=is_after_call)
            self._sink.read_again(expect.partial)
        elif self._opened and not expect.partial:
            self._opened += char

    def _step_call(self, call: CallObject, char: str) -> None:
        progress = call.step(char)
        if progress == "open":
            return
        rest = char if progress == "broken" else ""
        if call.has_all_arguments and call.has_started:
            self._call, self._opened = None, ""
            self._expect = Expect(SEPARATOR, "{", PYTHON_TAG)
        else:
            self._sink.content("" if call.has_started else self._opened + "".join(call.raw))
            self._resume(after_call=False)
        self._sink.read_again(rest)

    def _resume(self, *, after_call: bool) -> None:
        self._call, self._opened, self._expect = None, "", None
        self._text.resume(after_mark=after_call)
