"""Windows and YaRN far beyond the window and beyond the original length, against a dense oracle.

The published windows (2048, 4096) are scaled down with their contexts; one test has them full size.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch
from dense_oracle import oracle_hidden
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from blockdraft.decoding.interfaces import DraftLattice, TargetModel
from blockdraft.drafter import BlockDrafter, DFlashDrafter, DrafterConfig, RopeConfig
from blockdraft.drafter.config import DFlash2Config, LayerType
from blockdraft.native.drafting import PackedDrafter
from blockdraft.native.linear import PLAIN, KernelPlan
from blockdraft.native.segments import Segment
from blockdraft.testing import logits_of
from blockdraft.testing.tiny import Family, TinySize, tiny_model, tiny_target

MakeModel = Callable[[DrafterConfig], BlockDrafter]

S: LayerType = "sliding_attention"
F: LayerType = "full_attention"
WINDOW = 8

BASE = DrafterConfig(
    hidden_size=16,
    intermediate_size=24,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    rms_norm_eps=1e-6,
    vocab_size=40,
    block_size=16,
    mask_token_id=3,
    taps=(1, 3),
    num_target_layers=6,
    layer_types=(S, S, F),
    sliding_window=WINDOW,
    max_position_embeddings=4096,
)
YARN = RopeConfig(
    rope_type="yarn", theta=50_000.0, factor=64.0, original_max_position_embeddings=16
)
SECOND = DFlash2Config(conv_kernel_size=2, conv_group_size=4, selector_rank=6, selector_top_k=5)

CONFIGS: dict[str, DrafterConfig] = {
    # Qwen3.5, Qwen3.6 and Gemma 4: windows first, one full layer last; causal by the kind of layer.
    "windows, then full": BASE,
    "windows only": replace(BASE, layer_types=(S, S, S)),
    "windows only, both ways": replace(BASE, layer_types=(S, S, S), is_causal=False),
    "mixed, both ways": replace(BASE, is_causal=False),
    "mixed, all causal": replace(BASE, is_causal=True),
    "narrower than a block": replace(BASE, sliding_window=3, is_causal=False),
    "a window of one token": replace(BASE, sliding_window=1),
    # Kimi: both scales 1, so that cosines keep their size; gpt-oss: neither, and no rounding.
    "yarn, scales of one": replace(
        BASE, rope=replace(YARN, mscale=1.0, mscale_all_dim=1.0), layer_types=(F, F, F)
    ),
    "yarn, no rounding": replace(
        BASE, rope=replace(YARN, factor=32.0, truncate=False), layer_types=(F, F, F)
    ),
    "yarn and windows": replace(BASE, rope=YARN),
    "DFlash 2": replace(BASE, layer_types=(S, S, S), is_causal=False, dflash2=SECOND),
}
CONTEXTS = (0, 1, WINDOW - 1, WINDOW, WINDOW + 1, 20 * WINDOW + 3)
WIDTHS = (2, 7, 16)


def random_features(num_rows: int, config: DrafterConfig = BASE) -> Tensor:
    return torch.randn(num_rows, len(config.taps) * config.hidden_size).double()


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_cached_pass_is_the_dense_one(name: str, width: int, make_model: MakeModel) -> None:
    model = make_model(CONFIGS[name]).double()
    for context_len in CONTEXTS:
        features = random_features(context_len)
        embeddings = torch.randn(width, 16).double()
        cache = model.new_cache()
        for chunk in torch.split(features, 20):
            model.extend(cache, chunk[None])
        model.hidden(torch.randn(1, 3, 16).double(), cache)  # a block that leaves no trace
        found = model.hidden(embeddings[None], cache)[0]
        torch.testing.assert_close(
            found, oracle_hidden(model, features, embeddings), rtol=1e-6, atol=1e-6
        )


@pytest.mark.parametrize("name", CONFIGS)
def test_rows_of_a_batch_are_dense_ones(name: str, make_model: MakeModel) -> None:
    """Contexts inside and far outside the window side by side."""
    model = make_model(CONFIGS[name]).double()
    lengths = [2, 70, 9]
    features = torch.randn(3, 70, 32).double()
    embeddings = torch.randn(3, 6, 16).double()
    cache = model.new_cache(3)
    model.extend(cache, features, lengths)
    found = model.hidden(embeddings, cache)
    for row, length in enumerate(lengths):
        expected = oracle_hidden(model, features[row, :length], embeddings[row])
        torch.testing.assert_close(found[row], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", CONFIGS)
@settings(max_examples=6)
@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=4), width=st.integers(2, 16))
def test_the_packed_pass_is_the_dense_one(name: str, counts: list[int], width: int) -> None:
    """Requests of different lengths in one pool, their contexts taken in bit by bit."""
    drafter, target = pair_of(name)
    packed = PackedDrafter(drafter, clock=lambda: 0.0, plan=KernelPlan((PLAIN, PLAIN), ()))
    state, plain = packed.open(), drafter.open()
    taken: list[Tensor] = []
    for count in counts:
        rows = random_features(count).float()
        taken.append(rows)
        for one in (state, plain):
            one.extend([1] * count, rows)
        found, expected = state.propose(7, width), plain.propose(7, width)
        if isinstance(expected, DraftLattice):
            assert isinstance(found, DraftLattice)
            assert torch.equal(found.candidates, expected.candidates)
            torch.testing.assert_close(found.first, expected.first, rtol=1e-3, atol=1e-3)
            torch.testing.assert_close(found.pairs, expected.pairs, rtol=1e-3, atol=1e-3)
            continue
        ids = torch.tensor([7] + [3] * (width - 1))
        hidden = oracle_hidden(drafter.model, torch.cat(taken), target.embed(ids))
        torch.testing.assert_close(
            logits_of(found), target.head()(hidden[1:]), rtol=1e-3, atol=2e-3
        )


@cache
def pair_of(name: str) -> tuple[DFlashDrafter, TargetModel]:
    """A drafter with random weights in float32, and a target with its tables."""
    config = CONFIGS[name]
    generator = torch.Generator().manual_seed(5)
    model = BlockDrafter(config).requires_grad_(False)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.copy_(noise * 0.3 if parameter.ndim > 1 else 1 + 0.3 * noise)
    size = TinySize(vocab_size=config.vocab_size, hidden_size=config.hidden_size, num_layers=6)
    target = tiny_target("qwen3", dtype=torch.float32, size=size)
    return DFlashDrafter(model, target), target


@pytest.mark.parametrize(
    "name", ["windows, then full", "windows only, both ways", "yarn and windows"]
)
def test_a_packed_batch_beyond_the_window(name: str) -> None:
    drafter, target = pair_of(name)
    packed = PackedDrafter(drafter, clock=lambda: 0.0, plan=KernelPlan((PLAIN, PLAIN), ()))
    lengths, width = (60, 3, 33), 5
    pool = packed.new_pool(3 * 80)
    taken = [random_features(length).float() for length in lengths]
    for place, rows in enumerate(taken):
        positions = range(len(rows))
        packed.project(rows, positions, [place * 80 + p for p in positions], pool)
    blocks = [Segment(place * 80, length, width) for place, length in enumerate(lengths)]
    drafted = packed.draft([4, 5, 6], blocks, pool)
    logits = drafted.view(3, width - 1, -1)
    for place, anchor in enumerate((4, 5, 6)):
        ids = torch.tensor([anchor] + [3] * (width - 1))
        hidden = oracle_hidden(drafter.model, taken[place], target.embed(ids))
        expected = target.head()(hidden[1:])
        torch.testing.assert_close(logits[place], expected, rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("family", ["qwen3", "mistral", "gemma3"])
@pytest.mark.parametrize("name", ["windows, then full", "yarn and windows", "DFlash 2"])
def test_features_of_a_decoded_text(name: str, family: Family, make_model: MakeModel) -> None:
    """A prompt in chunks, then steps of which a part is accepted: what the drafter sees is what one
    pass of transformers over the accepted text gives, and its block is the dense one."""
    size = TinySize(vocab_size=40, hidden_size=16, num_layers=6, stop_ids=())
    tiny = tiny_model(family, size=size)
    target = tiny_target(family, size=size)
    model = make_model(CONFIGS[name]).double()
    drafter = DFlashDrafter(model, target)
    text = [int(token) for token in torch.randint(4, 40, (30,))]
    state, draft_state = target.open(drafter.taps), drafter.open()
    for chunk in (text[:13], text[13:]):
        draft_state.extend(chunk, state.prefill(torch.tensor(chunk)).features)
    for accepted in (1, 3, 2, 4, 1, 3):
        block = [int(token) for token in torch.randint(4, 40, (4,))]
        rows = state.verify(torch.tensor(block)).features
        assert rows is not None
        state.commit(range(accepted))
        draft_state.extend(block[:accepted], rows[:accepted])
        text += block[:accepted]
    every = tiny(torch.tensor([text]), output_hidden_states=True).hidden_states
    features = torch.cat([every[tap + 1][0] for tap in drafter.taps], dim=-1).detach()
    ids = torch.tensor([9] + [3] * 6)
    hidden = oracle_hidden(model, features, target.embed(ids))
    found = model.hidden(target.embed(ids)[None], draft_state.cache)[0]
    torch.testing.assert_close(found, hidden, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("window", [2048, 4096])
def test_published_windows_at_full_size(window: int, make_model: MakeModel) -> None:
    model = make_model(replace(BASE, sliding_window=window, max_position_embeddings=8192)).double()
    features, embeddings = random_features(window + 90), torch.randn(16, 16).double()
    cache = model.new_cache()
    model.extend(cache, features[None])
    found = model.hidden(embeddings[None], cache)[0]
    expected = oracle_hidden(model, features, embeddings)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_these_comparisons_see_a_window_that_is_off_by_one(make_model: MakeModel) -> None:
    """Otherwise they would prove nothing."""
    model = make_model(replace(BASE, layer_types=(S, S, S))).double()
    features, embeddings = random_features(40), torch.randn(7, 16).double()
    exact = oracle_hidden(model, features, embeddings)
    for window in (WINDOW - 1, WINDOW + 1):
        other = oracle_hidden(model, features, embeddings, window=window)
        assert (other - exact).abs().max() > 1e-2


@pytest.mark.parametrize("rope", [RopeConfig(theta=50_000.0), replace(YARN, factor=32.0)])
def test_and_another_scaling(rope: RopeConfig, make_model: MakeModel) -> None:
    yarn = make_model(replace(BASE, rope=YARN, layer_types=(F, F, F))).double()
    other = make_model(replace(BASE, rope=rope, layer_types=(F, F, F))).double()
    features, embeddings = random_features(200), torch.randn(7, 16).double()
    exact = oracle_hidden(yarn, features, embeddings)
    assert (oracle_hidden(other, features, embeddings) - exact).abs().max() > 1e-2
