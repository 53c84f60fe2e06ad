"""Which drafter is taken, and settings that contradict each other; no model is loaded."""

from argparse import ArgumentParser, Namespace

import pytest

from blockdraft.api import choose_drafter
from blockdraft.cli import generate
from blockdraft.cli.hardware import busy_text, describe_hardware
from blockdraft.cli.pair import choose_checked_drafter, load_pair
from blockdraft.errors import ConfigError, Error


def parse(*argv: str) -> Namespace:
    parser = ArgumentParser()
    generate.add_arguments(parser)
    return parser.parse_args(argv)


def test_a_built_in_target_brings_its_drafter() -> None:
    assert choose_drafter("smollm2", None) == "smollm2"
    assert choose_drafter("smollm2", "none") == "none"


def test_no_drafter_is_guessed() -> None:
    """U09: a drafter is suggested, never guessed in silence."""
    with pytest.raises(ConfigError, match="no drafter is known for owner/model: give"):
        choose_drafter("owner/model", None)


MISTAKES: list[tuple[str, str]] = [
    ("--drafter none --taps 1", "no checkpoint"),
    ("--drafter prompt-lookup --drafter-revision x", "no checkpoint"),
    ("--drafter none --block-size 4", "--block-size. means nothing"),
    ("--drafter none --width fixed:4", "--width .* means nothing"),
    ("--drafter none --width auto", "means nothing"),
    ("--width wide", "'wide' is not a width"),
    ("--width fixed:0", "below 1"),
    ("--engine hf --quantize int8", "drop --engine hf"),
    ("--drafter none --batch-invariant", "needs its number of rows"),
    ("--batch-invariant 4", "narrower than a block of 8"),
    ("--device nonsense", "--device nonsense can't be used"),
    ("--drafter ./no-such-folder", "no-such-folder"),
]


@pytest.mark.parametrize(("flags", "message"), MISTAKES, ids=[flags for flags, _ in MISTAKES])
def test_mistakes_are_found_before_the_target_is_loaded(flags: str, message: str) -> None:
    with pytest.raises(Error, match=message):
        load_pair(parse("a prompt", "--target", "smollm2", *flags.split()))


def test_hardware_has_words_for_machine_and_software() -> None:
    hardware = describe_hardware("cpu")
    assert "cores" in hardware.machine
    assert "torch" in hardware.software and "Python 3." in hardware.software


def test_a_busy_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """P01: times taken beside other work mislead."""
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 9.0, 9.0))
    assert busy_text() is None
    monkeypatch.setattr("os.getloadavg", lambda: (999.0, 0.0, 0.0))
    assert "load 999.0" in (busy_text() or "")


def test_a_width_is_clamped_to_the_drafters(caplog: pytest.LogCaptureFixture) -> None:
    """L09: one warning, and N counts the anchor."""
    chosen = choose_checked_drafter(parse("--width", "fixed:16"))
    assert (str(chosen.width), chosen.block_size, chosen.most_rows) == ("fixed:8", 8, 8)
    assert [record.message for record in caplog.records] == [
        "width 16 is cut to 8 tokens (anchor included), what smollm2 was made for"
    ]


@pytest.mark.parametrize(
    ("flags", "width", "block_size", "most_rows"),
    [
        ("", "auto", 8, 8),
        ("--width off", "off", 8, 8),
        ("--width fixed:4", "fixed:4", 8, 4),
        ("--block-size 4", "fixed:4", 8, 4),
        ("--drafter none", "off", 1, 1),
        ("--drafter none --width off", "off", 1, 1),
        ("--drafter prompt-lookup", "auto", 8, 8),
        ("--drafter prompt-lookup --width fixed:12", "fixed:12", 12, 12),
    ],
)
def test_the_width_asked_for(flags: str, width: str, block_size: int, most_rows: int) -> None:
    chosen = choose_checked_drafter(parse(*flags.split()))
    assert (str(chosen.width), chosen.block_size) == (width, block_size)
    assert chosen.most_rows == most_rows
