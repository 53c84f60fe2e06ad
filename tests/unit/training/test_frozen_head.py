"""The head that is read off a target gives the target's own logits, whole or in part."""

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

from blockdraft.decoding.interfaces import LMHead, TargetModel
from blockdraft.errors import UnsupportedTarget
from blockdraft.native import NativeTarget
from blockdraft.testing import ScriptedTarget, hashed_logits, tiny_model, tiny_target
from blockdraft.testing.tiny import TinySize
from blockdraft.training.frozen_head import FrozenHead, read_head

TARGETS: dict[str, TargetModel] = {
    "untied": tiny_target(),
    "tied": tiny_target("llama", size=TinySize(tied=True), dtype=torch.float32),
    "bfloat16": tiny_target("llama", dtype=torch.bfloat16),
    "native": NativeTarget(tiny_model("llama", dtype=torch.float32), name="tiny"),
    "scripted": ScriptedTarget(hashed_logits(30), 30),
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("rows", [None, torch.tensor([2, 5, 17])])
def test_the_same_logits(name: str, rows: Tensor | None) -> None:
    target = TARGETS[name]
    made = read_head(target, rows)
    dtype = target.embed(torch.zeros(1, dtype=torch.long)).dtype
    hidden = torch.randn(7, target.spec.hidden_size).to(dtype)
    expected = target.head(rows)(hidden)
    found = made.logits(hidden)
    assert found.dtype == torch.promote_types(dtype, torch.float32)
    tolerance = 0.02 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(found, expected.to(found.dtype), rtol=tolerance, atol=tolerance)
    assert not made.weight.requires_grad and made.bias is None


def soft_cap(logits: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows vocab"]:
    return 5 * (logits / 5).tanh()


class OddTarget:
    """A target whose head is another function of the state."""

    def __init__(self, change: LMHead) -> None:
        self._target = tiny_target()
        self._change = change
        self.spec = self._target.spec
        self.embed = self._target.embed
        self.open = self._target.open

    def head(self, vocab_ids: Int[Tensor, " subset"] | None = None) -> LMHead:
        head = self._target.head(vocab_ids)

        def changed(hidden: Float[Tensor, "*rows hidden"]) -> Float[Tensor, "*rows vocab"]:
            return self._change(head(hidden))

        return changed


def test_a_bias_is_found() -> None:
    target = OddTarget(lambda logits: logits + torch.arange(96.0))
    made = read_head(target)
    hidden = torch.randn(3, 32).double()
    assert made.bias is not None
    torch.testing.assert_close(made.logits(hidden), target.head()(hidden))


@pytest.mark.parametrize("change", [soft_cap, torch.relu])
def test_a_head_that_is_not_linear_is_refused(change: LMHead) -> None:
    with pytest.raises(UnsupportedTarget, match="LM head of tiny-qwen3 is not linear"):
        read_head(OddTarget(change))


def test_another_dtype() -> None:
    head = FrozenHead(torch.eye(3), torch.ones(3)).to(torch.bfloat16)
    assert head.dtype == torch.bfloat16 and head.bias is not None
    assert head.bias.dtype == torch.bfloat16
    assert head.logits(torch.ones(1, 3)).dtype == torch.float32
