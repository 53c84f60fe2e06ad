"""Parsers one behind the other: reasoning first, tool calls in what is left.

It reads no format itself.
"""

from blockdraft.parsing.parts import Content, OutputParser, Part, merged


class PlainParser:
    """All text is content."""

    def feed(self, text: str) -> list[Part]:
        return [Content(text)] if text else []

    def end(self) -> list[Part]:
        return []


class CombinedParser:
    """Content of the first parser is fed to the second; so calls inside reasoning are text."""

    def __init__(self, reasoning: OutputParser, tools: OutputParser) -> None:
        self._reasoning = reasoning
        self._tools = tools

    def feed(self, text: str) -> list[Part]:
        return merged(self._through(self._reasoning.feed(text)))

    def end(self) -> list[Part]:
        return merged([*self._through(self._reasoning.end()), *self._tools.end()])

    def _through(self, parts: list[Part]) -> list[Part]:
        result: list[Part] = []
        for part in parts:
            result += self._tools.feed(part.text) if isinstance(part, Content) else [part]
        return result


def combine(reasoning: OutputParser | None, tools: OutputParser | None) -> OutputParser:
    """One parser out of both; without any, all text is content."""
    if reasoning is not None and tools is not None:
        return CombinedParser(reasoning, tools)
    return reasoning or tools or PlainParser()
