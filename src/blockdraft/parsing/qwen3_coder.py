"""The XML format of Qwen3-Coder and Qwen3.5: <function=f><parameter=x>..</parameter></function>.

The values are plain text, so a call comes out whole, when it is complete; nothing of it is passed
on before. That is also why a broken one can come out as text without loss.
"""

import json
from collections.abc import Mapping

from blockdraft.parsing.hermes import CLOSE_TAG, OPEN_TAG
from blockdraft.parsing.matching import Expect, FreeText
from blockdraft.parsing.offered import OfferedTool
from blockdraft.parsing.schema_values import json_of
from blockdraft.parsing.stepping import Sink

FUNCTION_OPEN = "<function="
FUNCTION_CLOSE = "</function>"
PARAMETER_OPEN = "<parameter="
PARAMETER_CLOSE = "</parameter>"
_MAX_NAME_LEN = 256


class Qwen3CoderMachine:
    """Reads calls with or without <tool_call> around them: the model often forgets to open it.

    A value ends at the first </parameter>: the format has no way to write one inside a value.
    """

    def __init__(self, sink: Sink, tools: Mapping[str, OfferedTool]) -> None:
        self._sink = sink
        self._tools = tools
        self._text = FreeText(sink, [OPEN_TAG, FUNCTION_OPEN])
        self._step_now = self._step_text
        self._expect = Expect()
        self._raw: list[str] = []
        self._name: list[str] = []
        self._tool: OfferedTool | None = None
        self._key = ""
        self._value: list[str] = []
        self._values: dict[str, str] = {}

    def step(self, char: str) -> None:
        self._step_now(char)

    def end(self) -> None:
        if self._step_now == self._step_text:
            self._text.end()
        elif self._step_now != self._step_closed:
            is_waiting = self._step_now == self._step_expect
            self._sink.content("".join(self._raw) + (self._expect.partial if is_waiting else ""))

    def _step_text(self, char: str) -> None:
        mark = self._text.step(char)
        if mark is None:
            return
        self._raw = [mark]
        if mark.endswith(OPEN_TAG):
            self._await(FUNCTION_OPEN)
        else:
            self._begin_name()

    def _step_expect(self, char: str) -> None:
        literal = self._expect.step(char)
        if literal is None:
            self._give_up(self._expect.partial)
            return
        # What was matched in part is kept apart, so that it can be read again.
        if literal:
            self._raw.append(literal)
        elif not self._expect.partial:
            self._raw.append(char)
        if literal == FUNCTION_CLOSE:
            self._finish()
        elif literal:
            self._begin_name()

    def _step_name(self, char: str) -> None:
        """The name of a function or of a parameter, up to the bracket."""
        if char in "<\n" or len(self._name) == _MAX_NAME_LEN:
            self._give_up(char)
            return
        self._raw.append(char)
        if char != ">":
            self._name.append(char)
            return
        name = "".join(self._name).strip()
        if self._tool is not None:
            self._key, self._value = name, []
            self._step_now = self._step_value
            return
        self._tool = self._tools.get(name)
        if self._tool is None:
            self._give_up("")
        else:
            self._await(PARAMETER_OPEN, FUNCTION_CLOSE)

    def _step_value(self, char: str) -> None:
        self._raw.append(char)
        self._value.append(char)
        size = len(PARAMETER_CLOSE)
        if char != ">" or "".join(self._value[-size:]) != PARAMETER_CLOSE:
            return
        assert self._tool is not None
        text = "".join(self._value[:-size]).removeprefix("\n").removesuffix("\n")
        self._values[self._key] = json_of(text, self._key, self._tool.parameters)
        self._await(PARAMETER_OPEN, FUNCTION_CLOSE)

    def _step_closed(self, char: str) -> None:
        literal = self._expect.step(char)
        if literal == "":
            return
        self._resume(after_call=True)
        if literal is None:
            self._sink.read_again(self._expect.partial)

    def _await(self, *literals: str) -> None:
        self._expect = Expect(*literals)
        self._step_now = self._step_expect

    def _begin_name(self) -> None:
        self._name = []
        self._step_now = self._step_name

    def _finish(self) -> None:
        assert self._tool is not None
        pairs = [
            f"{json.dumps(key, ensure_ascii=False)}: {value}" for key, value in self._values.items()
        ]
        self._sink.start(self._tool.name)
        self._sink.arguments("{" + ", ".join(pairs) + "}")
        self._expect = Expect(CLOSE_TAG)
        self._step_now = self._step_closed
        self._forget()

    def _give_up(self, rest: str) -> None:
        self._sink.content("".join(self._raw))
        self._resume(after_call=False)
        self._sink.read_again(rest)

    def _resume(self, *, after_call: bool) -> None:
        self._step_now = self._step_text
        self._text.resume(after_mark=after_call)
        self._forget()

    def _forget(self) -> None:
        self._raw, self._values, self._tool = [], {}, None
