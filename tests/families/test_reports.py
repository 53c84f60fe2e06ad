"""User reports about targets, tried on the families: multi-token passes, taps, modes, back ends.

Reports that need no family of their own are with their packages; the whole texts are compared in
test_grid.py and test_sample.py.
"""

from collections.abc import Sequence
from typing import Any, cast

import pytest
import torch
from family_grid import DECODED, PROMPTS, difference, make_drafter, skip_missing
from torch import Tensor

from blockdraft.decoding import (
    Draft,
    Drafter,
    DraftIds,
    DraftState,
    NoDrafter,
    SamplingParams,
    collect,
    decode,
)
from blockdraft.engine import EngineConfig, Session, build_engine
from blockdraft.errors import UnsupportedTarget
from blockdraft.native import NativeTarget
from blockdraft.target.hf import HFTarget
from blockdraft.target.recurrent import RecurrentStates
from blockdraft.testing import tiny_model
from blockdraft.testing.families import TinyFamily, family_model, family_named
from blockdraft.testing.plain import PlainText, plain_text

EACH_FAMILY = pytest.mark.parametrize("family", DECODED, ids=lambda family: family.key)
RECURRENT = ("qwen3_next", "qwen3_5", "granite4", "nemotron_h", "zamba2", "lfm2", "jamba", "mamba2")
WINDOWED = ("qwen2", "gemma3", "ministral", "phi3", "olmo3", "cohere2", "gemma4", "laguna")
PROMPT, BLOCK = PROMPTS[2], (4, 8, 15, 16, 23, 42, 61, 77)


def target_of(key: str) -> HFTarget:
    family = family_named(key)
    skip_missing(family)
    return HFTarget(family_model(family), name=key)


# Of the size of the logits. A leaked or lost token moves them by their own size; float32 sums in
# another order by far less, most in delta-net layers, which compute in chunks.
TOLERANCE = 1e-4
# Nemotron-H and Zamba 2 clamp time steps in prompts, but not in what is decoded.
CLAMP_TOLERANCE = 1e-2


def close(found: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> bool:
    return float((found - expected).abs().max()) < tolerance * float(expected.abs().max())


@EACH_FAMILY
def test_eight_tokens_on_a_filled_cache_c06_c09_c11_c20(family: TinyFamily) -> None:
    """C06, C11: eight rows in one pass are eight passes of one row, window crossed or not.

    C09: and the prompt in one piece is the prompt in two. C20: positions counted from the cache.
    """
    skip_missing(family)
    target = HFTarget(family_model(family), name=family.key)
    whole, pieces, single = target.open(), target.open(), target.open()
    first = whole.prefill(torch.tensor(PROMPT)).logits
    pieces.prefill(torch.tensor(PROMPT[:-1]))
    second = pieces.prefill(torch.tensor(PROMPT[-1:])).logits
    assert int(first.argmax()) == int(second.argmax())
    assert close(second, first)
    rows = whole.verify(torch.tensor(BLOCK)).logits
    single.prefill(torch.tensor(PROMPT))
    for row, token_id in zip(rows, BLOCK, strict=True):
        alone = single.verify(torch.tensor([token_id])).logits[0]
        single.commit([0])
        assert close(row, alone)


@pytest.mark.parametrize("key", RECURRENT)
def test_a_prompt_in_pieces_is_the_prompt_in_one_c06(key: str) -> None:
    """C06: the engine takes long prompts in pieces; states go on where the last piece left them."""
    target = target_of(key)
    whole, pieces = target.open(), target.open()
    ids = torch.tensor([(7 * step + 3) % 93 + 3 for step in range(80)])
    expected = whole.prefill(ids).logits
    for piece in torch.split(ids, 16)[:-1]:
        pieces.prefill(piece)
    assert close(pieces.prefill(ids[-16:]).logits, expected)


@EACH_FAMILY
def test_taps_are_the_outputs_of_the_layers_l03(family: TinyFamily) -> None:
    """L03: first and last layer can be tapped; the values are those before the final norm."""
    skip_missing(family)
    model = family_model(family)
    target = HFTarget(model, name=family.key)
    taps = tuple(range(target.spec.num_layers))
    ids = torch.tensor([*PROMPT, *BLOCK])
    if not family.taps:
        with pytest.raises(UnsupportedTarget, match="can't be tapped"):
            target.open(taps).prefill(ids)
        return
    state = target.open(taps)
    prefilled = state.prefill(ids[: len(PROMPT)]).features
    verified = state.verify(ids[len(PROMPT) :]).features
    whole = target.open(taps).prefill(ids).features
    assert prefilled is not None and verified is not None and whole is not None
    assert close(torch.cat([prefilled, verified]), whole, CLAMP_TOLERANCE)
    with torch.no_grad():
        hidden = cast(Any, model)(input_ids=ids[None], output_hidden_states=True).hidden_states
    states = [one[0] for one in cast("Sequence[Tensor]", hidden)]
    features = torch.split(whole, target.spec.hidden_size, dim=-1)
    assert len(states) == len(features) + 1
    # The embeddings come first, except in the Mamba families; the last entry is normed already.
    start = 0 if close(states[0], features[0]) else 1
    for feature, layer_output in zip(features[:-1], states[start:], strict=False):
        assert close(feature, layer_output)
    assert not close(features[-1], states[-1])


class FickleDrafter:
    """Another drafter, whose drafts are cut to lengths that change with each step, 0 included."""

    def __init__(self, inner: Drafter) -> None:
        self.block_size, self.taps = inner.block_size, inner.taps
        self._inner = inner

    def open(self) -> "FickleState":
        return FickleState(self._inner.open())


class FickleState:
    """Cuts what the inner state proposes."""

    def __init__(self, inner: DraftState) -> None:
        self._inner = inner

    @property
    def context_len(self) -> int:
        return self._inner.context_len

    def extend(self, ids: Sequence[int], features: Tensor | None) -> None:
        self._inner.extend(ids, features)

    def propose(self, anchor: int, width: int) -> Draft:
        draft = self._inner.propose(anchor, width)
        assert isinstance(draft, DraftIds)
        return DraftIds(draft.ids[: (7 * self.context_len) % 3 * 3])


@pytest.mark.parametrize("key", RECURRENT)
def test_steps_with_and_without_drafts_in_one_request_c24(key: str) -> None:
    """C24: plain and speculative steps share one recurrent state."""
    target, text = target_of(key), expected(key)
    drafter = FickleDrafter(make_drafter("half right", [text], 7))
    answer = collect(text.prompt, decode(target, drafter, text.prompt, params()))
    assert difference(text, answer.token_ids, NUM_TOKENS) is None
    assert 0 < answer.stats.drafted_steps < answer.stats.steps


@pytest.mark.parametrize("key", RECURRENT)
def test_a_state_that_is_not_rolled_back_shows_in_the_text_c05(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C05: the grid would see it, because rejected drafts change what these models say next."""
    target, text = target_of(key), expected(key)

    def forget(self: RecurrentStates, num_kept: int, num_rows: int) -> None:
        """What a cache does whose `crop` knows attention only."""

    monkeypatch.setattr(RecurrentStates, "keep_first", forget)
    drafter = make_drafter("always wrong", [text], 7)
    answer = collect(text.prompt, decode(target, drafter, text.prompt, params()))
    assert difference(text, answer.token_ids, NUM_TOKENS) is not None


@pytest.mark.parametrize("attn", ["sdpa", "eager"])
@pytest.mark.parametrize("key", WINDOWED)
def test_both_attention_back_ends_beyond_the_window_c12(key: str, attn: str) -> None:
    """C12: 40 tokens over a window of 6, one kind of attention and the other."""
    family = family_named(key)
    skip_missing(family)
    model = cast(Any, family_model(family))
    model.set_attn_implementation(attn)
    text = plain_text(model, PROMPTS[1], 40)
    assert min(text.margins) > 1e-4
    drafter = make_drafter("half right", [text], 7)
    answer = decode(HFTarget(model), drafter, text.prompt, SamplingParams(max_new_tokens=40))
    assert difference(text, collect(text.prompt, answer).token_ids, 40) is None


@pytest.mark.parametrize("key", ["qwen3_5", "granite4", "gemma3"])
def test_going_on_from_an_answer_c07_c08(key: str) -> None:
    """C08: prompt plus answer as the next prompt; C07: A, B, A, B on one engine."""
    target, text = target_of(key), expected(key)
    longer = (*text.prompt, *text.ids[:10])
    rest = PlainText(longer, text.ids[10:], text.margins[10:])
    drafter = make_drafter("half right", [text], 7)
    config = EngineConfig(slots=2, max_context=128, kv_memory=10_000_000)
    session = Session(build_engine(target, drafter, config).engine)
    for one in (text, rest, text, rest):
        answer = collect(one.prompt, session.stream(one.prompt, params(len(one.ids))))
        assert difference(one, answer.token_ids, len(one.ids)) is None


def test_answers_of_one_token_are_the_same_cold_and_cached_c23() -> None:
    """C23: a classifier's prompts share their beginning; the native engine reuses its rows."""
    model = tiny_model("qwen3", dtype=torch.float32)
    shared = tuple((5 * step + 1) % 90 for step in range(48))
    prompts = [(*shared, 3 + label, 7) for label in range(12)]
    texts = {prompt: plain_text(model, prompt, 1).ids for prompt in prompts}
    config = EngineConfig(slots=2, max_context=96, kv_memory=10_000_000)
    session = Session(build_engine(NativeTarget(model), NoDrafter(), config).engine)
    cached = 0
    for prompt in (*prompts, *prompts):
        commits = list(session.stream(prompt, params(1)))
        assert collect(prompt, commits).token_ids == texts[prompt]
        cached += commits[-1].num_cached
    assert cached > 0


NUM_TOKENS = 24


def params(num_tokens: int = NUM_TOKENS) -> SamplingParams:
    return SamplingParams(max_new_tokens=num_tokens)


def expected(key: str) -> PlainText:
    family = family_named(key)
    skip_missing(family)
    return plain_text(family_model(family), PROMPTS[2], NUM_TOKENS)
