"""The measure of the what-if model: what it leaves out of the fit, and what it reports."""

import pytest

from what_if_error import (
    HELD_OUT,
    PLAIN_FIT,
    WIDEST_FIT,
    SettingError,
    document,
    summary,
)

ERRORS = [
    SettingError(width=4, concurrency=1, predicted=1.62, measured=1.5, low=1.4, high=1.6),
    SettingError(width=8, concurrency=8, predicted=0.8, measured=1.0, low=0.9, high=1.1),
]


def test_at_least_twelve_settings_are_held_out() -> None:
    assert len(set(HELD_OUT)) == len(HELD_OUT) >= 12
    assert not {(8, level) for level in WIDEST_FIT} & set(HELD_OUT)
    assert not any(width == 1 for width, _ in HELD_OUT)
    assert PLAIN_FIT == (1, 8)


def test_errors_are_of_the_measured_speedup() -> None:
    assert ERRORS[0].error == pytest.approx(0.08)
    assert ERRORS[1].error == pytest.approx(-0.20)


def test_the_document_tells_the_worst() -> None:
    found = document(ERRORS, {"dtype": "float32", "prompts": [[1, 2]]}, 3)
    assert found["facts"] == {"dtype": "float32"}
    assert found["complete"] is False
    assert found["worst"] == pytest.approx(0.20)
    assert found["mean"] == pytest.approx(0.14)
    assert found["within_aim"] == 1


def test_the_summary_is_a_table() -> None:
    lines = summary(ERRORS).splitlines()
    assert lines[1].startswith("| width | at once")
    assert lines[4] == "| 8 | 8 | 0.80x | 1.00x (0.90 to 1.10) | -20.0% |"
    assert "worst 20.0%" in lines[-1]
