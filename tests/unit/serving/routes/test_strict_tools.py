"""Strict tools that the model may call: text is free, calls follow their schemas."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import pytest
from starlette.testclient import TestClient

from blockdraft.serving.answers.constraints import needs_grammar
from blockdraft.serving.protocol.chat import ChatRequest
from blockdraft.structured.compiler import GrammarCompiler
from blockdraft.testing.chat import END_ID, VOCAB_SIZE, chat_codec

Serve = Callable[..., TestClient]

FORMATS = ("hermes", "llama3-json", "qwen3-coder")


def call(parser: str, name: str, key: str, value: str) -> str:
    """One call in the format of `parser`."""
    if parser == "qwen3-coder":
        return (
            f"<tool_call>\n<function={name}>\n<parameter={key}>\n{value}\n</parameter>\n"
            "</function>\n</tool_call>"
        )
    arguments = json.dumps({key: value})
    if parser == "hermes":
        return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
    return f'{{"name": "{name}", "parameters": {arguments}}}'


def answers(parser: str) -> dict[str, str]:
    """What the target would write. Where it is wrong it has the length of what is right."""
    before, after = ("", "") if parser == "llama3-json" else ("Let me see.", " ok")
    between = "; " if parser == "llama3-json" else "\n"
    right, note = call(parser, "look", "at", "sky"), call(parser, "note", "any", "x")
    return {
        "endless": "<think>\nhm",
        "plainly": "<think>\nhm</think>No call at all {}.",
        "rightly": f"<think>\n{call(parser, 'a', 'b', 'c')}</think>{before}{right}{after}",
        "wrong name": f"<think>\nhm</think>{before}{right.replace('look', 'lock')}{after}",
        "wrong key": f"<think>\nhm</think>{before}{call(parser, 'look', 'ax', 'sky')}{after}",
        "twice": f"<think>\nhm</think>{before}{right}{between}{note}{after}",
    }


def tool(name: str, *, strict: bool | None = None) -> dict[str, object]:
    parameters = {
        "type": "object",
        "properties": {"at": {"type": "string", "maxLength": 12}},
        "required": ["at"],
        "additionalProperties": False,
    }
    function = {"name": name, "parameters": parameters, "strict": strict}
    return {"type": "function", "function": function}


TOOLS = [tool("look", strict=True), tool("note")]


@pytest.fixture(scope="module")
def grammar() -> Iterator[GrammarCompiler]:
    pytest.importorskip("xgrammar")
    compiler = GrammarCompiler(chat_codec(), VOCAB_SIZE, [END_ID])
    yield compiler
    compiler.close()


def ask(text: str, **fields: object) -> dict[str, object]:
    return {
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "tools": TOOLS,
        "max_tokens": 400,
        **fields,
    }


def whole(client: TestClient, body: Mapping[str, object]) -> Any:
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


def streamed(client: TestClient, body: Mapping[str, object]) -> dict[str, object]:
    """The same as `told`, put together from the pieces of a stream."""
    response = client.post("/v1/chat/completions", json={**body, "stream": True})
    assert response.status_code == 200, response.text
    texts = {"reasoning": "", "content": ""}
    calls: dict[int, list[str]] = {}
    reason = ""
    for line in response.text.split("\n\n"):
        if not line or line.endswith("[DONE]"):
            continue
        for part in json.loads(line[6:])["choices"]:
            reason = part["finish_reason"] or reason
            for kind in texts:
                texts[kind] += part["delta"].get(kind) or ""
            for piece in part["delta"].get("tool_calls", []):
                if "id" in piece:
                    calls[piece["index"]] = [piece["function"]["name"], ""]
                calls[piece["index"]][1] += piece["function"]["arguments"]
    return {**texts, "calls": [tuple(made) for made in calls.values()], "reason": reason}


def told(choice: Any) -> dict[str, object]:
    message = choice["message"]
    made = cast(list[dict[str, dict[str, str]]], message.get("tool_calls") or [])
    calls = [(one["function"]["name"], one["function"]["arguments"]) for one in made]
    return {
        "reasoning": message.get("reasoning") or "",
        "content": message["content"] or "",
        "calls": calls,
        "reason": choice["finish_reason"],
    }


def loaded(answer: Mapping[str, Any]) -> list[tuple[str, object]]:
    return [(name, json.loads(arguments)) for name, arguments in answer["calls"]]


@pytest.mark.parametrize("block_size", [1, 2, 7, 16])
@pytest.mark.parametrize("parser", FORMATS)
def test_calls_are_held(
    serve: Serve, grammar: GrammarCompiler, parser: str, block_size: int
) -> None:
    """Whatever the target tries, whole and in pieces, the prompt inside the reasoning or not."""
    client = serve(answers(parser), block_size=block_size, grammar=grammar, tool_parser=parser)
    around = "" if parser == "llama3-json" else "Let me see.ok"
    for asked, thinks in (("rightly", True), ("wrong name", False), ("wrong key", True)):
        body = ask(asked, chat_template_kwargs={"enable_thinking": thinks})
        answer = told(whole(client, body))
        assert loaded(answer) == [("look", {"at": "sky"})], asked
        assert (answer["content"], answer["reason"]) == (around, "tool_calls")
        assert answer["reasoning"] == (call(parser, "a", "b", "c") if asked == "rightly" else "hm")
        assert streamed(client, body) == answer
    plain = told(whole(client, ask("plainly")))
    assert (plain["content"], plain["calls"]) == ("No call at all {}.", [])
    assert plain["reason"] == "stop" and streamed(client, ask("plainly")) == plain


@pytest.mark.parametrize("parser", FORMATS)
def test_an_answer_may_end_while_it_reasons(
    serve: Serve, grammar: GrammarCompiler, parser: str
) -> None:
    """As it may without strict tools."""
    client = serve(answers(parser), block_size=7, grammar=grammar, tool_parser=parser)
    made = told(whole(client, ask("endless", chat_template_kwargs={"enable_thinking": True})))
    assert made == {"reasoning": "hm", "content": "", "calls": [], "reason": "stop"}


def test_grammars_of_strict_tools_are_waited_for_on_their_own_threads() -> None:
    asks = [ask("x"), ask("x", tool_choice="none"), ask("x", tools=[tool("look")])]
    assert [needs_grammar(ChatRequest.model_validate(one)) for one in asks] == [True, False, False]


@pytest.mark.parametrize("block_size", [1, 2, 7, 16])
@pytest.mark.parametrize("parser", FORMATS)
def test_several_calls(
    serve: Serve, grammar: GrammarCompiler, parser: str, block_size: int
) -> None:
    """A tool that is not strict takes any object; its schema is not asked."""
    client = serve(answers(parser), block_size=block_size, grammar=grammar, tool_parser=parser)
    both = told(whole(client, ask("twice")))
    assert loaded(both) == [("look", {"at": "sky"}), ("note", {"any": "x"})]
    assert streamed(client, ask("twice")) == both
    one = told(whole(client, ask("twice", parallel_tool_calls=False)))
    assert loaded(one) == [("look", {"at": "sky"})] and one["reason"] == "tool_calls"
    assert streamed(client, ask("twice", parallel_tool_calls=False)) == one


@pytest.mark.parametrize("parser", FORMATS)
def test_sampled_calls_are_held_too(serve: Serve, grammar: GrammarCompiler, parser: str) -> None:
    client = serve(answers(parser), block_size=7, grammar=grammar, tool_parser=parser)
    num_calls = 0
    for seed in range(4):
        answer = told(whole(client, ask("wrong key", temperature=0.8, seed=seed)))
        if answer["reason"] != "tool_calls":
            continue
        for name, arguments in loaded(answer):
            num_calls += 1
            assert name in ("look", "note") and isinstance(arguments, dict)
            if name == "look":
                assert list(cast(dict[str, object], arguments)) == ["at"]
    assert num_calls


def test_with_strict_false_nothing_is_held(serve: Serve, grammar: GrammarCompiler) -> None:
    client = serve(answers("hermes"), block_size=7, grammar=grammar, tool_parser="hermes")
    loose = told(whole(client, ask("wrong key", tools=[tool("look", strict=False)])))
    assert loaded(loose) == [("look", {"ax": "sky"})]
    none = told(whole(client, ask("wrong key", tool_choice="none")))
    assert none["calls"] == [] and '{"ax": "sky"}' in str(none["content"])


@pytest.mark.parametrize("reasoning", ["none", "think"])
def test_a_schema_that_cannot_be_kept_is_refused(
    serve: Serve, grammar: GrammarCompiler, reasoning: str
) -> None:
    client = serve(answers("hermes"), grammar=grammar, reasoning=reasoning)
    parameters: object = {"type": "object", "properties": {"a": {"not": {}}}}
    strict: dict[str, object] = {"name": "f", "parameters": parameters, "strict": True}
    body = ask("plainly", tools=[{"type": "function", "function": strict}])
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    refused = response.json()["error"]
    assert refused["param"] == "tools" and "tool 'f': " in refused["message"]
    assert "#/properties/a uses not" in refused["message"]
