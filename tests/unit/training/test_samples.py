"""Bad answers are counted, cut, skipped or refused by name; nothing is lost in silence."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_runs import answer

from blockdraft.data.answer_row import Answer
from blockdraft.errors import ConfigError
from blockdraft.training.batches.samples import Policy, SampleConfig, SampleSet, make_samples
from blockdraft.training.toml_sections import read_section

VOCAB = 50
GOOD = answer("good", (1, 2), (3, 4, 5), category="math")


def of(answers: Sequence[Answer], config: SampleConfig | None = None) -> SampleSet:
    return make_samples(answers, range(len(answers)), config or SampleConfig(), VOCAB)


def test_good_answers_become_whole_samples() -> None:
    made = of([GOOD, answer("b", (7,), (8, 9))])
    assert [(s.row, s.ids, s.answer_start) for s in made] == [
        (0, (1, 2, 3, 4, 5), 2),
        (1, (7, 8, 9), 1),
    ]
    assert made.categories == ["math", None]
    assert (made.num_tokens, made.num_answer_tokens, made.rejects) == (8, 5, {})
    assert made[-1].row == 1 and [s.row for s in made[0:2]] == [0, 1]
    with pytest.raises(IndexError):
        made[2]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (answer("x", (1,), ()), "answer shorter than 2 tokens"),
        (answer("x", (1,), (2,)), "answer shorter than 2 tokens"),
        (answer("x", (), (2, 3)), "no prompt"),
        (answer("x", (1,), (2, VOCAB)), f"ids outside the target's vocabulary of {VOCAB}"),
        (answer("x", (-1,), (2, 3)), f"ids outside the target's vocabulary of {VOCAB}"),
        (answer("x", range(9), (2, 3)), "prompt leaves no room in 10 tokens"),
    ],
)
def test_a_bad_answer_is_counted_or_refused_with_its_row(bad: Answer, reason: str) -> None:
    config = SampleConfig(max_tokens=10)
    made = of([GOOD, bad, GOOD, bad], config)
    assert [s.row for s in made] == [0, 2] and made.categories == ["math", "math"]
    assert list(made.rejects) == [reason]
    assert made.rejects[reason].count == 2 and made.rejects[reason].rows == [1, 3]
    with pytest.raises(ConfigError, match=f"answer 1: {reason}; remove it, or set on_bad"):
        of([GOOD, bad], SampleConfig(max_tokens=10, on_bad="refuse"))


@pytest.mark.parametrize(("policy", "rows"), [("cut", [0, 1]), ("skip", [0])])
def test_answers_longer_than_the_window(policy: Policy, rows: list[int]) -> None:
    made = of([GOOD, answer("x", (1, 2), range(10))], SampleConfig(max_tokens=6, on_long=policy))
    assert [s.row for s in made] == rows
    assert made.rejects[f"longer than 6 tokens: {policy}"].rows == [1]
    if policy == "cut":
        assert made[1].ids == (1, 2, 0, 1, 2, 3)
    assert made.num_tokens == sum(len(s.ids) for s in made)
    assert made.num_answer_tokens == sum(s.answer_len for s in made)


def test_a_long_answer_can_be_refused() -> None:
    config = SampleConfig(max_tokens=6, on_long="refuse")
    with pytest.raises(ConfigError, match="answer 1 has 12 tokens, more than max_tokens 6"):
        of([GOOD, answer("x", (1, 2), range(10))], config)


def test_an_answer_of_exactly_the_window_is_whole() -> None:
    made = of([GOOD], SampleConfig(max_tokens=5, on_long="refuse"))
    assert made[0].ids == (1, 2, 3, 4, 5) and not made.rejects


def test_only_some_categories_are_taken() -> None:
    made = of(
        [GOOD, answer("x", (1,), (2, 3), category="chat")], SampleConfig(categories=("chat",))
    )
    assert [s.row for s in made] == [1]
    assert made.rejects["other category"].rows == [0]


def test_a_report_names_only_the_first_rows() -> None:
    made = of([answer("x", (1,), ())] * 9)
    (rejects,) = made.rejects.values()
    assert rejects.count == 9 and rejects.rows == [0, 1, 2, 3, 4]


@given(
    lengths=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=12),
    most=st.integers(4, 20),
    policy=st.sampled_from(["cut", "skip"]),
)
def test_every_answer_is_a_sample_or_counted(
    lengths: list[tuple[int, int]], most: int, policy: Policy
) -> None:
    answers = [answer(str(i), range(p), range(a)) for i, (p, a) in enumerate(lengths)]
    made = of(answers, SampleConfig(max_tokens=most, on_long=policy))
    left_out = sum(r.count for reason, r in made.rejects.items() if not reason.endswith("cut"))
    assert len(made) + left_out == len(answers)
    for one in made:
        assert len(one.ids) <= most and one.answer_len >= 2
        whole = answers[one.row].prompt_ids + answers[one.row].answer_ids
        assert whole[: len(one.ids)] == one.ids


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"min_answer_tokens": 1}, "min_answer_tokens is 1"),
        ({"max_tokens": 2}, "max_tokens is 2"),
        ({"on_long": "drop"}, "samples.on_long is 'drop'"),
        ({"on_bad": "drop"}, "samples.on_bad is 'drop'"),
    ],
)
def test_limits_that_make_no_sense(values: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_section(SampleConfig, values, "samples")
