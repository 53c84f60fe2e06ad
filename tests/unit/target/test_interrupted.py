"""A pass that breaks off between layers leaves nothing behind; a broken commit is never used."""

from collections.abc import Callable
from functools import cache
from typing import cast

import pytest
import torch
from torch import nn

from blockdraft.target.hf import HFTarget
from blockdraft.target.hf_state import HFParts, HFState
from blockdraft.testing.families import family_model, family_named

KEYS = ("llama3", "gemma4", "glm5", "qwen3_next", "granite4", "falcon_h1", "jamba")
RECURRENT = ("qwen3_next", "granite4", "jamba")
PROMPT = torch.arange(10, 23)
BLOCK = torch.tensor([5, 6, 7])
PASSES: dict[str, Callable[[HFState], object]] = {
    "verify": lambda state: state.verify(BLOCK),
    "prefill": lambda state: state.prefill(BLOCK),
    "commit": lambda state: state.commit([0]),
}


@cache
def target_of(key: str) -> HFTarget:
    return HFTarget(family_model(family_named(key)), name=key)


def parts_of(target: HFTarget) -> HFParts:
    return cast(HFParts, getattr(target, "_parts"))  # noqa: B009


def break_off(state: HFState, name: str, module: nn.Module) -> None:
    """Ctrl-C as soon as `module` is reached."""

    def interrupt(module: nn.Module, args: object) -> None:
        raise KeyboardInterrupt

    handle = module.register_forward_pre_hook(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            PASSES[name](state)
    finally:
        handle.remove()


@pytest.mark.parametrize("prompt_len", [0, len(PROMPT)])
@pytest.mark.parametrize("name", ["verify", "prefill"])
@pytest.mark.parametrize("key", KEYS)
def test_an_interrupted_pass_leaves_the_committed_context(
    key: str, name: str, prompt_len: int
) -> None:
    target = target_of(key)
    for place in range(target.spec.num_layers):
        state, untouched = target.open(), target.open()
        for one in (state, untouched) if prompt_len else ():
            one.prefill(PROMPT[:prompt_len])
        break_off(state, name, parts_of(target).layers[place])
        assert state.context_len == prompt_len
        assert torch.equal(state.verify(BLOCK).logits, untouched.verify(BLOCK).logits)
        state.commit([0])
        untouched.commit([0])
        assert torch.equal(state.verify(BLOCK).logits, untouched.verify(BLOCK).logits)


def test_an_interrupted_piece_takes_the_whole_prefill_back() -> None:
    target = HFTarget(family_model(family_named("llama3")), batch_invariant=4)
    state, untouched = target.open(), target.open()
    state.prefill(PROMPT)
    untouched.prefill(PROMPT)
    passes = 0

    def second(module: nn.Module, args: object) -> None:
        nonlocal passes
        passes += 1
        if passes == 2:
            raise KeyboardInterrupt

    handle = parts_of(target).layers[1].register_forward_pre_hook(second)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("blockdraft.target.hf_state.PREFILL_PIECE_LEN", 4)
        state.prefill(PROMPT)
    handle.remove()
    assert state.context_len == len(PROMPT)
    assert torch.equal(state.verify(BLOCK).logits, untouched.verify(BLOCK).logits)


@pytest.mark.parametrize("key", RECURRENT)
def test_a_state_whose_commit_was_interrupted_says_so(key: str) -> None:
    """The states were put back and fed again in part; there is no third copy of them."""
    target = target_of(key)
    mixers = parts_of(target).mixers
    assert mixers is not None
    state = target.open()
    state.prefill(PROMPT)
    state.verify(BLOCK)
    break_off(state, "commit", mixers.modules[-1])
    with pytest.raises(AssertionError, match="go on with a fresh state"):
        state.commit([0])
    with pytest.raises(AssertionError):
        state.verify(BLOCK)


def test_nothing_is_kept_between_passes() -> None:
    """Copies of states and inputs of mixers live from a verify to its commit."""
    state = target_of("qwen3_next").open()
    recurrent = cast(object, getattr(state, "_recurrent"))  # noqa: B009

    def held() -> tuple[object, object]:
        return getattr(recurrent, "_saved"), getattr(recurrent, "_calls")  # noqa: B009

    state.prefill(PROMPT)
    assert held() == ([], [])
    state.verify(BLOCK)
    assert all(held())
    state.commit([0])
    assert held() == ([], [])
