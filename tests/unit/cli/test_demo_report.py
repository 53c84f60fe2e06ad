"""The demo's figures: totals, speed-ups, verdicts."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from blockdraft.cli.comparison import Difference
from blockdraft.cli.demo_report import (
    Entry,
    conditions_text,
    demo_json,
    entry_text,
    result_table,
    summaries,
    unpadded_text,
)
from blockdraft.cli.pair import Conditions
from blockdraft.cli.prompts import PromptRecord
from blockdraft.cli.race import Race
from blockdraft.decoding import AcceptanceStats, Completion, SamplingParams

TIE = Difference(position=3, plain_id=5, drafted_id=6, margin=0.125, is_near_tie=True)


def completion(*, num_tokens: int, steps: int, seconds: float) -> Completion:
    stats = AcceptanceStats(requests=1, steps=steps, tokens=num_tokens, seconds=seconds)
    return Completion(
        prompt_ids=(1,),
        token_ids=tuple(range(num_tokens)),
        drafted=(False,) * num_tokens,
        text="",
        finish_reason="length",
        logprobs=(),
        stats=stats,
    )


def entry(
    name: str,
    category: str,
    *,
    plain_seconds: float = 4.0,
    drafted_seconds: float = 2.0,
    difference: Difference | None = None,
) -> Entry:
    race = Race(
        plain=completion(num_tokens=9, steps=8, seconds=plain_seconds),
        drafted=completion(num_tokens=9, steps=4, seconds=drafted_seconds),
        difference=difference,
    )
    record = PromptRecord(id=name, category=category, turns=("x",))
    return Entry(record=record, turn=0, race=race)


WIDTHS = {"draft_widths": {"1": 2, "8": 5}, "reasons": {"gain": 5, "probe": 2}}

ENTRIES = [
    entry("m1", "math"),
    entry("c1", "code", difference=TIE),
    entry("m2", "math", plain_seconds=2.0, drafted_seconds=4.0),
]


def test_totals_are_pooled_by_category_and_in_all() -> None:
    found = summaries(ENTRIES)
    assert list(found) == ["math", "all"]  # one prompt is no category to sum up
    assert found["math"].num_races == 2
    assert found["math"].speedup == pytest.approx(6.0 / 6.0)
    assert found["all"].speedup == pytest.approx(10.0 / 8.0)
    assert found["all"].num_identical == 2
    assert found["all"].drafted.tau == 2.0
    assert found["all"].plain.tau == 1.0


def test_the_table_says_where_a_text_differs() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(result_table(ENTRIES))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert any("m1" in line and "2.00x" in line and "yes" in line for line in lines)
    assert any("c1" in line and "no (token 3)" in line for line in lines)
    assert any("all (3)" in line and "2 of 3" in line for line in lines)


def test_a_gain_over_padded_plain_decoding_is_not_all_that_is_told() -> None:
    """P01: the baseline is named, and the faster one is there too."""
    assert unpadded_text(ENTRIES) is None
    unpadded = AcceptanceStats(requests=1, steps=8, tokens=9, seconds=1.0)
    text = unpadded_text([replace(one, unpadded=unpadded) for one in ENTRIES])
    assert text is not None
    assert "math: 9.0 tok/s, with the drafter (padded) 0.33x that" in text
    assert "all: 9.0 tok/s" in text


def test_one_line_on_a_race() -> None:
    assert entry_text(ENTRIES[0]).endswith("identical: yes")
    assert "from token 3 on" in entry_text(ENTRIES[1])
    assert "margin is 0.125, a near-tie" in entry_text(ENTRIES[1])


def test_the_document_holds_all_of_it(conditions: Conditions) -> None:
    document = demo_json(conditions, SamplingParams(max_new_tokens=9), 3, ENTRIES, WIDTHS)
    read_back = json.loads(json.dumps(document, allow_nan=False))
    assert read_back["identical"] is False
    assert read_back["settings"] == {"max_new_tokens": 9, "repeats": 3}
    assert [prompt["identical"] for prompt in read_back["prompts"]] == [True, False, True]
    assert read_back["prompts"][1]["difference"]["margin"] == 0.125
    assert read_back["totals"]["math"]["speedup"] == pytest.approx(1.0)
    assert read_back["widths"]["draft_widths"] == [
        {"width": 1, "steps": 2},
        {"width": 8, "steps": 5},
    ]
    assert read_back["widths"]["reasons"][0] == {"reason": "gain", "steps": 5}
    assert read_back["conditions"]["hardware"] == "a machine"


def test_conditions_name_model_dtype_threads_and_hardware(conditions: Conditions) -> None:
    """P01: a figure without its conditions can't be reproduced."""
    text = conditions_text(conditions)
    for word in (
        "scripted",
        "toy",
        "width auto",
        "float64",
        "hf engine",
        "1 threads",
        "a machine",
        "some versions",
    ):
        assert word in text


def test_conditions_name_rounded_weights(conditions: Conditions) -> None:
    text = conditions_text(replace(conditions, quantize="int8", engine="native"))
    assert "weights in int8" in text and "native engine" in text
