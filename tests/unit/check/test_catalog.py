"""The table of codes: unique, in order, and the one that the guide shows."""

import re
from pathlib import Path

from blockdraft.check import ENGINE_NAMES, ENGINES, RULES, list_codes
from blockdraft.cli import check

GUIDE = Path(__file__).parents[3] / "docs" / "check.md"


def test_codes_are_unique_and_in_order() -> None:
    codes = [rule.code for rule in RULES]
    assert codes == sorted(set(codes))
    assert all(re.fullmatch(r"DFL\d{3}", code) for code in codes)


def test_subjects_of_an_engine_differ() -> None:
    told = [(rule.engine, rule.subject) for rule in RULES]
    assert len(set(told)) == len(told)


def test_guide_lists_all_codes() -> None:
    assert list_codes() in GUIDE.read_text(), "docs/check.md: replace the table by list_codes()"


def test_guide_names_the_versions() -> None:
    text = GUIDE.read_text()
    assert all(ENGINE_NAMES[engine] in text for engine in ENGINES)


def test_engines_of_the_command_are_those_of_the_rules() -> None:
    assert check.ENGINES == ENGINES
    assert {rule.engine for rule in RULES} == {"all", *ENGINES}
