"""docs/published.md agrees with the registry."""

import published_table
from blockdraft.builtin.published import published_drafters


def test_the_page_is_up_to_date() -> None:
    assert published_table.PAGE.read_text() == published_table.page(), "run `make docs`"


def test_every_entry_has_a_row_and_a_note() -> None:
    text = published_table.page()
    for one in published_drafters():
        assert text.count(f"| `{one.id}`") == text.count(f"- `{one.id}`") >= 1
