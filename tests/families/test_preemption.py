"""A request that made way and came back goes on with its own text, whatever its layers."""

from pathlib import Path

import pytest
from family_grid import BLOCK_SIZES, case_of, difference, make_drafter, skip_missing

from blockdraft.decoding import Commit, SamplingParams, collect
from blockdraft.engine import EngineConfig, build_engine, parse_width
from blockdraft.testing.families import family_named

ROOM = 136
"""Tokens that fit: one of the longer requests and the beginnings of the others."""


@pytest.mark.parametrize("key", ["zamba2", "nemotron_h", "qwen3_next"])
def test_a_preempted_request_goes_on_c06(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zamba 2 and Nemotron-H clamp time steps in prompts; what was decoded must not come back as
    one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    family = family_named(key)
    skip_missing(family)
    case = case_of(family)
    drafter = make_drafter("half right", case.texts, BLOCK_SIZES[1])
    width = parse_width(f"fixed:{BLOCK_SIZES[1]}")
    wide = EngineConfig(slots=3, max_context=112, kv_memory=10_000_000, width=width)
    per_token = build_engine(case.target, drafter, wide).capacity.bytes_per_token
    narrow = EngineConfig(slots=3, max_context=112, kv_memory=ROOM * per_token, width=width)
    engine = build_engine(case.target, drafter, narrow).engine
    params = SamplingParams(max_new_tokens=64)
    commits: dict[int, list[Commit]] = {engine.submit(t.prompt, params): [] for t in case.texts}
    while engine.has_work:
        for event in engine.step():
            assert isinstance(event.outcome, Commit), event.outcome
            commits[event.key].append(event.outcome)
    assert engine.stats().num_preempted > 0
    for text, parts in zip(case.texts, commits.values(), strict=True):
        assert difference(text, collect(text.prompt, parts).token_ids) is None
