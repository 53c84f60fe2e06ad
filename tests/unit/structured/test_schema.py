"""Every keyword is compiled exactly or refused by name."""

import json
from collections.abc import Callable

import pytest
import xgrammar

from blockdraft.errors import RequestError
from blockdraft.structured.native import CompiledGrammar
from blockdraft.structured.schema import check_schema
from blockdraft.structured.spec import GrammarSpec

INTEGER = {"type": "integer"}


REFUSED: list[tuple[object, str]] = [
    (1, "must be an object"),
    ({"items": 3}, "#/items is 3"),
    ({"not": INTEGER}, "# uses not"),
    ({"if": INTEGER, "then": INTEGER}, "# uses if"),
    ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    ({"type": "array", "contains": INTEGER}, "contains"),
    ({"type": "object", "dependentRequired": {"a": ["b"]}}, "dependentRequired"),
    ({"type": "number", "multipleOf": 0.5}, "multipleOf"),
    ({"type": ["integer", "number"], "multipleOf": 5}, "multipleOf"),
    ({"type": "string", "pattern": "a", "maxLength": 3}, "minLength/maxLength"),
    ({"type": "string", "format": "date", "maxLength": 3}, "format"),
    ({"type": "string", "format": "phone"}, "format 'phone'.*date-time"),
    ({"type": "string", "maxLength": -3}, "maxLength is -3"),
    ({"type": "string", "maxLenght": 3}, "maxLenght"),
    ({"minimum": 3}, 'minimum.*"type": "integer"'),
    ({"type": "string", "minimum": 3}, "minimum"),
    ({"type": "text"}, "type 'text'"),
    ({"type": "object", "required": ["a"]}, "requires 'a'"),
    ({"properties": {"b/c": {"not": {}}}}, "#/properties/b~1c uses not"),
    ({"$ref": "#/$defs/a", "$defs": {"a": INTEGER}, "minimum": 3}, "minimum.*beside"),
    ({"anyOf": [INTEGER], "properties": {}}, "properties.*beside anyOf"),
    ({"anyOf": [INTEGER], "type": "integer"}, "type.*repeat it inside"),
    ({"enum": [1, 2], "minimum": 2}, "minimum.*beside enum"),
    ({"enum": [1, "a"], "type": "integer"}, "#/enum holds 'a'"),
    ({"const": True, "type": "integer"}, "#/const holds True"),
    ({"$defs": {"a": {"not": {}}}}, r"#/\$defs/a uses not"),
    ({"anyOf": [INTEGER, {"not": {}}]}, "#/anyOf/1 uses not"),
]


@pytest.mark.parametrize(("schema", "message"), REFUSED)
def test_what_would_be_ignored_is_refused(schema: object, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        check_schema(schema)
    assert "\n" not in str(caught.value)


NODE = {
    "type": "object",
    "properties": {"v": INTEGER, "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}},
    "required": ["v", "next"],
}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    list[tuple[object, list[object], list[object]]](
        [
            (True, [1, "a"], []),
            ({}, [1, "a", None], []),
            ({"type": "object"}, [{}, {"a": 1}], [[], 1]),
            ({"type": "array"}, [[], [1, "a"]], [{}, 1]),
            ({"type": "integer", "minimum": 3, "maximum": 12}, [3, 12], [2, 13, 3.5]),
            ({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 12}, [4, 11], [3, 12]),
            ({"type": "integer", "multipleOf": 5}, [0, 5, 10], [3]),
            ({"type": "number", "minimum": 0.5, "maximum": 1.5}, [0.5, 1, 1.5], [0.4, 1.6]),
            ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "abc"], ["a", "abcd"]),
            ({"type": "string", "pattern": "^a+$"}, ["a", "aaa"], ["b", "ab", ""]),
            ({"type": "string", "format": "date"}, ["2024-01-31"], ["x"]),
            ({"type": "string", "format": "ipv4"}, ["1.2.3.4"], ["x"]),
            ({"type": "string", "format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000"], ["x"]),
            (
                {"type": "array", "items": INTEGER, "minItems": 1, "maxItems": 2},
                [[1]],
                [[], [1, 2, 3]],
            ),
            ({"type": "array", "prefixItems": [INTEGER], "items": False}, [[1]], [[1, 1], ["a"]]),
            ({"enum": ["a", 1, None, {"x": 1}]}, ["a", 1, None], ["b", 2]),
            ({"type": "string", "enum": ["a", "b"]}, ["a", "b"], ["c"]),
            ({"const": "x"}, ["x"], ["y"]),
            ({"anyOf": [INTEGER, {"type": "string"}]}, [1, "a"], [[], None]),
            ({"oneOf": [INTEGER, {"type": "string"}]}, [1, "a"], [[], None]),
            ({"allOf": [INTEGER]}, [1], ["a"]),
            ({"type": ["integer", "null"]}, [1, None], ["a"]),
            ({"$defs": {"n": NODE}, "$ref": "#/$defs/n"}, [{"v": 1, "next": None}], [{"v": 1}]),
            ({"properties": {"a": INTEGER}, "title": "T", "x-mine": 1}, [{"a": 1}], [{"a": "x"}]),
            ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, [{"a": 1}], [{}]),
            (
                {"type": "object", "properties": {"a": INTEGER}, "additionalProperties": True},
                [{}, {"a": 1}, {"a": 1, "b": 2}],
                [{"a": "x"}],
            ),
            (
                {"type": "object", "additionalProperties": {"type": "string"}},
                [{"b": "x"}],
                [{"b": 2}],
            ),
            ({"type": "string", "minLength": 2}, ["ab", "abcd"], ["a", ""]),
            ({"type": "string", "format": "email"}, ["a.b@c-d.org"], ["a@b", "@b.c", "a"]),
            ({"type": "object", "propertyNames": {"pattern": "^a+$"}}, [{"aa": 1}], [{"b": 1}]),
        ]
    ),
)
def test_what_is_supported_is_compiled_exactly(
    schema: object,
    good: list[object],
    bad: list[object],
    compiled: Callable[[GrammarSpec], CompiledGrammar],
) -> None:
    grammar = compiled(GrammarSpec(kind="json_schema", value=json.dumps(schema))).grammar

    def matches(value: object) -> bool:
        matcher = xgrammar.GrammarMatcher(grammar)
        return matcher.accept_string(json.dumps(value)) and matcher.is_completed()

    assert [matches(value) for value in good] == [True] * len(good)
    assert [matches(value) for value in bad] == [False] * len(bad)


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"maxLength": 9},
        {"minLength": 1},
        {"pattern": "[^a]*"},
        {"pattern": r"\\W*"},
        {"format": "email"},
        {"format": "uri"},
    ],
)
def test_a_string_is_always_json(
    kind: dict[str, object], compiled: Callable[[GrammarSpec], CompiledGrammar]
) -> None:
    """Raw control characters and lone backslashes are no JSON (xgrammar's own lengths and email
    let them through)."""
    value = json.dumps({"type": "string", **kind})
    grammar = compiled(GrammarSpec(kind="json_schema", value=value)).grammar
    for code in range(32):
        matcher = xgrammar.GrammarMatcher(grammar)
        assert not matcher.accept_string(b'"' + bytes([code]))
    matcher = xgrammar.GrammarMatcher(grammar)
    assert not matcher.accept_string('"\\x')
