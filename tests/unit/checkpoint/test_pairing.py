"""Which drafters and targets belong together."""

import logging
from dataclasses import replace

import pytest

from blockdraft.checkpoint import check_pair
from blockdraft.decoding.interfaces import TargetSpec
from blockdraft.drafter import DrafterConfig
from blockdraft.errors import CheckpointError


def _target(vocab_size: int = 40, hidden_size: int = 16, num_layers: int = 6) -> TargetSpec:
    return TargetSpec(
        name="tiny", vocab_size=vocab_size, hidden_size=hidden_size, num_layers=num_layers
    )


def test_a_fitting_pair_passes(config: DrafterConfig, caplog: pytest.LogCaptureFixture) -> None:
    check_pair(config, _target())
    check_pair(replace(config, num_target_layers=None, taps=(0, 4)), _target())
    assert caplog.records == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": 32}, "hidden size is 16, but target tiny has 32"),
        ({"num_layers": 8}, "number of target layers is 6, but target tiny has 8"),
        ({"vocab_size": 41}, "vocabulary size is 40, but target tiny has 41"),
        ({"vocab_size": 3}, "mask token id 3 is outside the vocabulary of 3"),
    ],
)
def test_other_targets_are_refused(
    config: DrafterConfig, changes: dict[str, int], said: str
) -> None:
    with pytest.raises(CheckpointError) as raised:
        check_pair(config, _target(**changes))
    assert said in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("taps", "said"),
    [((1, 5), "the last one of target tiny"), ((1, 6), "target tiny has layers 0 to 5")],
)
def test_taps_beyond_the_target_are_refused(
    config: DrafterConfig, taps: tuple[int, int], said: str
) -> None:
    """L03: a tap on the last layer, or past it, for a checkpoint that does not tell the depth."""
    with pytest.raises(CheckpointError, match=said):
        check_pair(replace(config, num_target_layers=None, taps=taps), _target())


@pytest.mark.parametrize(
    ("drafter", "target", "fits"),
    [
        (151936, 152064, True),  # two paddings of one tokenizer, as published
        (151669, 151936, True),
        (151936, 151669, True),
        (32000, 32064, True),
        (320, 323, True),
        (320, 324, False),
        (151936, 152449, False),
        (151936, 128256, False),
    ],
)
def test_padding_of_the_vocabulary_is_allowed(
    config: DrafterConfig,
    drafter: int,
    target: int,
    fits: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """L17: padded rows are accepted and said once, another vocabulary is not."""
    config = replace(config, vocab_size=drafter)
    if fits:
        with caplog.at_level(logging.WARNING, logger="blockdraft"):
            check_pair(config, _target(vocab_size=target))
        (record,) = caplog.records
        message = record.getMessage()
        assert str(drafter) in message and str(target) in message and "as padding" in message
    else:
        with pytest.raises(CheckpointError, match="vocabulary size"):
            check_pair(config, _target(vocab_size=target))
