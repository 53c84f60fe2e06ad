"""Turns a `GrammarSpec` into the source text that is compiled, after the checks that cost nothing.

Pure: it compiles nothing and bounds only what can be read off the text.
"""

import json
from collections.abc import Iterator
from typing import Literal, NamedTuple, cast

from blockdraft.errors import RequestError
from blockdraft.json_values import as_list, as_object
from blockdraft.structured.limits import GrammarLimits
from blockdraft.structured.schema import check_schema
from blockdraft.structured.schema_strings import use_patterns
from blockdraft.structured.spec import GrammarSpec

Dialect = Literal["json_schema", "regex", "ebnf", "structural_tag"]

_WITH_SCHEMA = ("json_schema", "qwen_xml_parameter")
"""Formats of a structural tag that hold a JSON schema."""


class GrammarSource(NamedTuple):
    """What the compiler is fed."""

    dialect: Dialect
    text: str


def grammar_source(spec: GrammarSpec, limits: GrammarLimits) -> GrammarSource:
    """Raises RequestError for a spec that is too long or deep, broken, or that asks for what
    would be ignored."""
    if spec.asked is not None:
        grammar_source(spec.asked, limits)
    try:
        size = len(spec.value.encode())
    except UnicodeEncodeError as error:
        raise RequestError(f"the {spec.title} holds half a character ({error.reason})") from error
    if size > limits.max_spec_bytes:
        raise RequestError(
            f"the {spec.title} is {size} bytes long and the limit {limits.max_spec_bytes}; "
            "make it smaller"
        )
    if spec.kind == "json_object":
        return GrammarSource("json_schema", '{"type": "object"}')
    if spec.kind == "json_schema":
        schema = _json(spec, limits.max_depth)
        check_schema(schema)
        use_patterns(schema)
        return GrammarSource("json_schema", json.dumps(schema))
    if spec.kind == "choice":
        return GrammarSource("ebnf", _one_of(_json(spec, limits.max_depth)))
    if spec.kind == "structural_tag":
        tag = _json(spec, limits.max_depth)
        for schema in _schemas_in(tag):
            check_schema(schema)
            use_patterns(schema)
        return GrammarSource("structural_tag", json.dumps(tag))
    if not spec.value.strip():
        raise RequestError(f"the {spec.title} is empty; write what the output must look like")
    return GrammarSource("regex" if spec.kind == "regex" else "ebnf", spec.value)


def _json(spec: GrammarSpec, max_depth: int) -> object:
    try:
        value = cast(object, json.loads(spec.value))
    except ValueError as error:
        raise RequestError(f"the {spec.title} is not JSON: {error}") from error
    except RecursionError as error:
        raise RequestError(f"the {spec.title} is nested more than {max_depth} deep") from error
    if _deeper_than(value, max_depth):
        raise RequestError(
            f"the {spec.title} is nested more than {max_depth} deep; flatten it, or name parts of "
            "it in $defs"
        )
    return value


def _deeper_than(value: object, depth: int) -> bool:
    level = [value]
    for _ in range(depth + 1):
        level = [part for outer in level for part in _parts(outer)]
        if not level:
            return False
    return True


def _schemas_in(tag: object) -> Iterator[object]:
    """The JSON schemas inside a structural tag."""
    left = [tag]
    while left:
        part = left.pop()
        node = as_object(part)
        if node.get("type") in _WITH_SCHEMA:
            yield node.get("json_schema")
        else:
            left += _parts(part)


def _parts(value: object) -> list[object]:
    return as_list(value) or list(as_object(value).values())


def _one_of(choices: object) -> str:
    """An EBNF grammar of the given strings, each taken literally."""
    if not isinstance(choices, list) or not choices:
        raise RequestError('choice must be a list of strings that is not empty: ["yes", "no"]')
    literals: list[str] = []
    for index, choice in enumerate(cast(list[object], choices)):
        if not isinstance(choice, str) or not choice:
            raise RequestError(f"choice[{index}] is {choice!r}; it must be a string, not empty")
        literals.append('"' + "".join(_escaped(letter) for letter in choice) + '"')
    return "root ::= " + " | ".join(dict.fromkeys(literals))


def _escaped(letter: str) -> str:
    if letter.isascii() and (letter.isalnum() or letter == " "):
        return letter
    if 0xD800 <= ord(letter) <= 0xDFFF:
        raise RequestError("choice holds half a character (a lone surrogate)")
    return f"\\U{ord(letter):08x}"
