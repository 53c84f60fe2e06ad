"""The live check: the rule on measured figures, and a real measurement of the tiny pair."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch

from blockdraft.check import LiveOrder, Located, PairFacts, gather_pair, judge_pair, run_live
from blockdraft.check.facts import LiveOutcome
from blockdraft.check.rules import live

MEASURED = [
    # recorded, measured, ends of the interval, verifications, expected code
    (3.0, 1.5, 1.2, 1.8, 200, "DFL900"),
    (3.0, 1.9, 1.5, 2.1, 200, "DFL901"),
    (3.0, 2.3, 2.1, 2.5, 200, "DFL901"),
    (3.0, 2.4, 2.1, 2.7, 200, "DFL904"),
    (3.0, 2.8, 2.5, 3.1, 200, "DFL904"),
    (3.0, 1.0, 1.0, 1.0, 23, None),
    (None, 1.01, 1.0, 1.02, 200, "DFL902"),
    (None, 1.01, 1.0, 1.02, 90, None),
    (None, 1.5, 1.2, 1.7, 200, None),
]


@pytest.fixture(scope="session")
def good_pair(good_folder: Path) -> PairFacts:
    return gather_pair(*located(good_folder))


def located(root: Path) -> tuple[Located, Located]:
    return Located(root / "target", "target"), Located(root / "drafter", "drafter")


def live_code(pair: PairFacts) -> str | None:
    codes = {rule.code for rule in live.RULES}
    found = [finding.code for finding in judge_pair(pair) if finding.code in codes]
    assert len(found) <= 1
    return found[0] if found else None


@pytest.mark.parametrize(("recorded", "tau", "low", "high", "steps", "code"), MEASURED)
def test_figures_are_judged(
    good_pair: PairFacts,
    recorded: float | None,
    tau: float,
    low: float,
    high: float,
    steps: int,
    code: str | None,
) -> None:
    drafter = replace(good_pair.drafter, record=replace(good_pair.drafter.record, tau=recorded))
    outcome = LiveOutcome(tau=tau, low=low, high=high, num_prompts=6, num_steps=steps)
    assert live_code(replace(good_pair, drafter=drafter, live=outcome)) == code


def test_random_drafter_is_far_below_a_high_record(good_folder: Path, tmp_path: Path) -> None:
    # L01: what loads may still accept nothing.
    root = tmp_path / "pair"
    shutil.copytree(good_folder, root)
    record = cast("dict[str, object]", json.loads((root / "drafter/provenance.json").read_text()))
    record["acceptance_length"] = 3.0
    (root / "drafter/provenance.json").write_text(json.dumps(record))
    torch.set_num_threads(1)
    target, drafter = located(root)
    pair = gather_pair(target, drafter)
    order = LiveOrder(prompts=["Why?", "How so?", (1, 2, 3)], max_new_tokens=24)
    outcome = run_live(pair, target, drafter, order)
    assert outcome.skipped is None
    assert outcome.num_prompts == 3
    assert outcome.tau is not None and outcome.tau < 1.5
    assert live_code(replace(pair, live=outcome)) == "DFL900"


@pytest.mark.parametrize(
    ("removed", "reason"),
    [
        ("target/model.safetensors", "weights are not on this machine"),
        ("drafter/model.safetensors", "Blockdraft does not load the pair"),
        ("target/config.json", "there is no target that loads"),
    ],
)
def test_what_does_not_load_is_not_decoded(
    good_folder: Path, tmp_path: Path, removed: str, reason: str
) -> None:
    root = tmp_path / "pair"
    shutil.copytree(good_folder, root)
    (root / removed).unlink()
    target, drafter = located(root)
    pair = gather_pair(target, drafter)
    outcome = run_live(pair, target, drafter, LiveOrder(prompts=[(1, 2, 3)]))
    assert outcome.skipped is not None and reason in outcome.skipped
    assert live_code(replace(pair, live=outcome)) == "DFL903"


def test_a_prompt_that_can_not_be_encoded_is_no_crash(good_folder: Path) -> None:
    target, drafter = located(good_folder)
    pair = gather_pair(target, drafter)
    outcome = run_live(pair, target, drafter, LiveOrder(prompts=[(9999,)]))
    assert outcome.skipped is not None and "9999" in outcome.skipped
