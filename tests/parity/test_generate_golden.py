"""Whole generations: the ids that the public reference implementation emitted.

Tiny random Qwen3 and Llama targets with random drafters, fp32, greedy.
"""

import json
from functools import cache
from pathlib import Path
from typing import TypedDict, cast

import pytest
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]: bare PathLike

from blockdraft import SamplingParams, generate, load_drafter, load_target
from blockdraft.decoding import Commit, Drafter, NoDrafter
from blockdraft.engine import EngineConfig, build_engine, parse_width
from blockdraft.native import NativeTarget, TargetOptions, load_engine_target
from blockdraft.target.hf import HFTarget

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


class Case(TypedDict):
    max_new_tokens: int
    stop_token_ids: list[int]
    temperature: float


def generate_cases() -> dict[str, Case]:
    manifest = cast(dict[str, Case], json.loads((GOLDEN / "manifest.json").read_text()))
    return {name: case for name, case in manifest.items() if name.startswith("generate_")}


@pytest.mark.parametrize("name", generate_cases())
def test_ids_equal_the_reference_s(name: str) -> None:
    case = generate_cases()[name]
    expected = load_file(GOLDEN / name / "expected.safetensors")
    target = load_target(str(GOLDEN / name / "target"))
    drafter = load_drafter(str(GOLDEN / name / "draft"), target)
    params = SamplingParams(
        max_new_tokens=case["max_new_tokens"], stop_ids=tuple(case["stop_token_ids"])
    )
    (prompt_ids, all_ids) = (expected[key].flatten() for key in ("prompt", "output"))
    prompt = [int(i) for i in prompt_ids]
    want = [int(i) for i in all_ids]
    for each in (drafter, NoDrafter()):
        completion = generate(target, each, prompt, params)
        assert [*completion.prompt_ids, *completion.token_ids] == want
    for block_size in (2, 5):
        completion = generate(target, drafter, prompt, params, block_size=block_size)
        assert [*completion.prompt_ids, *completion.token_ids] == want


@cache
def native_pair(name: str) -> tuple[NativeTarget | HFTarget, Drafter]:
    """Engines of several widths share what they only read."""
    options = TargetOptions(engine="native", tuned=False)
    target = load_engine_target(str(GOLDEN / name / "target"), options)
    return target, load_drafter(str(GOLDEN / name / "draft"), target)


@pytest.mark.parametrize("width", ["fixed:3", "fixed:8"])
@pytest.mark.parametrize("name", generate_cases())
def test_ids_of_the_native_engine_equal_the_reference_s(name: str, width: str) -> None:
    """The packed drafter, several requests in a pass, each at another place of its text."""
    case = generate_cases()[name]
    expected = load_file(GOLDEN / name / "expected.safetensors")
    target, drafter = native_pair(name)
    config = EngineConfig(width=parse_width(width), slots=3, max_context=128)
    engine = build_engine(target, drafter, config).engine
    params = SamplingParams(
        max_new_tokens=case["max_new_tokens"], stop_ids=tuple(case["stop_token_ids"])
    )
    prompt, want = (
        cast(list[int], expected[key].flatten().tolist()) for key in ("prompt", "output")
    )
    texts: dict[int, list[int]] = {}
    while len(texts) < 3 or engine.has_work:
        if len(texts) < 3:
            texts[engine.submit(prompt, params)] = list(prompt)
        for event in engine.step():
            assert isinstance(event.outcome, Commit)
            texts[event.key] += event.outcome.ids
    assert list(texts.values()) == [want] * 3
    assert engine.stats().drafter_failures == engine.stats().faults == 0
