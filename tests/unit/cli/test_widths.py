"""Chosen widths over a span of time, as a line and as JSON."""

from blockdraft.cli.widths import widths_json, widths_since, widths_text

BEFORE = {"draft_widths": {"1": 2, "8": 1}, "reasons": {"probe": 1, "no-gain": 2}}
NOW = {"draft_widths": {"1": 2, "4": 3, "8": 6}, "reasons": {"gain": 8, "no-gain": 2, "probe": 1}}


def test_only_what_came_after_counts() -> None:
    since = widths_since(BEFORE, NOW)
    assert since == {"draft_widths": {"4": 3, "8": 5}, "reasons": {"gain": 8}}
    assert widths_since(NOW, NOW) == {"draft_widths": {}, "reasons": {}}


def test_the_most_frequent_reason_comes_first() -> None:
    assert widths_text(NOW) == (
        "widths drafted: plain 2x, 4 3x, 8 6x; steps by reason: gain 8, no-gain 2, probe 1"
    )
    assert widths_text(widths_since(NOW, NOW)) == "widths drafted: none"


def test_json_has_lists_since_keys_vary() -> None:
    assert widths_json(BEFORE) == {
        "draft_widths": [{"width": 1, "steps": 2}, {"width": 8, "steps": 1}],
        "reasons": [{"reason": "no-gain", "steps": 2}, {"reason": "probe", "steps": 1}],
    }
