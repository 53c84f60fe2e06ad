"""Each family once: block 7, a drafter that is right in half of its slots, ten tokens.

The sample of the grid that runs with the unit tests; test_grid.py has the rest.
"""

import pytest
from family_grid import (
    DECODED,
    NEAR_TIE,
    PROMPTS,
    REFUSED,
    difference,
    make_drafter,
    skip_missing,
)

from blockdraft.decoding import SamplingParams, collect, decode
from blockdraft.errors import UnsupportedTarget
from blockdraft.target.hf import HFTarget
from blockdraft.testing.families import GRID, TinyFamily, family_model
from blockdraft.testing.plain import plain_text

NUM_TOKENS = 10
BLOCK_SIZE = 7


def test_every_family_has_a_name_of_its_own() -> None:
    assert len({family.key for family in GRID}) == len({family.title for family in GRID})
    assert len({family.key for family in GRID}) == len(GRID)


@pytest.mark.parametrize("family", DECODED, ids=lambda family: family.key)
def test_half_right_drafts(family: TinyFamily) -> None:
    """C05, C06, C12: windows shorter than prompt and block, recurrent states, experts."""
    skip_missing(family)
    model = family_model(family)
    texts = [plain_text(model, prompt, NUM_TOKENS) for prompt in (PROMPTS[1], PROMPTS[2])]
    target = HFTarget(model, name=family.key)
    drafter = make_drafter("half right", texts, BLOCK_SIZE)
    params = SamplingParams(max_new_tokens=NUM_TOKENS)
    for text in texts:
        completion = collect(text.prompt, decode(target, drafter, text.prompt, params))
        assert min(text.margins) > NEAR_TIE
        assert difference(text, completion.token_ids) is None
        assert sum(completion.stats.accepted) > 0


@pytest.mark.parametrize("family", REFUSED, ids=lambda family: family.key)
def test_a_family_that_cannot_be_rolled_back_is_refused(family: TinyFamily) -> None:
    """C05, C09: at load, with the reason that the support table gives."""
    skip_missing(family)
    assert family.refused is not None
    with pytest.raises(UnsupportedTarget, match=family.refused):
        HFTarget(family_model(family), name=family.key)
