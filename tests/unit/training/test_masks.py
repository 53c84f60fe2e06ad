"""The mask against nested loops that spell the rule out, for every way of attending."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from packed import batch_of, sample, two_documents
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from blockdraft.drafter.config import MaskRule
from blockdraft.training import attention
from blockdraft.training.attention import Attend, Heads, dense, flex_mask, grouped
from blockdraft.training.batches.batch import Batch, Sample
from blockdraft.training.batches.layout import lay_out
from blockdraft.training.masks import dense_mask

RULES = [
    MaskRule(causal=False, window=None),
    MaskRule(causal=True, window=None),
    MaskRule(causal=True, window=4),
    MaskRule(causal=False, window=3),
]


def mask_by_loops(batch: Batch, rule: MaskRule) -> Tensor:
    """Element by element, from the words of the paper and of the inference mask."""
    width = batch.block_size
    context = [
        (document, position)
        for document, one in enumerate(batch.samples)
        for position in range(len(one.ids))
    ]
    starts = batch.starts
    blocks = [
        (int(document), int(anchor) - starts[int(document)])
        for document, anchor in zip(batch.document_of, batch.anchors, strict=True)
    ]
    mask = torch.zeros(len(blocks) * width, len(context) + len(blocks) * width, dtype=torch.bool)
    for b, (document, anchor) in enumerate(blocks):
        for slot in range(width):
            row, position = b * width + slot, anchor + slot
            for column, (key_document, key_position) in enumerate(context):
                seen = key_document == document and key_position < anchor
                mask[row, column] = seen and within(position - key_position, rule)
            for other in range(len(blocks)):
                for key_slot in range(width):
                    column = len(context) + other * width + key_slot
                    mask[row, column] = other == b and within(slot - key_slot, rule)
    return mask


def within(distance: int, rule: MaskRule) -> bool:
    if rule.causal and distance < 0:
        return False
    return rule.window is None or abs(distance) < rule.window


@pytest.mark.parametrize("rule", RULES)
def test_equals_the_loops(rule: MaskRule) -> None:
    # SpecForge 427, 470: anchors closer than a block, document borders, causality in the block.
    batch = two_documents()
    assert torch.equal(dense_mask(lay_out(batch), rule), mask_by_loops(batch, rule))


@pytest.mark.parametrize("rule", RULES)
def test_flex_mask_equals_the_loops(rule: MaskRule) -> None:
    # SpecForge 501, 511: sizes are rounded up to tiles and must be clamped.
    batch = two_documents()
    mask = flex_mask(lay_out(batch), rule)
    expected = mask_by_loops(batch, rule)
    query, key = torch.meshgrid(*(torch.arange(n) for n in expected.shape), indexing="ij")
    zero = torch.tensor(0)
    assert torch.equal(mask.mask_mod(zero, zero, query, key), expected)
    beyond = torch.tensor(10_000)
    assert not mask.mask_mod(zero, zero, beyond, beyond)


def random_heads(batch: Batch) -> Heads:
    generator = torch.Generator().manual_seed(1)
    rows = batch.num_anchors * batch.block_size

    def draw(count: int, heads: int) -> Tensor:
        made = torch.randn(count, heads, 8, generator=generator, dtype=torch.float64)
        return made.requires_grad_()

    tokens = batch.num_tokens
    return Heads(draw(rows, 4), draw(tokens, 2), draw(tokens, 2), draw(rows, 2), draw(rows, 2))


def attended_and_gradients(attend: Attend, heads: Heads) -> list[Tensor]:
    for head in heads:
        head.grad = None
    out = attend(heads)
    pull = torch.randn(out.shape, generator=torch.Generator().manual_seed(2), dtype=out.dtype)
    (out * pull).sum().backward()
    return [out.detach(), *(h.grad if h.grad is not None else torch.zeros(0) for h in heads)]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("group_rows", [1, 10, 64])
def test_grouped_equals_dense_with_its_gradients(rule: MaskRule, group_rows: int) -> None:
    batch = two_documents()
    layout, heads = lay_out(batch), random_heads(batch)
    expected = attended_and_gradients(dense(layout, rule), heads)
    found = attended_and_gradients(grouped(layout, rule, group_rows), heads)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_the_gradient_of_grouped_attention_passes_gradcheck() -> None:
    batch = batch_of([sample(1, 2, 4)], [[2, 4]], block_size=2)
    rule = MaskRule(causal=False, window=None)
    attend = grouped(lay_out(batch), rule)
    rows, tokens = 4, batch.num_tokens
    inputs = [
        torch.randn(count, heads, 2, dtype=torch.float64, requires_grad=True)
        for count, heads in ((rows, 2), (tokens, 1), (tokens, 1), (rows, 1), (rows, 1))
    ]

    def run(*heads: Tensor) -> Tensor:
        return attend(Heads(*heads))

    assert torch.autograd.gradcheck(run, inputs)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_packed_row_equals_the_loops(data: st.DataObject) -> None:
    width = data.draw(st.integers(2, 6))
    samples: list[Sample] = []
    anchors: list[list[int]] = []
    for row in range(data.draw(st.integers(1, 3))):
        prompt, answer = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 7))
        one = sample(row, prompt, answer)
        samples.append(one)
        valid = list(range(prompt, prompt + answer - 1))
        anchors.append(sorted(data.draw(st.sets(st.sampled_from(valid)))))
    batch = batch_of(samples, anchors, width)
    if batch.num_anchors == 0:
        return
    rule = data.draw(st.sampled_from(RULES))
    assert torch.equal(dense_mask(lay_out(batch), rule), mask_by_loops(batch, rule))


@pytest.mark.filterwarnings("ignore:.*flex_attention.*:UserWarning")
@pytest.mark.parametrize("rule", RULES)
def test_flex_equals_dense(rule: MaskRule, monkeypatch: pytest.MonkeyPatch) -> None:
    # Uncompiled, flex_attention computes the same numbers anywhere.
    monkeypatch.setattr(attention, "compile_flex", lambda: flex_attention)
    batch = two_documents()
    layout = lay_out(batch)
    heads = Heads(*(head.detach() for head in random_heads(batch)))  # no backward on a CPU
    expected = dense(layout, rule)(heads)
    found = attention.flex(layout, rule)(heads)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
