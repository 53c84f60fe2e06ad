"""Many prompts at once: order, failures of single prompts, interrupts, parameters."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from blockdraft import (
    LLM,
    Completion,
    EngineConfig,
    FailedPrompt,
    SamplingParams,
    TargetOptions,
    generate,
    load_drafter,
    load_target,
)
from blockdraft.decoding import NoDrafter
from blockdraft.decoding.rows import RowProcessor
from blockdraft.engine import Engine, Event
from blockdraft.errors import ConfigError, RequestError
from blockdraft.native import NativeTarget

SHORT = SamplingParams(max_new_tokens=6)
CONFIG = EngineConfig(slots=2, max_context=128, kv_memory=4_000_000)
PROMPTS = [[12, 7], [99], [5, 6, 7, 8], [12, 7, 3], [44, 45]]


@pytest.fixture(scope="module")
def case() -> Path:
    return Path(__file__).parents[1] / "data" / "golden" / "generate_llama_v1_full"


@pytest.fixture(scope="module")
def target(case: Path) -> NativeTarget:
    loaded = load_target(case / "target", engine="native")
    assert isinstance(loaded, NativeTarget)
    return loaded


@pytest.fixture
def llm(target: NativeTarget, case: Path) -> LLM:
    """Two slots, always drafting."""
    return LLM(target, str(case / "draft"), width="fixed:4", config=CONFIG)


def ids_of(result: Completion | FailedPrompt) -> tuple[int, ...]:
    assert isinstance(result, Completion)
    return result.token_ids


def reference(target: NativeTarget, prompt: list[int], params: SamplingParams) -> tuple[int, ...]:
    return generate(target, NoDrafter(), prompt, params).token_ids


def test_results_are_in_the_order_of_the_prompts(llm: LLM, target: NativeTarget) -> None:
    """More prompts than slots, of different lengths, that end at different times."""
    params = [SamplingParams(max_new_tokens=9 - i) for i in range(len(PROMPTS))]
    results = llm.generate(PROMPTS, params)
    assert [len(ids_of(result)) for result in results] == [9, 8, 7, 6, 5]
    for prompt, each, result in zip(PROMPTS, params, results, strict=True):
        assert ids_of(result) == reference(target, prompt, each)
    assert llm.stats.acceptance.requests == len(PROMPTS)
    assert "2 slots" in llm.banner


def test_parameters_for_each_prompt(llm: LLM, target: NativeTarget) -> None:
    """B01: neighbors' settings do not leak."""
    params = [
        SamplingParams(max_new_tokens=8, temperature=1.0, seed=seed, logprobs=logprobs)
        for seed, logprobs in ((1, None), (2, 1), (1, 0))
    ]
    results = llm.generate([PROMPTS[0]] * 3, params)
    assert [ids_of(r) for r in results] == [reference(target, PROMPTS[0], p) for p in params]
    assert [isinstance(r, Completion) and len(r.logprobs) for r in results] == [0, 8, 8]


def test_one_bad_prompt_does_not_fail_the_rest(llm: LLM) -> None:
    prompts = [PROMPTS[0], [999], "text for a model without a tokenizer", [], [1] * 600, PROMPTS[1]]
    results = llm.generate(prompts, SHORT)
    assert [isinstance(result, FailedPrompt) for result in results] == [
        *(False, True, True, True, True, False)
    ]
    for place, words in ((1, "token id 999"), (2, "no tokenizer"), (3, "no tokens"), (4, "600")):
        result = results[place]
        assert isinstance(result, FailedPrompt)
        assert result.index == place
        assert isinstance(result.error, RequestError) and words in str(result.error)
    assert llm.generate([PROMPTS[0]], SHORT) != []


def test_an_interrupt_drops_what_is_unfinished(
    llm: LLM, target: NativeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C: nothing goes on in the background, and the next call is not disturbed."""
    step: Callable[[Engine], list[Event]] = Engine.step
    steps = 0

    def interrupted(engine: Engine) -> list[Event]:
        nonlocal steps
        steps += 1
        if steps == 3:
            raise KeyboardInterrupt
        return step(engine)

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            llm.generate(PROMPTS, SHORT)
    assert llm.stats.num_running == llm.stats.num_waiting == llm.stats.rows_used == 0
    (result,) = llm.generate([PROMPTS[2]], SHORT)
    assert ids_of(result) == reference(target, PROMPTS[2], SHORT)


def test_no_prompts_no_results(llm: LLM) -> None:
    assert llm.generate([]) == []


def test_a_string_is_no_list_of_prompts(llm: LLM) -> None:
    with pytest.raises(RequestError, match="give a list"):
        llm.generate("hello")


def test_as_many_parameters_as_prompts(llm: LLM) -> None:
    with pytest.raises(RequestError, match="1 sampling params for 2 prompts"):
        llm.generate(PROMPTS[:2], [SHORT])


def test_models_by_name(case: Path, target: NativeTarget) -> None:
    options = TargetOptions(engine="hf")
    llm = LLM(case / "target", "none", options=options, width="off", config=CONFIG)
    assert "take turns" in llm.banner
    (result,) = llm.generate([PROMPTS[0]], SHORT, progress=False)
    assert ids_of(result) == reference(target, PROMPTS[0], SHORT)


def test_a_loaded_drafter(case: Path, target: NativeTarget) -> None:
    drafter = load_drafter(str(case / "draft"), target)
    llm = LLM(target, drafter, width="fixed:8", config=CONFIG)
    assert llm.drafter is drafter
    (result,) = llm.generate([PROMPTS[0]], SHORT)
    assert ids_of(result) == reference(target, PROMPTS[0], SHORT)
    assert llm.stats.widths["draft_widths"].get("8")


def test_mistakes(case: Path, target: NativeTarget) -> None:
    """U09: no drafter is guessed; nothing is loaded before a mistake is told."""
    with pytest.raises(ConfigError, match="no drafter is known for"):
        LLM(case / "no such folder")
    with pytest.raises(ConfigError, match="'wide' is not a width"):
        LLM(case / "no such folder", width="wide")
    with pytest.raises(ConfigError, match="loaded already"):
        LLM(target, "none", options=TargetOptions())


def test_what_is_no_prompt_fails_alone(llm: LLM, target: NativeTarget) -> None:
    prompts = cast(list[list[int]], [[12, 7], None, 3, [99]])
    good, nothing, number, also_good = llm.generate(prompts, SHORT, progress=False)
    assert ids_of(good) == reference(target, [12, 7], SHORT)
    assert isinstance(nothing, FailedPrompt) and isinstance(number, FailedPrompt)
    assert "list of messages" in str(nothing.error) and "list of messages" in str(number.error)
    assert ids_of(also_good) == reference(target, [99], SHORT)


def test_a_processor_that_can_t_be_made_fails_its_prompt_alone(llm: LLM) -> None:
    def broken() -> RowProcessor:
        raise ZeroDivisionError

    params = [SHORT, replace(SHORT, processors=(broken,))]
    good, bad = llm.generate([[12, 7], [99]], params, progress=False)
    assert isinstance(good, Completion)
    assert isinstance(bad, FailedPrompt) and "ZeroDivisionError" in str(bad.error)


def test_slips_get_a_message(llm: LLM, target: NativeTarget, case: Path) -> None:
    with pytest.raises(RequestError, match="one list of token ids"):
        llm.generate([1, 2, 3])  # pyright: ignore[reportArgumentType] - wrong on purpose
    with pytest.raises(RequestError, match="must be SamplingParams"):
        llm.generate([[1]], [None])  # pyright: ignore[reportArgumentType] - wrong on purpose
    assert len(llm.generate(iter([[12], [7]]), SHORT, progress=False)) == 2
    assert LLM(target, str(case / "draft"), width=3, config=CONFIG).banner
