"""A pair without weights for tests of what the command line does with one."""

from collections.abc import Callable

import pytest
import torch

from blockdraft.cli.pair import Conditions, Pair
from blockdraft.decoding import Drafter, NoDrafter
from blockdraft.engine import WidthMode
from blockdraft.testing import ScriptedTarget
from blockdraft.testing.laws import LogitsOf


class IdTarget(ScriptedTarget):
    """A scripted target without a tokenizer."""

    text = None
    dtype = torch.float64
    device = torch.device("cpu")


@pytest.fixture
def conditions() -> Conditions:
    return Conditions(
        target="scripted",
        drafter="toy",
        block_size=4,
        width="auto",
        engine="hf",
        dtype="float64",
        quantize=None,
        batch_invariant=None,
        device="cpu",
        threads=1,
        hardware="a machine",
        software="some versions",
    )


@pytest.fixture
def make_pair(conditions: Conditions) -> Callable[[LogitsOf, int], Pair]:
    """A scripted target of a law and a vocabulary size, with no drafter."""

    def make(logits_of: LogitsOf, vocab_size: int) -> Pair:
        drafter: Drafter = NoDrafter()
        return Pair(IdTarget(logits_of, vocab_size), drafter, WidthMode("auto"), conditions)

    return make
