"""The acceptance functions against worked examples and closed forms."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from blockdraft.decoding.accept import count_accepted, draw, verify_point_mass, verify_sampled
from blockdraft.decoding.uniforms import Uniforms

TRIALS = 50_000


def uniforms(seed: int) -> Tensor:
    return torch.rand(TRIALS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("uniform", "token_id"),
    [(0.0, 1), (0.24, 1), (0.25, 3), (0.9999, 3), (1 - 2**-53, 3)],
)
def test_draw_is_the_inverse_cdf(uniform: float, token_id: int) -> None:
    probs = torch.tensor([0.0, 0.25, 0.0, 0.75, 0.0], dtype=torch.float64)
    assert int(draw(probs, torch.tensor(uniform, dtype=torch.float64))) == token_id


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=6).filter(lambda row: sum(row) > 1e-6),
    st.floats(0, 1, exclude_max=True),
)
def test_draw_never_yields_a_token_without_mass(weights: list[float], uniform: float) -> None:
    probs = torch.tensor(weights, dtype=torch.float64)
    drawn = int(draw(probs, torch.tensor(uniform, dtype=torch.float64)))
    assert probs[drawn] > 0
    cumulative = probs.cumsum(-1)
    before = 0.0 if drawn == 0 else float(cumulative[drawn - 1])
    assert before <= uniform * float(cumulative[-1]) + 1e-12


def test_counting_accepted_drafts() -> None:
    target_ids = (1, 2, 3, 4)
    assert count_accepted((1, 2, 3), target_ids) == 3
    assert count_accepted((1, 9, 3), target_ids) == 1
    assert count_accepted((9, 2, 3), target_ids) == 0
    assert count_accepted((), target_ids) == 0


def test_a_point_mass_is_accepted_with_its_target_probability() -> None:
    """S02, S18: with one-hot proposals P(accept) = p(draft)."""
    p = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64).expand(TRIALS, 3)
    verdict = verify_point_mass(torch.full((TRIALS,), 2), p, uniforms(0))
    assert float(verdict.accepted.double().mean()) == pytest.approx(0.3, abs=0.01)


def test_a_sampled_draft_is_accepted_with_the_overlap_of_both_laws() -> None:
    """S18: with rejection sampling P(accept) = sum of min(p, q)."""
    p = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64).expand(TRIALS, 3)
    q = torch.tensor([0.1, 0.6, 0.3], dtype=torch.float64).expand(TRIALS, 3)
    verdict = verify_sampled(draw(q, uniforms(1)), q, p, uniforms(2), uniforms(3))
    assert float(verdict.accepted.double().mean()) == pytest.approx(0.1 + 0.2 + 0.3, abs=0.01)
    rejected = verdict.ids[~verdict.accepted]
    assert rejected.unique().tolist() == [0]


def test_equal_laws_always_accept() -> None:
    p = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64).expand(TRIALS, 3)
    verdict = verify_sampled(draw(p, uniforms(1)), p, p, uniforms(2), uniforms(3))
    assert bool(verdict.accepted.all())


def test_uniforms_depend_on_seed_purpose_and_position_only() -> None:
    first, second = Uniforms(5), Uniforms(5)
    forward = [first.at("token", n) for n in range(200)]
    backward = [second.at("token", n) for n in reversed(range(200))]
    assert forward == backward[::-1]
    assert len(set(forward)) == 200
    assert set(forward).isdisjoint(first.at("draft", n) for n in range(200))
    assert set(forward).isdisjoint(first.at("residual", n) for n in range(200))
    assert set(forward).isdisjoint(Uniforms(6).at("token", n) for n in range(200))
    assert all(0 <= u < 1 for u in forward)
