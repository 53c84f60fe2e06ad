"""How mixers are fed: row by row where they forget, without the limits of whole prompts."""

from typing import cast

import pytest
import torch
from torch import Tensor, nn

from blockdraft.target.hf import HFTarget
from blockdraft.target.mixing import NO_LIMIT, TIME_STEP_LIMIT, Mixers
from blockdraft.testing.families import family_model, family_named


class Adder(nn.Module):
    """A mixer in small: a running sum, which forgets when several rows come at once."""

    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(1, 1, 2)
        self.time_step_limit = (0.5, float("inf"))
        self.fed: list[int] = []

    def forward(self, hidden: Tensor, scale: Tensor, *, mask: Tensor | None = None) -> Tensor:
        self.fed.append(hidden.shape[1])
        start = self.total if hidden.shape[1] == 1 else torch.zeros_like(self.total)
        rows = start + (hidden * scale).cumsum(1)
        self.total = rows[:, -1:]
        return rows


HIDDEN, SCALE = torch.arange(1.0, 9.0).view(1, 4, 2), torch.tensor([1.0, 10.0])


def test_forgetful_mixers_are_fed_row_by_row_and_replayed() -> None:
    mixer = Adder()
    mixers = Mixers((mixer,)).feeding_rows()
    mixer(HIDDEN[:, :1], SCALE)
    before = mixer.total
    with mixers.recording() as calls:
        rows = mixer(HIDDEN, SCALE, mask=torch.ones(1, 4))
    assert mixer.fed == [1, 1, 1, 1, 1] and len(calls) == 1
    torch.testing.assert_close(rows, before + (HIDDEN * SCALE).cumsum(1))
    mixer.total = before
    mixers.replay(calls, 2, 4)
    torch.testing.assert_close(mixer.total, rows[:, 1:2])
    # Outside, the module is what it was.
    mixer(HIDDEN, SCALE)
    assert mixer.fed[-1] == 4 and "forward" not in vars(mixer)


def test_limits_are_lifted_inside_and_put_back_even_after_an_error() -> None:
    mixer = Adder()
    mixers = Mixers((mixer, mixer))
    with pytest.raises(ZeroDivisionError), mixers.continuing():
        assert mixer.time_step_limit == NO_LIMIT
        raise ZeroDivisionError
    assert mixer.time_step_limit == (0.5, float("inf"))
    with mixers.remembering():
        assert mixer.time_step_limit == (0.5, float("inf"))


@pytest.mark.parametrize(("key", "by_rows"), [("jamba", True), ("mamba", True), ("mamba2", False)])
def test_families_that_forget_are_found_out_at_load_c06(key: str, by_rows: bool) -> None:
    """C06: eight rows on a filled cache against eight single steps."""
    target = HFTarget(family_model(family_named(key)))
    assert target.feeds_by_rows is by_rows
    ids = torch.arange(10, 22)
    wide, single, pieces = target.open(), target.open(), target.open()
    wide.prefill(ids[:4])
    single.prefill(ids[:4])
    rows: list[Tensor] = []
    for token_id in ids[4:]:
        rows.append(single.verify(token_id.view(1)).logits)
        single.commit([0])
    torch.testing.assert_close(wide.verify(ids[4:]).logits, torch.cat(rows), atol=1e-4, rtol=1e-4)
    pieces.prefill(ids[:5])
    torch.testing.assert_close(
        pieces.prefill(ids[5:]).logits, torch.cat(rows)[-1:], atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("key", ["nemotron_h", "zamba2"])
def test_a_wide_pass_does_not_clamp_what_single_tokens_do_not(key: str) -> None:
    """The clamp is in the prompt only, as in plain generation; with it the logits would differ."""
    model = family_model(family_named(key))
    limited = [module for module in model.modules() if hasattr(module, TIME_STEP_LIMIT)]
    limits = [cast(object, getattr(module, TIME_STEP_LIMIT)) for module in limited]
    target = HFTarget(model)
    ids = torch.arange(10, 22)
    wide, single = target.open(), target.open()
    wide.prefill(ids[:4])
    single.prefill(ids[:4])
    rows: list[Tensor] = []
    for token_id in ids[4:]:
        rows.append(single.verify(token_id.view(1)).logits)
        single.commit([0])
    torch.testing.assert_close(wide.verify(ids[4:]).logits, torch.cat(rows), atol=1e-4, rtol=1e-4)
    assert limited and limits == [getattr(module, TIME_STEP_LIMIT) for module in limited]
    assert NO_LIMIT not in limits


@pytest.mark.parametrize("key", ["nemotron_h", "zamba2"])
def test_a_piece_of_one_row_clamps_as_the_whole_prompt_does_c06(key: str) -> None:
    """Its own code would take the row for a token to decode, and not clamp."""
    model = family_model(family_named(key))
    for mixer in model.modules():
        if hasattr(mixer, TIME_STEP_LIMIT):
            vars(mixer)[TIME_STEP_LIMIT] = (0.2, 0.9)
    target = HFTarget(model, name=key)
    prompt = torch.arange(10, 22)
    expected = target.open().prefill(prompt).logits
    state = target.open()
    for piece in torch.split(prompt, 1)[:-1]:
        state.prefill(piece)
    found = state.prefill(prompt[-1:]).logits
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
