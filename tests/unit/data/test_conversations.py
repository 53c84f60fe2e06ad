"""The one shape of prepared prompts: there and back, and what it refuses."""

import json

import pytest

from blockdraft.data.conversations import Conversation, from_json, to_json, to_line
from blockdraft.errors import ConfigError

FULL = Conversation(
    id="a",
    category="math",
    source="file.jsonl",
    license="MIT",
    system="Be brief.",
    turns=("One\u2028two", "Three"),
    tools=({"type": "function", "function": {"name": "add"}},),
)


def test_a_conversation_survives_its_line() -> None:
    line = to_line(FULL)
    assert line.count("\n") == 1 and line.endswith("\n")
    assert from_json(json.loads(line), source="other") == FULL


def test_what_is_none_is_left_out() -> None:
    small = Conversation(id="a", turns=("Hi",), source="s")
    assert to_json(small) == {"id": "a", "source": "s", "turns": ["Hi"]}


def test_the_simple_form_is_read() -> None:
    read = from_json({"id": "a", "category": "chat", "turns": ["Hi"]}, source="seed.jsonl")
    assert read == Conversation(id="a", category="chat", turns=("Hi",), source="seed.jsonl")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"turns": ["Hi"]}, '"id"'),
        ({"id": "", "turns": ["Hi"]}, "not empty"),
        ({"id": "a"}, '"turns"'),
        ({"id": "a", "turns": []}, "no turns"),
        ({"id": "a", "turns": ["Hi", " \n"]}, "turn 1"),
        ({"id": "a", "turns": [3]}, "list of strings"),
        ({"id": "a", "turns": ["Hi"], "answer": "x"}, "unknown key 'answer'"),
        ({"id": "a", "turns": ["Hi"], "system": 3}, '"system" must be a string'),
        ({"id": "a", "turns": ["Hi"], "tools": ["x"]}, '"tools"'),
    ],
)
def test_other_records_are_refused(record: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_json(record, source="s")
