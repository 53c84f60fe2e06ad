"""Tools and constrained output through the real grammar compiler, for several block sizes."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from starlette.testclient import TestClient

from blockdraft.structured.compiler import GrammarCompiler
from blockdraft.testing.chat import END_ID, VOCAB_SIZE, chat_codec

Serve = Callable[..., TestClient]

SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"color": {"enum": ["blue", "red"]}, "n": {"type": "integer", "maximum": 9}},
    "required": ["color", "n"],
    "additionalProperties": False,
}
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "sky"}}\n</tool_call>'
TWO = f"<think>both</think>Let me see.{CALL}{CALL.replace('sky', 'sea')}"
# Illegal where the color stands; a grammar must say blue instead.
COLORLESS = '{"color": "xxxx", "n": 7}'
ANSWERS = {"schema": COLORLESS, "look twice": TWO, "look": CALL, "plainly": "no JSON at all"}


def tool(name: str, **extra: object) -> dict[str, object]:
    parameters = {
        "type": "object",
        "properties": {"at": {"type": "string", "maxLength": 12}},
        "required": ["at"],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters, **extra}}


TOOLS = [tool("look"), tool("go")]


@pytest.fixture(scope="module")
def grammar() -> Iterator[GrammarCompiler]:
    pytest.importorskip("xgrammar")
    compiler = GrammarCompiler(chat_codec(), VOCAB_SIZE, [END_ID])
    yield compiler
    compiler.close()


def ask(text: str, **fields: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, **fields}


def choice(client: TestClient, body: Mapping[str, object]) -> Any:
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


def error(client: TestClient, body: Mapping[str, object]) -> Any:
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 400, response.text
    return response.json()["error"]


def streamed_calls(client: TestClient, body: Mapping[str, object]) -> list[tuple[str, str]]:
    response = client.post("/v1/chat/completions", json={**body, "stream": True})
    assert response.status_code == 200, response.text
    calls: dict[int, list[str]] = {}
    for line in response.text.split("\n\n"):
        if not line or line.endswith("[DONE]"):
            continue
        for part in json.loads(line[6:])["choices"]:
            for call in part["delta"].get("tool_calls", []):
                if "id" in call:
                    calls[call["index"]] = [call["function"]["name"], ""]
                calls[call["index"]][1] += call["function"]["arguments"]
    return [(name, arguments) for name, arguments in calls.values()]


@pytest.mark.parametrize("block_size", [1, 2, 5, 16])
def test_calls_come_out_whole_and_in_pieces(serve: Serve, block_size: int) -> None:
    """B15: whatever one step accepts."""
    client = serve(ANSWERS, block_size=block_size)
    body = ask("look twice", tools=TOOLS)
    made = choice(client, body)
    assert made["finish_reason"] == "tool_calls"
    message = made["message"]
    assert (message["reasoning"], message["content"]) == ("both", "Let me see.")
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["look", "look"]
    arguments = [json.loads(call["function"]["arguments"]) for call in message["tool_calls"]]
    assert arguments == [{"at": "sky"}, {"at": "sea"}]
    assert len({call["id"] for call in message["tool_calls"]}) == 2
    whole = [
        (call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]
    ]
    assert streamed_calls(client, body) == whole


def test_one_call_at_most_when_not_parallel(serve: Serve) -> None:
    client = serve(ANSWERS)
    made = choice(client, ask("look twice", tools=TOOLS, parallel_tool_calls=False))
    assert len(made["message"]["tool_calls"]) == 1


def test_without_tools_the_same_text_is_content(serve: Serve) -> None:
    client = serve(ANSWERS)
    assert choice(client, ask("look"))["message"]["content"] == CALL
    none = choice(client, ask("look", tools=TOOLS, tool_choice="none"))
    assert none["message"]["content"] == CALL and none["finish_reason"] == "stop"


@pytest.mark.parametrize("block_size", [1, 6])
@pytest.mark.parametrize("temperature", [0, 1])
def test_forced_calls_are_calls(
    serve: Serve, grammar: GrammarCompiler, block_size: int, temperature: float
) -> None:
    """B17, B20: never free text, and calls alone."""
    client = serve(ANSWERS, block_size=block_size, grammar=grammar, reasoning="none")
    base = {**ask("plainly", tools=TOOLS), "temperature": temperature, "seed": 4}
    named = {"type": "function", "function": {"name": "go"}}
    for wanted, names in (("required", {"look", "go"}), (named, {"go"})):
        made = choice(
            client, {**base, "tool_choice": wanted, "parallel_tool_calls": False, "max_tokens": 300}
        )
        calls = made["message"]["tool_calls"]
        assert made["finish_reason"] == "tool_calls"
        assert len(calls) == 1 and calls[0]["function"]["name"] in names
        assert isinstance(json.loads(calls[0]["function"]["arguments"])["at"], str)


@pytest.mark.parametrize("block_size", [1, 6])
@pytest.mark.parametrize(
    "fields",
    [
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": SCHEMA},
            }
        },
        {"structured_outputs": {"json": SCHEMA}},
    ],
)
def test_schemas_hold(
    serve: Serve, grammar: GrammarCompiler, block_size: int, fields: dict[str, object]
) -> None:
    client = serve(ANSWERS, block_size=block_size, grammar=grammar, reasoning="none")
    made = choice(client, ask("schema", max_tokens=200, **fields))
    assert made["finish_reason"] == "stop"
    assert json.loads(made["message"]["content"]) == {"color": "blue", "n": 7}


@pytest.mark.parametrize(
    ("outputs", "texts"),
    [
        ({"choice": ["yes", "no"]}, ("yes", "no")),
        ({"regex": "a{3}b?"}, ("aaa", "aaab")),
        ({"grammar": 'root ::= "x" | "yy"'}, ("x", "yy")),
    ],
)
def test_choices_expressions_and_grammars(
    serve: Serve, grammar: GrammarCompiler, outputs: dict[str, object], texts: tuple[str, ...]
) -> None:
    client = serve(ANSWERS, grammar=grammar, reasoning="none")
    made = choice(client, ask("plainly", structured_outputs=outputs, max_tokens=50))
    assert made["message"]["content"] in texts
    completion = client.post(
        "/v1/completions",
        json={"prompt": "x", "temperature": 0, "structured_outputs": outputs, "max_tokens": 20},
    )
    assert completion.json()["choices"][0]["text"] in texts


@pytest.mark.parametrize(
    "fields",
    [
        {"structured_outputs": {"regex": "("}},
        {"structured_outputs": {"grammar": "root ::= "}},
        {"structured_outputs": {"json": "{"}},
        {"structured_outputs": {"json": {"type": "nonsense"}}},
        {"structured_outputs": {"choice": ["a"]}, "response_format": {"type": "json_object"}},
        {"structured_outputs": {"choice": ["a"]}, "ignore_eos": True},
        {"structured_outputs": {"choice": ["a"]}, "min_tokens": 3},
        {"response_format": {"type": "json_object"}, "tools": TOOLS},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        {"response_format": {"type": "structural_tag"}},
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "fly"}}},
        {"tools": [tool("look", strict=True)], "ignore_eos": True},
        {"tools": [tool("look", strict=True)], "response_format": {"type": "json_object"}},
        {"tools": [tool("look"), tool("look")]},
        {"tools": [tool("bad name")]},
        {
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "x"}}}],
            "tool_choice": "required",
        },
    ],
)
def test_what_can_not_be_met_is_refused(
    serve: Serve, grammar: GrammarCompiler, fields: dict[str, object]
) -> None:
    client = serve(ANSWERS, grammar=grammar, reasoning="none")
    refused = error(client, ask("plainly", **fields))
    assert refused["message"] and refused["param"] in {*fields, "min_tokens", "ignore_eos"}


def test_reasoning_stays_free_before_a_constrained_answer(
    serve: Serve, grammar: GrammarCompiler
) -> None:
    text = '<think>any {text}</think>\n\n{"color": "red", "n": 7}'
    client = serve({"thinking": text}, block_size=6, grammar=grammar)
    made = choice(client, ask("thinking", structured_outputs={"json": SCHEMA}))
    assert made["message"]["reasoning"] == "any {text}"
    assert json.loads(made["message"]["content"]) == {"color": "red", "n": 7}


SCHEMALESS = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}
BAD_TOOL: dict[str, object] = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "string", "pattern": "("}},
}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"structured_outputs": {"regex": "("}}, "the regex can't be compiled"),
        ({"structured_outputs": {"grammar": "root ::= x"}}, "the grammar can't be compiled"),
        ({"structured_outputs": {"grammar": " "}}, "the grammar is empty"),
        ({"structured_outputs": {"json": "{"}}, "json_schema is no JSON"),
        (
            {"structured_outputs": {"json": {"$ref": "#/$defs/none"}}},
            "the json_schema can't be compiled",
        ),
        ({"response_format": SCHEMALESS}, "the JSON schema's # has type 'nonsense'"),
        (
            {"structured_outputs": {"structural_tag": '{"format": {"type": "tag"}}'}},
            "the structural_tag can't be compiled",
        ),
        (
            {"tools": [BAD_TOOL], "tool_choice": "required"},
            "the grammar of the tools can't be compiled",
        ),
    ],
)
@pytest.mark.parametrize("reasoning", ["none", "think"])
def test_messages_name_what_the_client_sent(
    serve: Serve, grammar: GrammarCompiler, reasoning: str, fields: dict[str, object], message: str
) -> None:
    """Reasoning makes a structural tag of every grammar, which is not the client's."""
    client = serve(ANSWERS, grammar=grammar, reasoning=reasoning)
    refused = error(client, ask("plainly", **fields))
    said = refused["message"]
    assert refused["param"] in fields
    assert message in said or (reasoning == "none" and "is not JSON" in said)


def test_without_a_compiler_constraints_are_refused(serve: Serve) -> None:
    client = serve(ANSWERS)
    for fields in (
        {"response_format": {"type": "json_object"}},
        {"tools": [tool("look", strict=True)]},
    ):
        refused = error(client, ask("plainly", **fields))
        assert refused["code"] == "unsupported_parameter" and refused["param"] in fields
