"""Side-by-side timing with a clock that is told what to say."""

from itertools import count

import pytest

from blockdraft.decoding import NoDrafter, PromptLookupDrafter, SamplingParams
from blockdraft.decoding.baselines import NoDraftState
from blockdraft.errors import ConfigError
from blockdraft.evaluation import (
    DecodeSettings,
    Lane,
    SpeedOptions,
    measure_acceptance,
    measure_speed,
    num_identical,
    pool_answers,
    speedup,
    time_of,
)
from blockdraft.testing import OracleDrafter, RandomDrafter, ScriptedTarget, script_logits
from blockdraft.testing.laws import hashed_logits

VOCAB = 12
TEXT = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
PROMPTS = [TEXT[:1]]


def scripted() -> ScriptedTarget:
    return ScriptedTarget(script_logits(VOCAB, TEXT), VOCAB)


def ticking(num_tokens: int = 9) -> DecodeSettings:
    """A second a look: an answer of n steps takes n + 2 seconds, 1 of them prefill."""
    clock = count()
    params = SamplingParams(max_new_tokens=num_tokens)
    return DecodeSettings(params=params, clock=lambda: float(next(clock)))


class LoggedDrafter(NoDrafter):
    """Plain decoding that writes down when it was used."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log

    def open(self) -> NoDraftState:
        self._log.append(self._name)
        return super().open()


def test_speedup_is_plain_seconds_over_drafted_seconds() -> None:
    target = scripted()
    lanes = [
        Lane(name="dflash", drafter=OracleDrafter(target, 4)),
        Lane(name="plain", drafter=NoDrafter()),
    ]
    answers = measure_speed(target, lanes, PROMPTS * 2, ticking())
    plain, drafted = answers["plain"], answers["dflash"]
    assert time_of(plain) == (20.0, 2.0, 18)  # 8 steps each
    assert time_of(drafted) == (8.0, 2.0, 18)  # 2 steps each
    assert speedup(plain, drafted) == 2.5
    assert num_identical(plain, drafted) == 2


def test_acceptance_is_the_same_with_and_without_speed() -> None:
    target = scripted()
    drafter = OracleDrafter(target, 4, num_right=2)
    params = SamplingParams(max_new_tokens=9)
    alone = measure_acceptance(target, drafter, PROMPTS, params)
    lanes = [Lane(name="dflash", drafter=drafter), Lane(name="plain", drafter=NoDrafter())]
    timed = pool_answers(measure_speed(target, lanes, PROMPTS, ticking())["dflash"])
    assert (timed.tau, timed.committed_histogram) == (alone.tau, alone.committed_histogram)


def test_lanes_take_turns_at_being_first() -> None:
    log: list[str] = []
    lanes = [Lane(name=name, drafter=LoggedDrafter(name, log)) for name in "abc"]
    options = SpeedOptions(num_repeats=2)
    measure_speed(scripted(), lanes, PROMPTS * 2, ticking(3), options=options)
    rounds = ["".join(log[start : start + 3]) for start in range(0, len(log), 3)]
    assert rounds == ["abc", "abc", "bca", "bca", "cab"]  # the first one is the warm-up


def test_repeats_give_medians() -> None:
    """Clock: 3 looks an answer of one token (start, prefill, end); the ends are told."""
    looks = iter([0.0, 0.0, 9.0, 0.0, 1.0, 5.0, 0.0, 3.0, 7.0, 0.0, 2.0, 90.0])
    params = SamplingParams(max_new_tokens=1)
    settings = DecodeSettings(params=params, clock=lambda: next(looks))
    lanes = [Lane(name="plain", drafter=NoDrafter())]
    options = SpeedOptions(num_repeats=3)
    answers = measure_speed(scripted(), lanes, PROMPTS, settings, options=options)
    assert time_of(answers["plain"]) == (7.0, 2.0, 1)


def test_texts_that_differ_are_compared_for_each_token() -> None:
    """With law "sampled" a drafter keeps the distribution, not the tokens."""
    target = ScriptedTarget(hashed_logits(4), 4, stop_ids=[3])
    clock = count()
    settings = DecodeSettings(
        params=SamplingParams(max_new_tokens=30, temperature=1.0, law="sampled", seed=5),
        clock=lambda: float(next(clock)),
    )
    lanes = [
        Lane(name="dflash", drafter=RandomDrafter(4, 4)),
        Lane(name="plain", drafter=NoDrafter()),
    ]
    prompts = [(i,) for i in range(3)] * 2
    answers = measure_speed(target, lanes, prompts, settings)
    plain, drafted = answers["plain"], answers["dflash"]
    assert num_identical(plain, drafted) < len(prompts)
    slow, fast = time_of(plain), time_of(drafted)
    assert slow.tokens != fast.tokens
    expected = (slow.seconds / slow.tokens) / (fast.seconds / fast.tokens)
    assert speedup(plain, drafted) == pytest.approx(expected)


def test_a_clock_that_stands_still_gives_no_speedup() -> None:
    settings = DecodeSettings(params=SamplingParams(max_new_tokens=3), clock=lambda: 1.0)
    lanes = [Lane(name="plain", drafter=NoDrafter())]
    plain = measure_speed(scripted(), lanes, PROMPTS, settings)["plain"]
    assert speedup(plain, plain) is None
    assert time_of(plain).tokens_per_second is None


def test_prompt_lookup_is_one_of_the_lanes() -> None:
    """Its drafts come from the prompt, and a text that repeats it is accepted."""
    target = ScriptedTarget(script_logits(VOCAB, (1, 2, 3, 4, 5) * 4), VOCAB)
    lanes = [Lane(name="prompt-lookup", drafter=PromptLookupDrafter(4))]
    answers = measure_speed(target, lanes, [(1, 2, 3, 4, 5, 1, 2, 3)], ticking(9))
    assert pool_answers(answers["prompt-lookup"]).tau == 4.0


def test_what_makes_no_sense_is_refused() -> None:
    lane = Lane(name="plain", drafter=NoDrafter())
    with pytest.raises(ConfigError, match="at least one prompt"):
        measure_speed(scripted(), [lane], [], ticking())
    with pytest.raises(ConfigError, match="its own name"):
        measure_speed(scripted(), [lane, lane], PROMPTS, ticking())
    with pytest.raises(ConfigError, match="at least 1"):
        SpeedOptions(num_repeats=0)
