"""Checks a target and a drafter before an engine loads them: files and figures, no guesses.

Static rules need small files and headers only; the live check decodes a few prompts here.
"""

from blockdraft.check.catalog import RULES, has_error, judge_pair, list_codes
from blockdraft.check.facts import PairFacts
from blockdraft.check.findings import ENGINE_NAMES, ENGINES, Engine, Finding, Rule
from blockdraft.check.gather import gather_pair
from blockdraft.check.live import LiveOrder, run_live
from blockdraft.check.locate import Located, locate_drafter, locate_target

__all__ = [
    "ENGINES",
    "ENGINE_NAMES",
    "RULES",
    "Engine",
    "Finding",
    "LiveOrder",
    "Located",
    "PairFacts",
    "Rule",
    "gather_pair",
    "has_error",
    "judge_pair",
    "list_codes",
    "locate_drafter",
    "locate_target",
    "run_live",
]
