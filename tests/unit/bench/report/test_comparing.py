"""Two runs: what counts as a change, what is refused, what is only warned about."""

from typing import cast

import pytest
from sample_bench import Document, figures_of, make_document, parts, set_speedups, spread

from blockdraft.bench.report.comparing import Comparison, Row, change_of, compare_runs
from blockdraft.bench.report.evidence import Estimate
from blockdraft.bench.report.reading import parse_document
from blockdraft.errors import ConfigError


def compare(before: Document, after: Document) -> Comparison:
    return compare_runs(parse_document(before), parse_document(after))


def flags(rows: tuple[Row, ...]) -> list[tuple[str, str, str]]:
    return [(row.lane, row.load, row.measure) for row in rows]


def test_a_run_is_like_itself() -> None:
    found = compare(make_document(), make_document())
    assert {row.change for row in found.rows} == {"same"}
    assert found.warnings == () and found.missing == ()
    # Four lanes with six figures and the plain one with four, under four loads.
    assert len(found.rows) == 4 * (4 * 6 + 4)


def test_changes_beyond_the_noise_are_flagged() -> None:
    before, after = make_document(), make_document()
    set_speedups(before, "dflash auto", 1.5, 1.4, 1.3, 1.1)
    set_speedups(after, "dflash auto", 1.4, 1.45, 1.29, 1.1)
    figures_of(after, "dflash auto", 1).update(tau=2.0, tau_interval=[1.9, 2.1])
    figures_of(after, "dflash fixed:4", 2)["first_token_seconds"] = spread(0.3)
    figures_of(after, "dflash fixed:8", 8).update(
        tokens_per_second=90.0, tokens_per_second_spread=[89.0, 91.0], repeats=2
    )
    found = compare(before, after)
    assert flags(found.regressions) == [
        ("dflash fixed:4", "2 at once", "first token s"),
        ("dflash auto", "1 at once", "tau"),
        ("dflash auto", "1 at once", "speed-up"),
    ]
    assert flags(found.improvements) == [("dflash fixed:8", "8 at once", "tok/s")]


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (Estimate(1.3, 1.25, 1.35), "better"),
        (Estimate(1.3, 1.0, 1.5), "same"),
        (Estimate(1.015, 1.012, 1.02), "same"),
        (Estimate(0.8, 0.7, 0.9), "worse"),
        (Estimate(0.8, 0.7, 0.99), "same"),
    ],
)
def test_what_counts_as_a_change(after: Estimate, expected: str) -> None:
    before = Estimate(1.0, 0.99, 1.01)
    assert change_of(before, after, higher_is_better=True) == expected
    opposite = {"better": "worse", "worse": "better", "same": "same"}
    assert change_of(before, after, higher_is_better=False) == opposite[expected]


@pytest.mark.parametrize(
    ("part", "name", "value", "message"),
    [
        ("conditions", "target", "other", "target smollm2 against other"),
        ("workload", "sha256", "0" * 64, "prompts"),
        ("settings", "max_tokens", 128, "max_tokens 64 against 128"),
        ("settings", "temperature", 1.0, "temperature 0 against 1"),
        ("settings", "template_args", {"enable_thinking": True}, "template_args none against"),
    ],
)
def test_runs_of_something_else_are_refused(
    part: str, name: str, value: object, message: str
) -> None:
    after = make_document()
    cast(Document, after[part])[name] = value
    with pytest.raises(ConfigError, match=message):
        compare(make_document(), after)


def test_on_another_machine_only_ratios_are_compared() -> None:
    """P01: numbers of other hardware are no regression."""
    after = make_document()
    cast(Document, after["conditions"])["threads"] = 4
    for lane in ("plain", "dflash auto"):
        figures = figures_of(after, lane, 1)
        figures["tokens_per_second"] = 10.0
        figures["tokens_per_second_spread"] = [9.9, 10.1]
    found = compare(make_document(), after)
    assert found.regressions == ()
    assert found.warnings == ("threads differs: 2 against 4 (times are not compared)",)
    kinds = {row.measure: row.change for row in found.rows}
    assert kinds["tau"] == kinds["speed-up"] == "same"
    assert kinds["tok/s"] == kinds["end to end s"] == "not comparable"


def test_versions_and_drafters_are_warned_about() -> None:
    before, after = make_document(), make_document()
    cast(Document, before["conditions"])["software"] = {"torch": "2.13", "transformers": "5"}
    cast(Document, after["conditions"])["software"] = {"torch": "2.14", "transformers": "5"}
    for lane in parts(after, "lanes")[2:]:
        lane["drafter"] = "mine"
    warnings = compare(before, after).warnings
    assert warnings == (
        "software differs: torch 2.13 against torch 2.14",
        "drafters differ: smollm2-dflash against mine",
    )


def test_parts_of_runs() -> None:
    after = make_document((1, 2), ("plain", "dflash auto"))
    after["complete"] = False
    found = compare(make_document((1, 4)), after)
    assert {(row.lane, row.load) for row in found.rows} == {
        ("plain", "1 at once"),
        ("dflash auto", "1 at once"),
    }
    assert "only before: plain, 4 at once" in found.missing
    assert "only after: dflash auto, 2 at once" in found.missing
    assert found.warnings == ("the run after was not measured to its end",)
    with pytest.raises(ConfigError, match="no lane and load in common"):
        compare(make_document((1,)), make_document((8,)))


def test_as_json() -> None:
    told = compare(make_document(), make_document()).to_json()
    assert (told["schema"], told["version"]) == ("blockdraft.bench-comparison", 1)
    assert (told["regressions"], told["improvements"]) == (0, 0)
