"""The convolutions of DFlash 2 against the sum that they are, and what they may touch."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.drafter import BlockDrafter, DFlash2Config, DrafterConfig
from blockdraft.drafter.convolution import BlockConvolution, convolve

MakeModel = Callable[[DrafterConfig], BlockDrafter]
SECOND = DFlash2Config(conv_kernel_size=2, conv_group_size=4, selector_rank=3, selector_top_k=5)


@given(
    batch=st.integers(1, 3),
    width=st.integers(1, 5),
    taps=st.integers(1, 4),
    groups=st.integers(1, 4),
    size=st.integers(1, 3),
)
def test_convolve_is_the_sum_that_it_says(
    batch: int, width: int, taps: int, groups: int, size: int
) -> None:
    states = torch.randn(batch, width, groups * size, dtype=torch.float64)
    base = torch.randn(taps, groups * size, dtype=torch.float64)
    dynamic = torch.randn(batch, width, taps, groups, dtype=torch.float64)
    expected = torch.zeros_like(states)
    for b in range(batch):
        for t in range(width):
            for tap in range(min(taps, t + 1)):
                kernel = base[tap] + dynamic[b, t, tap].repeat_interleave(size)
                expected[b, t] += kernel * states[b, t - tap]
    torch.testing.assert_close(convolve(states, base, dynamic), expected)


def test_it_is_the_identity_as_made() -> None:
    states = torch.randn(2, 5, 16)
    convolution = BlockConvolution(16, SECOND)
    assert torch.equal(convolution.around(states, lambda rows: 2 * rows), 2 * states)


def test_kernels_of_both_sides_come_from_the_input() -> None:
    """Not from what the sublayer made of it."""
    convolution = BlockConvolution(16, SECOND).requires_grad_(False)
    convolution.kernel_projection.weight.normal_()
    states = torch.randn(1, 4, 16)
    kernels = convolution.kernel_projection(states).view(1, 4, 2, 2, 4)
    before, after = kernels[:, :, 0], kernels[:, :, 1]
    base = convolution.base_kernel
    inner = torch.tanh(convolve(states, base[0], before))
    expected = convolve(inner, base[1], after)
    torch.testing.assert_close(convolution.around(states, torch.tanh), expected)


def test_a_new_second_version_computes_what_the_first_does(
    config: DrafterConfig, make_model: MakeModel
) -> None:
    first = make_model(config)
    second = BlockDrafter(replace(config, dflash2=SECOND)).requires_grad_(False)
    second.load_state_dict(first.state_dict(), strict=False)
    features, embeddings = torch.randn(2, 7, 32), torch.randn(2, 5, 16)
    outputs: list[torch.Tensor] = []
    for model in (first, second):
        cache = model.new_cache(2)
        model.extend(cache, features, [7, 4])
        outputs.append(model.hidden(embeddings, cache))
    torch.testing.assert_close(outputs[0], outputs[1])


def test_the_context_is_not_convolved(config: DrafterConfig, make_model: MakeModel) -> None:
    model = make_model(replace(config, dflash2=SECOND))
    features = torch.randn(1, 6, 32)
    whole, parts = model.new_cache(), model.new_cache()
    model.extend(whole, features)
    for row in range(6):
        model.extend(parts, features[:, row : row + 1])
    for layer_idx in range(config.num_layers):
        for ours, theirs in zip(whole.context(layer_idx), parts.context(layer_idx), strict=True):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("width", [2, 3, 5])
def test_every_parameter_counts_and_blocks_of_a_batch_are_apart(
    config: DrafterConfig, make_model: MakeModel, width: int
) -> None:
    model = make_model(replace(config, dflash2=SECOND)).double()
    features = torch.randn(2, 6, 32).double()
    embeddings = torch.randn(2, width, 16).double()

    def run(rows: slice, counts: list[int]) -> torch.Tensor:
        cache = model.new_cache(len(counts))
        model.extend(cache, features[rows], counts)
        return model.hidden(embeddings[rows], cache)

    together = run(slice(0, 2), [6, 3])
    torch.testing.assert_close(together[:1], run(slice(0, 1), [6]))
    torch.testing.assert_close(together[1:], run(slice(1, 2), [3]))
    for name, parameter in model.named_parameters():
        if "_conv." in name:
            kept = parameter.clone()
            parameter.mul_(1.5)
            assert not torch.allclose(run(slice(0, 2), [6, 3]), together), name
            parameter.copy_(kept)
