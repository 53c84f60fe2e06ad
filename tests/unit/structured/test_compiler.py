"""The real compiler with its own process, and what strangers may send it."""

import json
import os
import signal
import threading
import time
from typing import Literal

import pytest
import torch

from blockdraft.errors import ConfigError, RequestError
from blockdraft.structured.compiler import GrammarCompiler
from blockdraft.structured.limits import GrammarLimits
from blockdraft.structured.spec import GrammarSpec
from blockdraft.target.text import TextCodec

HOSTILE_REGEXES = (
    "(((a?b?c?){1,100}){1,100}){1,100}z",
    "(((((.{1,1000}){1,1000}){1,1000}){1,1000}){1,1000})x",
    "(" * 20000 + "a" + ")" * 20000,
)
HOSTILE_RULES = "\n".join(
    ["root ::= " + " | ".join(f"r{i}" for i in range(4000))]
    + [f'r{i} ::= [a-z]* "{i}" [a-z]*' for i in range(4000)]
)


def regex(value: str) -> GrammarSpec:
    return GrammarSpec(kind="regex", value=value)


def schema(value: object) -> GrammarSpec:
    return GrammarSpec(kind="json_schema", value=json.dumps(value))


@pytest.mark.parametrize(
    ("kind", "value", "good", "bad"),
    [
        ("json_object", "", '{"a": [1, {"b": null}]}', "[1]"),
        ("json_schema", '{"type": "array", "items": {"type": "integer"}}', "[1, 2]", '["a"]'),
        ("regex", r"^[a-z]+@[a-z]+\.(com|org)$", "ada@abc.org", "ada@abc.net"),
        ("regex", r"\d{1,3}(\.\d{1,3}){3}", "127.0.0.1", "127.0.0"),
        ("choice", '["yes", "n\\"o\\\\", "caf\\u00e9 \\n]"]', 'n"o\\', "caf"),
        ("choice", '["yes", "n\\"o\\\\", "caf\\u00e9 \\n]"]', "caf\u00e9 \n]", "maybe"),
        ("grammar", 'root ::= "(" root? ")"', "((()))", "(()"),
        (
            "structural_tag",
            json.dumps(
                {
                    "type": "structural_tag",
                    "format": {
                        "type": "tag",
                        "begin": "<tool_call>",
                        "content": {"type": "json_schema", "json_schema": {"type": "object"}},
                        "end": "</tool_call>",
                    },
                }
            ),
            '<tool_call>{"a": 1}</tool_call>',
            '{"a": 1}',
        ),
    ],
)
def test_each_kind(
    kind: Literal["regex"],
    value: str,
    good: str,
    bad: str,
    compiler: GrammarCompiler,
    codec: TextCodec,
    stop_ids: tuple[int, ...],
) -> None:
    make = compiler.compile(GrammarSpec(kind=kind, value=value))
    row = torch.zeros(codec.vocab_size + 21)
    for text, is_good in ((good, True), (bad, False)):
        processor = make()
        ids = codec.encode(text)
        legal = all(bool(processor.mask(row, ids[:n])[ids[n]].isfinite()) for n in range(len(ids)))
        ended = bool(processor.mask(row, ids)[stop_ids[0]].isfinite())
        assert (legal and ended) == is_good


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (regex("(a"), "parenthesis"),
        (regex("(?=a)b"), "Lookahead"),
        (GrammarSpec(kind="grammar", value="root ::= foo"), '"foo" is not defined'),
        (GrammarSpec(kind="grammar", value='start ::= "a"'), '"root" is not found'),
        (GrammarSpec(kind="grammar", value="root ::= root"), "dead end"),
        (GrammarSpec(kind="grammar", value='root ::= "a" x\nx ::= x'), "no text can follow 'a'"),
        (schema({"type": "integer", "minimum": 5, "maximum": 3}), "minimum"),
        (schema({"oneOf": [{"type": "integer"}, {"type": "number"}]}), "ignored.*oneOf"),
        (schema({"$ref": "http://example.com/x"}), "ignored"),
        (GrammarSpec(kind="structural_tag", value='{"type": "structural_tag"}'), "tag"),
    ],
)
def test_errors_teach(
    spec: GrammarSpec,
    message: str,
    compiler: GrammarCompiler,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        compiler.compile(spec)
    assert "\n" not in str(caught.value)
    assert "/" not in str(caught.value).replace("#/", "").replace("example.com/", "").replace(
        "http://", ""
    )  # no paths of xgrammar's build
    assert capfd.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        *(regex(value) for value in HOSTILE_REGEXES),
        GrammarSpec(kind="grammar", value=HOSTILE_RULES),
        schema({"enum": [f"{i}" for i in range(40000)]}),
        schema({"type": "object", "properties": {f"k{i}": True for i in range(2000)}}),
    ],
    ids=["ambiguous", "nested-repeats", "nested-groups", "rules", "enum", "properties"],
)
def test_hostile_grammars_are_refused_in_bounded_time(
    spec: GrammarSpec, compiler: GrammarCompiler
) -> None:
    compiler.compile(regex("a"))  # the process has started
    started = time.thread_time()
    with pytest.raises(RequestError, match=r"simpler|compile|ambiguous|smaller"):
        compiler.compile(spec)
    assert time.thread_time() - started < 1.0  # of our own process
    started = time.perf_counter()
    with pytest.raises(RequestError):
        compiler.compile(spec)  # the refusal is remembered
    assert time.perf_counter() - started < 0.5
    compiler.compile(regex("a|b"))


@pytest.mark.parametrize("value", ["a{1,1000000}", "(a+)+b", "(a*)*b", "(a|aa|aaa)+b"])
def test_what_kills_others_is_harmless_here(value: str, compiler: GrammarCompiler) -> None:
    compiler.compile(regex(value))


def test_a_grammar_is_compiled_once(compiler: GrammarCompiler) -> None:
    spec = schema({"type": "object", "properties": {"a": {"type": "integer"}}})
    compiler.compile(spec)
    before = compiler.cached_bytes
    started = time.perf_counter()
    first, second = compiler.compile(spec)(), compiler.compile(spec)()
    assert time.perf_counter() - started < 0.5
    assert first is not second
    assert compiler.cached_bytes == before > 0


def test_threads_may_ask_at_once(compiler: GrammarCompiler) -> None:
    done: list[int] = []

    def ask(number: int) -> None:
        compiler.compile(regex(f"thread{number % 4}"))
        done.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(done) == list(range(8))


@pytest.mark.slow
def test_the_process_comes_back_when_it_was_killed(compiler: GrammarCompiler) -> None:
    compiler.compile(regex("before"))
    os.kill(compiler.process_id, signal.SIGKILL)
    time.sleep(0.2)
    compiler.compile(regex("after"))


def test_a_closed_compiler_says_so(codec: TextCodec, stop_ids: tuple[int, ...]) -> None:
    compiler = GrammarCompiler(codec, codec.vocab_size, stop_ids)
    compiler.close()
    with pytest.raises(ConfigError, match="closed"):
        compiler.compile(regex("a"))


@pytest.mark.parametrize("stop_ids", [(), (-1,), (10**6,)])
def test_stop_ids_are_checked(stop_ids: tuple[int, ...], codec: TextCodec) -> None:
    with pytest.raises(ConfigError, match="stop ids"):
        GrammarCompiler(codec, codec.vocab_size, stop_ids)


def test_limits_are_checked() -> None:
    with pytest.raises(ConfigError, match="cache_bytes"):
        GrammarLimits(cache_bytes=0)
    with pytest.raises(ConfigError, match="compile_seconds"):
        GrammarLimits(compile_seconds=float("nan"))
