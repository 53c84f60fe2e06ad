"""Beyond the sliding window, decoding equals transformers' own `generate` (C11, C12)."""

from collections.abc import Callable
from typing import cast

import pytest
import torch
from torch import Tensor

from blockdraft.target.hf import HFTarget
from blockdraft.testing.tiny import Family, TinySize, tiny_model

PROMPT = torch.tensor([5, 9, 13, 40])
NUM_TOKENS = 40
CASES: list[tuple[Family, str]] = [
    ("mistral", "sdpa"),
    ("mistral", "eager"),
    ("qwen2_sliding", "sdpa"),
    ("qwen2_sliding", "eager"),
    ("gemma2", "eager"),
    ("gemma3", "sdpa"),
    ("gemma3", "eager"),
]


@pytest.mark.parametrize(("family", "attn"), CASES)
@pytest.mark.parametrize("window", [4, 8])
def test_rejected_rows_leave_no_trace_beyond_the_window(
    family: Family, attn: str, window: int
) -> None:
    """Every step verifies five rows of which one or two are right, as a bad drafter would."""
    size = TinySize(window=window, stop_ids=())
    model = tiny_model(family, attn=attn, size=size)
    generate = cast(Callable[..., Tensor], model.generate)
    generated = generate(
        PROMPT[None],
        attention_mask=torch.ones_like(PROMPT[None]),
        max_new_tokens=NUM_TOKENS,
        do_sample=False,
        pad_token_id=0,
    )
    expected = [int(token_id) for token_id in generated[0, len(PROMPT) :]]

    state = HFTarget(model).open()
    ids = [int(state.prefill(PROMPT).logits.argmax())]
    while len(ids) < NUM_TOKENS:
        right = expected[len(ids)] if len(ids) % 2 else (expected[len(ids)] + 1) % 96
        block = [ids[-1], right, 11, 12, 13]
        decided = [
            int(token_id) for token_id in state.verify(torch.tensor(block)).logits.argmax(-1)
        ]
        num_accepted = int(decided[0] == right)
        state.commit(range(num_accepted + 1))
        ids += decided[: num_accepted + 1]
    assert ids[:NUM_TOKENS] == expected


def test_the_window_matters_in_these_models() -> None:
    """The tests above would prove nothing if no logit depended on the window."""
    ids = torch.arange(1, 21)
    narrow = HFTarget(tiny_model("mistral", size=TinySize(window=4))).open().prefill(ids).logits
    wide = HFTarget(tiny_model("mistral", size=TinySize(window=64))).open().prefill(ids).logits
    assert not torch.allclose(narrow, wide, atol=0.1)
