"""Each shape that rows come in, and each way in which a row can be unusable."""

import pytest

from blockdraft.data.messages import RefusedRow
from blockdraft.data.shapes import parse_row

USER = {"role": "user", "content": "Hi"}
ASSISTANT = {"role": "assistant", "content": "Hello"}
AGAIN = {"role": "user", "content": "Again"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
TOOL = {"role": "tool", "content": "42"}
SYSTEM = {"role": "system", "content": "Be brief."}
IMAGE = {"type": "image_url", "image_url": {"url": "x"}}

SHAPES: list[tuple[str, dict[str, object], tuple[str, ...]]] = [
    ("turns", {"turns": ["Hi", "Again"]}, ("Hi", "Again")),
    ("prompt", {"prompt": "Hi", "completion": "Hello"}, ("Hi",)),
    ("prompt", {"prompt": [USER, ASSISTANT], "chosen": []}, ("Hi",)),
    ("question", {"question": "Hi", "answer": "Hello"}, ("Hi",)),
    ("instruction", {"instruction": "Add.", "input": "1 2", "output": "3"}, ("Add.\n1 2",)),
    ("instruction", {"instruction": "Hi", "input": "", "output": "x"}, ("Hi",)),
    ("messages", {"messages": [USER, ASSISTANT, AGAIN, ASSISTANT]}, ("Hi", "Again")),
    ("messages", {"messages": [USER], "model": "m", "temperature": 0.7}, ("Hi",)),
    (
        "messages",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "H"}, "i"]}]},
        ("Hi",),
    ),
    (
        "conversations",
        {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "x"}]},
        ("Hi",),
    ),
    ("conversations", {"conversations": [USER, ASSISTANT, AGAIN]}, ("Hi", "Again")),
    (
        "conversations",  # a table with the columns of both
        {"conversations": [{"from": "human", "value": "Hi", "role": None, "content": None}]},
        ("Hi",),
    ),
    (
        "request/messages",
        {"custom_id": "r1", "method": "POST", "url": "/v1", "body": {"messages": [USER]}},
        ("Hi",),
    ),
    ("request/prompt", {"request": {"model": "m", "prompt": "Hi"}, "response": {}}, ("Hi",)),
]


@pytest.mark.parametrize(("shape", "row", "turns"), SHAPES)
def test_shapes(shape: str, row: dict[str, object], turns: tuple[str, ...]) -> None:
    parsed = parse_row(row)
    assert parsed.shape == shape
    assert parsed.dialogue.turns == turns
    assert not parsed.dialogue.cut


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [SYSTEM, USER]},
        {"messages": [{"role": "developer", "content": "Be brief."}, USER]},
        {"conversations": [{"from": "system", "value": "Be brief."}, USER]},
        {"system": "Be brief.", "conversations": [USER]},
        {"system": "Be brief.", "prompt": "Hi"},
    ],
)
def test_system_prompts(row: dict[str, object]) -> None:
    assert parse_row(row).dialogue.system == "Be brief."


def test_an_empty_system_prompt_is_none() -> None:
    assert parse_row({"messages": [{"role": "system", "content": " "}, USER]}).dialogue == (
        None,
        ("Hi",),
        False,
    )


@pytest.mark.parametrize(
    ("row", "identity"),
    [
        ({"id": "a", "prompt": "Hi"}, "a"),
        ({"question_id": 81, "turns": ["Hi"]}, "81"),
        ({"custom_id": "r1", "body": {"prompt": "Hi"}}, "r1"),
        ({"id": True, "prompt": "Hi"}, None),
        ({"prompt": "Hi"}, None),
    ],
)
def test_ids(row: dict[str, object], identity: str | None) -> None:
    assert parse_row(row).id == identity


def test_what_is_said_of_a_row_is_kept() -> None:
    parsed = parse_row({"prompt": "Hi", "license": "MIT", "category": "chat"})
    assert (parsed.license, parsed.category) == ("MIT", "chat")


@pytest.mark.parametrize(
    "row",
    [
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"tools": '[{"type": "function", "function": {"name": "f"}}]'},
        {"functions": [{"name": "f"}]},
    ],
)
def test_tools_are_kept_for_the_template(row: dict[str, object]) -> None:
    assert parse_row({"messages": [USER], **row}).tools == (
        {"type": "function", "function": {"name": "f"}},
    )


@pytest.mark.parametrize("tools", [{"tools": []}, {"tools": None}, {"tools": " "}, {}])
def test_no_tools(tools: dict[str, object]) -> None:
    assert parse_row({"messages": [USER], **tools}).tools is None


@pytest.mark.parametrize(
    ("messages", "turns", "cut"),
    [
        ([USER, CALL, TOOL, ASSISTANT, AGAIN], ("Hi",), True),
        ([USER, ASSISTANT, AGAIN, CALL, TOOL, ASSISTANT], ("Hi", "Again"), False),
        ([USER, {"role": "assistant", "function_call": {"name": "f"}}, AGAIN], ("Hi",), True),
        (
            [
                {"from": "human", "value": "Hi"},
                {"from": "function_call", "value": "{}"},
                {"from": "observation", "value": "42"},
                {"from": "gpt", "value": "42"},
                {"from": "human", "value": "Again"},
            ],
            ("Hi",),
            True,
        ),
    ],
)
def test_nothing_after_a_tool_is_kept(
    messages: list[object], turns: tuple[str, ...], cut: bool
) -> None:
    dialogue = parse_row({"messages": messages}).dialogue
    assert (dialogue.turns, dialogue.cut) == (turns, cut)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("Hi", "not_an_object"),
        ({}, "unknown_shape"),
        ({"text": "a document"}, "unknown_shape"),
        ({"prompt": 3}, "unknown_shape"),
        ({"turns": []}, "no_user_turn"),
        ({"turns": ["Hi", " "]}, "empty_turn"),
        ({"turns": [{"role": "user"}]}, "not_text"),
        ({"prompt": "\n"}, "empty_turn"),
        ({"prompt": [3]}, "not_text"),
        ({"prompt": "\ud800"}, "bad_unicode"),
        ({"instruction": ""}, "empty_turn"),
        ({"messages": []}, "no_user_turn"),
        ({"messages": [SYSTEM]}, "no_user_turn"),
        ({"messages": ["Hi"]}, "not_text"),
        ({"messages": [USER, AGAIN]}, "wrong_roles"),
        ({"messages": [ASSISTANT, USER]}, "wrong_roles"),
        ({"messages": [SYSTEM, ASSISTANT]}, "wrong_roles"),
        ({"messages": [USER, ASSISTANT, ASSISTANT]}, "wrong_roles"),
        ({"messages": [USER, SYSTEM]}, "wrong_roles"),
        ({"messages": [SYSTEM, SYSTEM, USER]}, "wrong_roles"),
        ({"messages": [TOOL, USER]}, "wrong_roles"),
        ({"messages": [{"role": "narrator", "content": "x"}]}, "unknown_role"),
        ({"messages": [{"content": "x"}]}, "unknown_role"),
        ({"messages": [{"role": "user", "content": None}]}, "empty_turn"),
        ({"messages": [{"role": "user", "content": ""}]}, "empty_turn"),
        ({"messages": [{"role": "user", "content": 3}]}, "not_text"),
        ({"messages": [{"role": "user", "content": ["Hi", IMAGE]}]}, "not_text"),
        ({"messages": [{"role": "user", "content": [3]}]}, "not_text"),
        ({"messages": [USER], "tools": "{"}, "bad_tools"),
        ({"messages": [USER], "tools": ["f"]}, "bad_tools"),
        ({"messages": [USER], "functions": "f"}, "bad_tools"),
    ],
)
def test_unusable_rows_have_a_reason(row: object, reason: str) -> None:
    with pytest.raises(RefusedRow) as caught:
        parse_row(row)
    assert caught.value.reason == reason


def test_a_named_key_is_taken_alone() -> None:
    parsed = parse_row({"text": "Hi", "turns": ["no"]}, key="text")
    assert (parsed.shape, parsed.dialogue.turns) == ("key text", ("Hi",))
    with pytest.raises(RefusedRow, match="no key 'text'"):
        parse_row({"prompt": "Hi"}, key="text")
