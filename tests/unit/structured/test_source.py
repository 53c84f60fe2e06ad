import json
from typing import cast

import pytest

from blockdraft.errors import RequestError
from blockdraft.structured.limits import GrammarLimits
from blockdraft.structured.source import grammar_source
from blockdraft.structured.spec import GrammarSpec, Kind

LIMITS = GrammarLimits(max_spec_bytes=1000, max_depth=10)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("regex", "", "empty"),
        ("grammar", " \n", "empty"),
        ("regex", "a" * 1001, "1001 bytes long and the limit 1000"),
        ("regex", "\ud800", "half a character"),
        ("json_schema", "{", "not JSON"),
        ("json_schema", "[" * 900, "nested more|not JSON"),
        ("json_schema", '{"items":' * 11 + "{}" + "}" * 11, "nested more than 10 deep"),
        ("json_schema", '{"type": "string", "minLength": 3, "maxLength": 2}', "minLength 3 above"),
        ("choice", "[]", "not empty"),
        ("choice", '"yes"', "list"),
        ("choice", '["yes", 1]', r"choice\[1\] is 1"),
        ("choice", '["yes", ""]', r"choice\[1\]"),
        ("choice", '["\\ud800"]', "half a character"),
        ("structural_tag", "x", "not JSON"),
        (
            "structural_tag",
            '{"format": {"type": "json_schema", "json_schema": {"not": {}}}}',
            "uses not",
        ),
    ],
)
def test_what_can_be_read_off_the_text(kind: Kind, value: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        grammar_source(GrammarSpec(kind=kind, value=value), LIMITS)


def test_choices_are_taken_literally() -> None:
    spec = GrammarSpec(kind="choice", value=json.dumps(["a b", 'x"\\', "a b"]))
    source = grammar_source(spec, LIMITS)
    assert source == ("ebnf", 'root ::= "a b" | "x\\U00000022\\U0000005c"')


def test_specs_are_checked() -> None:
    with pytest.raises(RequestError, match="kind 'xml'"):
        GrammarSpec(kind=cast(Kind, "xml"))
    with pytest.raises(RequestError, match="json_schema"):
        GrammarSpec(kind="json_object", value="{}")
