"""The test kit itself: what the fakes promise, other tests rely on."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.decoding.interfaces import (
    Draft,
    Drafter,
    DraftIds,
    DraftLogits,
    TargetModel,
    TargetState,
)
from blockdraft.errors import RequestError
from blockdraft.testing import (
    FAMILIES,
    ListDrafter,
    OracleDrafter,
    RandomDrafter,
    ScriptedTarget,
    TinySize,
    ToyRecurrentTarget,
    hashed_logits,
    logits_of,
    script_logits,
    table_logits,
    tiny_config,
    tiny_model,
    tiny_target,
)
from blockdraft.testing.tiny import Family

VOCAB = 16
PROMPT_IDS = [3, 1, 4, 1, 5]
PROMPT = torch.tensor(PROMPT_IDS)

MAKERS: dict[str, Callable[[], TargetModel]] = {
    "scripted": lambda: ScriptedTarget(hashed_logits(VOCAB), VOCAB),
    "keep": lambda: ToyRecurrentTarget(VOCAB, rollback="keep"),
    "replay": lambda: ToyRecurrentTarget(VOCAB, rollback="replay"),
    "transformer": lambda: tiny_target("llama", size=TinySize(vocab_size=VOCAB)),
}
TARGETS: dict[str, TargetModel] = {}


def target_named(name: str) -> TargetModel:
    if name not in TARGETS:
        TARGETS[name] = MAKERS[name]()
    return TARGETS[name]


def prefilled(target: TargetModel, ids: torch.Tensor = PROMPT) -> TargetState:
    state = target.open(taps=(0, 1))
    state.prefill(ids)
    return state


blocks = st.integers(1, 6).flatmap(
    lambda num_rows: st.tuples(
        st.lists(st.integers(0, VOCAB - 1), min_size=num_rows, max_size=num_rows),
        st.tuples(*(st.integers(-1, row - 1) for row in range(num_rows))),
        st.integers(-1, num_rows - 1),
    )
)


@pytest.mark.parametrize("name", MAKERS)
@given(block=blocks)
def test_commit_is_as_if_the_path_had_been_fed_c05(
    name: str, block: tuple[list[int], tuple[int, ...], int]
) -> None:
    """C05, the seam's law: for KV and recurrent targets, for every tree and every path of it."""
    ids, parents, leaf = block
    path: list[int] = []
    while leaf >= 0:
        path.insert(0, leaf)
        leaf = parents[leaf]
    target = target_named(name)
    state = prefilled(target)
    output = state.verify(torch.tensor(ids), parents)
    state.commit(path)
    fed = torch.tensor([ids[row] for row in path], dtype=torch.long)
    fresh = prefilled(target)
    if path:
        alone = fresh.verify(fed)
        assert output.features is not None and alone.features is not None
        torch.testing.assert_close(output.logits[path], alone.logits, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(output.features[path], alone.features, atol=1e-5, rtol=1e-5)
        fresh.commit(range(len(path)))
    assert state.context_len == fresh.context_len == len(PROMPT) + len(path)
    probe = torch.tensor([2, 7])
    torch.testing.assert_close(
        state.verify(probe).logits, fresh.verify(probe).logits, atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("name", MAKERS)
def test_shapes_and_misuse(name: str) -> None:
    target = target_named(name)
    hidden_size = target.spec.hidden_size
    state = target.open(taps=(1, 0, 1))
    output = state.prefill(PROMPT)
    assert output.logits.shape == (1, VOCAB)
    assert output.features is not None and output.features.shape == (5, 3 * hidden_size)
    assert target.open().prefill(PROMPT).features is None
    with pytest.raises(RequestError):
        state.verify(torch.tensor([VOCAB]))
    with pytest.raises(AssertionError):
        state.commit([])
    state.verify(torch.tensor([1, 2]))
    with pytest.raises(AssertionError):
        state.verify(torch.tensor([1]))
    with pytest.raises(AssertionError):
        state.prefill(torch.tensor([1]))
    with pytest.raises(AssertionError):
        state.commit([1])
    embedded = target.embed(torch.tensor([[1, 2]]))
    assert embedded.shape == (1, 2, hidden_size)
    subset = torch.tensor([4, 0])
    torch.testing.assert_close(target.head(subset)(embedded), target.head()(embedded)[..., subset])


def test_scripted_logits_are_those_of_the_prefix() -> None:
    logits_of = hashed_logits(VOCAB, seed=1)
    target = ScriptedTarget(logits_of, VOCAB, max_context_len=8, stop_ids=[3])
    assert target.spec.stop_ids == (3,)
    state = target.open()
    assert torch.equal(state.prefill(PROMPT).logits[0], logits_of((3, 1, 4, 1, 5)))
    logits = state.verify(torch.tensor([9, 2]), (-1, -1)).logits
    assert torch.equal(logits[1], logits_of((3, 1, 4, 1, 5, 2)))
    state.commit([1])
    assert state.ids == (3, 1, 4, 1, 5, 2)
    with pytest.raises(RequestError, match="exceed the context"):
        state.verify(torch.tensor([1, 2, 3]))


def test_laws() -> None:
    markov = hashed_logits(VOCAB, order=1)
    assert torch.equal(markov((1, 2, 3)), markov((9, 3)))
    assert not torch.equal(markov((3,)), markov((4,)))
    whole = hashed_logits(VOCAB)
    assert not torch.equal(whole((1, 2, 3)), whole((9, 3)))
    table = table_logits({(1,): [0.0, 5.0]}, default=[1.0, 0.0])
    assert table((1,)).tolist() == [0.0, 5.0]
    assert table((1, 1)).tolist() == [1.0, 0.0]
    script = script_logits(VOCAB, [3, 1, 7, 9], after=2)
    assert [int(script(prefix).argmax()) for prefix in ((3, 1), (0, 0, 0), (1,) * 9)] == [7, 9, 2]


def ids_of(draft: Draft) -> tuple[int, ...]:
    if isinstance(draft, DraftIds):
        return draft.ids
    return tuple(int(token_id) for token_id in logits_of(draft).argmax(-1))


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("as_logits", [True, False])
@pytest.mark.parametrize("num_right", [*range(6), None])
def test_oracles_are_right_exactly_so_often(
    name: str, as_logits: bool, num_right: int | None
) -> None:
    """F4: the first `num_right` drafts are the target's greedy text, the next one is not."""
    target = target_named(name)
    greedy = target.open()
    greedy.prefill(PROMPT)
    text = [7]
    for _ in range(5):
        text.append(int(greedy.verify(torch.tensor(text[-1:])).logits.argmax()))
        greedy.commit([0])
    drafter = OracleDrafter(target, 6, num_right=num_right, as_logits=as_logits)
    state = drafter.open()
    state.extend(PROMPT_IDS, None)
    assert state.context_len == 5
    for width in (6, 3, 1):
        draft = state.propose(7, width)
        assert isinstance(draft, DraftLogits if as_logits else DraftIds)
        ids = ids_of(draft)
        assert len(ids) == width - 1
        right = width - 1 if num_right is None else min(num_right, width - 1)
        assert list(ids[:right]) == text[1 : right + 1]
        if right < width - 1:
            assert ids[right] != text[right + 1]
    state.extend([7, text[1]], None)
    assert state.context_len == 7


def test_lists_and_noise() -> None:
    listed = ListDrafter([[1, 2, 3], [4]], 4).open()
    listed.extend([0, 0], None)
    assert [listed.propose(9, 3), listed.propose(8, 4), listed.propose(7, 4)] == [
        DraftIds((1, 2)),
        DraftIds((4,)),
        DraftIds(()),
    ]
    assert listed.asked == [(9, 3), (8, 4), (7, 4)]
    assert listed.context_len == 2
    noise = RandomDrafter(VOCAB, 4).open()
    first, again = noise.propose(1, 4), noise.propose(1, 4)
    assert isinstance(first, DraftLogits) and isinstance(again, DraftLogits)
    assert torch.equal(first.logits, again.logits) and first.logits.shape == (3, VOCAB)
    noise.extend([5], None)
    assert ids_of(noise.propose(1, 4)) != ids_of(first)
    assert len(ids_of(RandomDrafter(VOCAB, 4, as_logits=False).open().propose(1, 3))) == 2


def test_the_fakes_fit_the_protocols() -> None:
    """pyright checks these assignments."""
    targets: list[TargetModel] = [make() for make in MAKERS.values()]
    drafters: list[Drafter] = [
        OracleDrafter(targets[0], 3),
        ListDrafter([], 3),
        RandomDrafter(VOCAB, 3),
    ]
    assert all(drafter.block_size == 3 and drafter.taps == () for drafter in drafters)


@pytest.mark.parametrize("family", FAMILIES)
def test_tiny_models_repeat_and_leave_the_seed_alone(family: Family) -> None:
    before = torch.get_rng_state()
    one, other = tiny_model(family, seed=3), tiny_model(family, seed=3)
    assert torch.equal(before, torch.get_rng_state())
    for left, right in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(left, right)
    assert tiny_config(family).num_hidden_layers == 3
