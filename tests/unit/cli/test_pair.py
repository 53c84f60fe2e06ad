"""Which drafter is taken, and settings that contradict each other; no model is loaded."""

from argparse import ArgumentParser, Namespace

import pytest

from blockdraft.cli import generate
from blockdraft.cli.hardware import busy_text, describe_hardware
from blockdraft.cli.pair import choose_drafter, load_pair
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
    with pytest.raises(ConfigError, match="no drafter is known for owner/model: give --drafter"):
        choose_drafter("owner/model", None)


MISTAKES: list[tuple[str, str]] = [
    ("--drafter none --taps 1", "no checkpoint"),
    ("--drafter prompt-lookup --drafter-revision x", "no checkpoint"),
    ("--drafter none --block-size 4", "--block-size means nothing"),
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
