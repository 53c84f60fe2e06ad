"""The whole grid: each family, block size and drafter writes what plain `transformers` writes.

Minutes long, so it runs by its marker (`-m families`); test_sample.py is the part for every day.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from family_grid import (
    BLOCK_SIZES,
    DECODED,
    DRAFTER_KINDS,
    NEAR_TIE,
    NUM_TOKENS,
    DrafterKind,
    case_of,
    difference,
    make_drafter,
    skip_missing,
    texts_of,
)

from blockdraft.decoding import Commit, SamplingParams, collect, decode
from blockdraft.engine import EngineConfig, build_engine, parse_width
from blockdraft.testing.families import TinyFamily

pytestmark = pytest.mark.families

PARAMS = SamplingParams(max_new_tokens=NUM_TOKENS)
EACH_FAMILY = pytest.mark.parametrize("family", DECODED, ids=lambda family: family.key)


@EACH_FAMILY
def test_the_texts_are_fit_to_judge_by(family: TinyFamily) -> None:
    """Long, varied, and no token of theirs was chosen by a hair: no difference can be excused."""
    skip_missing(family)
    texts = texts_of(family.key)
    assert min(min(text.margins) for text in texts) > NEAR_TIE
    assert sum(len(text.ids) == NUM_TOKENS for text in texts) >= 2
    assert sum(len(set(text.ids)) >= 12 for text in texts) >= 2


@EACH_FAMILY
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("kind", DRAFTER_KINDS)
def test_one_request_at_a_time(family: TinyFamily, block_size: int, kind: DrafterKind) -> None:
    """C05, C06, C12, C24: the reference loop at batch 1, prompt after prompt on one target."""
    case = case_of(family)
    drafter = make_drafter(kind, case.texts, block_size)
    wrong: list[str] = []
    for text in case.texts:
        completion = collect(text.prompt, decode(case.target, drafter, text.prompt, PARAMS))
        found = difference(text, completion.token_ids)
        if found is not None:
            wrong.append(found)
        elif kind == "oracle" and len(text.ids) == NUM_TOKENS:
            # All drafts right: the last step may have fewer tokens left than a block.
            assert completion.stats.steps == -(-(NUM_TOKENS - 1) // block_size)
    assert not wrong, "\n".join(wrong)


@EACH_FAMILY
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_requests_side_by_side(
    family: TinyFamily, block_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C05, C07: the engine with more requests than slots, two of them equal: states stay apart."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    case = case_of(family)
    drafter = make_drafter("half right", case.texts, block_size)
    config = EngineConfig(
        slots=3, max_context=128, kv_memory=10_000_000, width=parse_width(f"fixed:{block_size}")
    )
    engine = build_engine(case.target, drafter, config).engine
    order = [*case.texts, *case.texts[:2]]
    commits: dict[int, list[Commit]] = {engine.submit(t.prompt, PARAMS): [] for t in order}
    while engine.has_work:
        for event in engine.step():
            assert isinstance(event.outcome, Commit), event.outcome
            commits[event.key].append(event.outcome)
    found: Sequence[str | None] = [
        difference(text, collect(text.prompt, parts).token_ids)
        for text, parts in zip(order, commits.values(), strict=True)
    ]
    assert not any(found), found
    assert engine.stats().faults == engine.stats().drafter_failures == 0
