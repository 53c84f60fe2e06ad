"""Training turns that repeat evaluation prompts, on real evaluation prompts."""

import json
from pathlib import Path

import pytest

from blockdraft.data.leaks import EvalPrompts, EvalTurn, read_eval
from blockdraft.data.left_out import Place
from blockdraft.data.sources import PromptSource
from blockdraft.data.words import shingles_of, words_of
from blockdraft.errors import ConfigError

PLACE = Place("eval.jsonl", 1)


@pytest.fixture(scope="module")
def turns() -> list[EvalTurn]:
    folder = Path(__file__).parents[2] / "data" / "eval"
    files = sorted(folder.glob("*.jsonl"))
    return [turn for file in files for turn in read_eval(PromptSource(name=str(file)))]


@pytest.fixture(scope="module")
def prompts(turns: list[EvalTurn]) -> EvalPrompts:
    return EvalPrompts(turns)


def kind(prompts: EvalPrompts, text: str) -> str | None:
    words = words_of(text)
    found = prompts.find(text, words, shingles_of(words))
    return None if found is None else found.kind


def test_every_turn_is_known(turns: list[EvalTurn], prompts: EvalPrompts) -> None:
    assert len(turns) == 24 + 16 + 8 + 2 * 16
    for turn in turns:
        assert kind(prompts, turn.text) == "exact"
        assert kind(prompts, f"  {turn.text.upper()}!\n") == "exact"


def test_a_changed_word_is_near(turns: list[EvalTurn], prompts: EvalPrompts) -> None:
    for turn in turns:
        words = turn.text.split()
        if len(words) > 20:
            assert kind(prompts, " ".join(["Please,", *words[:-1], "now?"])) == "near"


def test_a_prompt_inside_of_a_longer_one_is_near(
    prompts: EvalPrompts, turns: list[EvalTurn]
) -> None:
    shots = "Q: What is 1 + 1? A: 2. " * 40
    for turn in turns:
        if len(words_of(turn.text)) >= 8:
            assert kind(prompts, shots + turn.text) == "near"


def test_a_short_question_is_found_without_its_wrapping() -> None:
    """MATH-500 is asked with an instruction, its questions may stand in a training set bare."""
    wrapped = "Simplify $\\sqrt{242}$.\nPlease reason step by step."
    prompts = EvalPrompts([EvalTurn(PLACE, "a", wrapped), EvalTurn(PLACE, "b", "Why me?")])
    assert kind(prompts, "Simplify $\\sqrt{242}$.") == "part"
    assert kind(prompts, "Answer briefly.\nWhy me?") == "part"
    assert kind(prompts, "Simplify $\\sqrt{243}$.") is None
    assert kind(prompts, "Why me? Answer briefly.") is None


def test_other_prompts_are_free(prompts: EvalPrompts) -> None:
    assert kind(prompts, "How many vertical asymptotes does the graph of this have?") is None
    assert kind(EvalPrompts([]), "Anything") is None


@pytest.mark.parametrize("line", ["{", '{"turns": [""]}', '{"answer": "x"}'])
def test_an_unreadable_evaluation_row_ends_the_run(line: str, tmp_path: Path) -> None:
    path = tmp_path / "eval.jsonl"
    path.write_text(json.dumps({"turns": ["Hi"]}) + f"\n{line}\n")
    with pytest.raises(ConfigError, match=r"eval\.jsonl, line 2: .*correct the evaluation file"):
        list(read_eval(PromptSource(name=str(path))))
