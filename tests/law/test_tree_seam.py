"""A toy tree decoder through the target's seam: several branches a pass, commit by row indices.

It proves that draft trees fit behind `verify(ids, parents)` and `commit(rows)`; the product does
not decode trees yet.
"""

from collections.abc import Callable

import pytest
import torch

from blockdraft.decoding import NoDrafter, SamplingParams, TargetModel, collect, decode
from blockdraft.testing import ScriptedTarget, ToyRecurrentTarget, hashed_logits, tiny_target

TARGETS: dict[str, Callable[[], TargetModel]] = {
    "scripted": lambda: ScriptedTarget(hashed_logits(11, seed=5), 11),
    "recurrent, kept states": lambda: ToyRecurrentTarget(rollback="keep"),
    "recurrent, replayed": lambda: ToyRecurrentTarget(rollback="replay"),
    "transformers": lambda: tiny_target("qwen3", dtype=torch.float64),
}


PARENTS = (-1, 0, 1, 0, 3, 0, 5, 6)
"""The anchor; branches of rows (1, 2) and (3, 4) with arbitrary tokens; rows (5, 6, 7)."""


def decode_with_trees(
    target: TargetModel, prompt: tuple[int, ...], num_tokens: int, num_right: int
) -> list[int]:
    """Greedy decoding; the last branch of every tree is right for `num_right` tokens."""
    plain = plain_ids(target, prompt, num_tokens + 4)
    state = target.open()
    emitted = [int(state.prefill(torch.tensor(prompt)).logits[-1].argmax())]
    while len(emitted) < num_tokens:
        ids = grow_tree(emitted, plain, num_right, target.spec.vocab_size)
        logits = state.verify(torch.tensor(ids), PARENTS).logits
        path = walk(ids, [int(token_id) for token_id in logits.argmax(-1)])
        state.commit(path)
        emitted += [ids[row] for row in path[1:]]
        emitted.append(int(logits[path[-1]].argmax()))
        assert state.context_len == len(prompt) + len(emitted) - 1
    return emitted[:num_tokens]


def grow_tree(emitted: list[int], plain: list[int], num_right: int, vocab_size: int) -> list[int]:
    """Ids for `PARENTS`: right tokens first in the last branch, everything else arbitrary."""
    position = len(emitted)
    ids = [(7 * position + 3 * row) % vocab_size for row in range(len(PARENTS))]
    ids[0] = emitted[-1]
    ids[5 : 5 + num_right] = plain[position : position + num_right]
    return ids


def walk(ids: list[int], greedy: list[int]) -> list[int]:
    """Rows from the anchor down, as long as a child holds the target's own next token."""
    path = [0]
    while True:
        children = [row for row, parent in enumerate(PARENTS) if parent == path[-1]]
        agreeing = [row for row in children if ids[row] == greedy[path[-1]]]
        if not agreeing:
            return path
        path.append(agreeing[-1])


def plain_ids(target: TargetModel, prompt: tuple[int, ...], num_tokens: int) -> list[int]:
    params = SamplingParams(max_new_tokens=num_tokens, ignore_eos=True)
    return list(collect(prompt, decode(target, NoDrafter(), prompt, params)).token_ids)


@pytest.mark.parametrize("num_right", [0, 1, 2, 3])
@pytest.mark.parametrize("name", TARGETS)
def test_trees_emit_what_plain_decoding_does(name: str, num_right: int) -> None:
    target = TARGETS[name]()
    prompt = (1, 2, 3)
    assert decode_with_trees(target, prompt, 21, num_right) == plain_ids(target, prompt, 21)
