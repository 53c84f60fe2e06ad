"""The acceptance alarm: silent on healthy drafters, one warning on broken ones."""

import random

import pytest

from blockdraft.engine.alarm import AcceptanceAlarm

BLOCK = 8


def watch(
    alarm: AcceptanceAlarm, prob: float, num_steps: int, seed: int, wide: int = 7
) -> list[str]:
    rng = random.Random(seed)
    texts: list[str] = []
    for _ in range(num_steps):
        accepted = 0
        while accepted < wide and rng.random() < prob:
            accepted += 1
        text = alarm.observe(wide, accepted)
        if text is not None:
            texts.append(text)
    return texts


@pytest.mark.parametrize("seed", range(20))
def test_healthy_drafter_raises_no_alarm(seed: int) -> None:
    assert watch(AcceptanceAlarm(2.5, BLOCK), 0.6, 2000, seed) == []
    assert watch(AcceptanceAlarm(None, BLOCK), 0.2, 2000, seed) == []


@pytest.mark.parametrize("seed", range(5))
def test_somewhat_harder_text_raises_no_alarm(seed: int) -> None:
    # A gain of 0.8 where 1.5 was recorded: another domain, not a fault.
    assert watch(AcceptanceAlarm(2.5, BLOCK), 0.45, 2000, seed) == []


@pytest.mark.parametrize("seed", range(5))
def test_wrong_taps_raise_one_warning_with_the_likely_causes(seed: int) -> None:
    texts = watch(AcceptanceAlarm(2.5, BLOCK), 0.02, 500, seed)
    assert len(texts) == 1
    for cause in ("chat template", "thinking mode", "tapped", "head", "quantized", "another"):
        assert cause in texts[0]
    assert "recorded 2.50" in texts[0]


def test_warning_comes_early_when_nothing_is_accepted() -> None:
    alarm = AcceptanceAlarm(2.5, BLOCK)
    texts = watch(alarm, 0.0, 40, seed=0)
    assert len(texts) == 1


def test_narrow_widths_are_not_blamed_on_the_drafter() -> None:
    # One draft a step can't gain 1.5; what it can gain is what the record says of one draft.
    assert watch(AcceptanceAlarm(2.5, BLOCK), 0.6, 3000, seed=3, wide=1) == []


def test_without_a_record_only_practically_nothing_triggers() -> None:
    assert len(watch(AcceptanceAlarm(None, BLOCK), 0.0, 500, seed=0)) == 1
    assert watch(AcceptanceAlarm(None, BLOCK), 0.1, 500, seed=0) == []


def test_record_without_gain_and_drafter_without_block_stay_silent() -> None:
    assert watch(AcceptanceAlarm(1.0, BLOCK), 0.0, 500, seed=0) == []
    assert AcceptanceAlarm(2.5, 1).observe(1, 0) is None


def test_non_finite_draft_logits_have_their_own_warning() -> None:
    """L10: a drafter that overflows accepts nothing and used to say nothing."""
    alarm = AcceptanceAlarm(None, BLOCK)
    assert alarm.observe_unusable(0) is None
    text = alarm.observe_unusable(7)
    assert text is not None and "fp16" in text and "not finite" in text
    assert alarm.observe_unusable(7) is None
    assert alarm.num_unusable == 14
