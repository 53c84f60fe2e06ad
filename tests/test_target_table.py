"""The support table in docs/targets.md agrees with the grid and the registry of drafters."""

import target_table
from blockdraft.builtin.published import published_drafters
from blockdraft.testing.families import GRID


def test_the_page_is_up_to_date() -> None:
    text = target_table.PAGE.read_text()
    assert text == target_table.with_table(text), "run `make docs`"


def test_every_published_target_is_listed_once() -> None:
    text = target_table.PAGE.read_text()
    assert target_table.PUBLISHED.keys() <= {family.key for family in GRID}
    for one in published_drafters():
        homes = [family.key for family in GRID if target_table.is_of(family, one.target)]
        assert len(homes) <= 1, (one.target, homes)
        assert not one.weights or f"`{one.id if homes else one.target}`" in text, one.id
