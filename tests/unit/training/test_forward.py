"""The training forward against inference, against itself unpacked, and against leaks."""

from typing import cast

import pytest
import torch
from packed import (
    CONFIG,
    batch_of,
    config_with,
    random_drafter,
    random_inputs,
    sample,
    two_documents,
)
from torch import Tensor

from blockdraft.drafter import BlockDrafter, DrafterConfig
from blockdraft.training.attention import dense, grouped
from blockdraft.training.batches.batch import Batch
from blockdraft.training.batches.layout import lay_out
from blockdraft.training.forward import BlockForward

SHAPES = [
    CONFIG,
    config_with(("sliding_attention", "full_attention"), window=4),
    config_with(("sliding_attention", "sliding_attention"), window=3),
]


def inference(drafter: BlockDrafter, batch: Batch, features: Tensor, embeddings: Tensor) -> Tensor:
    """Each block by itself, through the cache that serving uses."""
    rows: list[Tensor] = []
    starts = batch.starts
    for block, anchor in enumerate(cast(list[int], batch.anchors.tolist())):
        start = starts[int(batch.document_of[block])]
        cache = drafter.new_cache()
        # In two pieces, as decoding does: prefill, then what was committed since.
        middle = start + (anchor - start) // 2
        drafter.extend(cache, features[None, start:middle])
        drafter.extend(cache, features[None, middle:anchor])
        rows.append(drafter.hidden(embeddings[block][None], cache)[0, 1:])
    return torch.stack(rows)


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_cached_inference_on_the_same_anchors(shape: DrafterConfig) -> None:
    # T04 and speculators 613: what is trained must be what is served.
    batch = two_documents()
    drafter = random_drafter(shape)
    features, embeddings = random_inputs(batch, shape)
    trained = BlockForward(drafter)(features, embeddings, lay_out(batch))
    served = inference(drafter, batch, features, embeddings)
    torch.testing.assert_close(trained, served, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_cached_inference_in_float32(shape: DrafterConfig) -> None:
    batch = two_documents()
    drafter = random_drafter(shape).float()
    features, embeddings = (tensor.float() for tensor in random_inputs(batch, shape))
    trained = BlockForward(drafter)(features, embeddings, lay_out(batch))
    served = inference(drafter, batch, features, embeddings)
    assert float((trained - served).detach().abs().max()) < 1e-5


def test_packed_equals_unpacked_with_its_gradients() -> None:
    first, second = sample(1, 4, 9), sample(2, 3, 7)
    anchors = [[4, 5, 8], [3, 6]]
    drafter = random_drafter()
    packed = gradients(drafter, [batch_of([first, second], anchors)])
    apart = gradients(drafter, [batch_of([first], anchors[:1]), batch_of([second], anchors[1:])])
    for one, other in zip(packed, apart, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def gradients(drafter: BlockDrafter, batches: list[Batch]) -> list[Tensor]:
    drafter.zero_grad()
    forward = BlockForward(drafter)
    for batch in batches:
        generator = torch.Generator().manual_seed(5)
        table = torch.randn(CONFIG.vocab_size, 64, generator=generator).double()
        # Features and embeddings by token id, so that they do not depend on the packing.
        features = table[batch.ids, :32]
        ids = torch.full((batch.num_anchors, batch.block_size), CONFIG.mask_token_id)
        ids[:, 0] = batch.ids[batch.anchors]
        states: Tensor = forward(features, table[ids, 32:48], lay_out(batch))
        (states.sin() * batch.ids[batch.anchors][:, None, None]).sum().backward()
    return [p.grad if p.grad is not None else torch.zeros(0) for p in drafter.parameters()]


@pytest.mark.parametrize("make", [dense, grouped])
def test_no_block_sees_its_anchor_or_what_comes_after(make: object) -> None:
    # T02 and SpecForge 473: change everything from the anchor on; the block must not move.
    batch = two_documents()
    drafter = random_drafter()
    features, embeddings = random_inputs(batch)
    assert make in (dense, grouped)
    forward = BlockForward(drafter, make_attend=dense if make is dense else grouped)
    layout = lay_out(batch)
    before = forward(features, embeddings, layout)
    for block, anchor in enumerate(cast(list[int], batch.anchors.tolist())):
        end = batch.starts[int(batch.document_of[block]) + 1]
        start = batch.starts[int(batch.document_of[block])]
        changed = features.clone()
        changed[anchor:end] += 10
        changed[:start] -= 10
        changed[end:] -= 10
        others = embeddings.clone()
        others[torch.arange(len(others)) != block] += 10
        after = forward(changed, others, layout)
        torch.testing.assert_close(after[block], before[block], rtol=1e-9, atol=1e-9)
        seen = features.clone()
        seen[anchor - 1] += 10
        moved = forward(seen, embeddings, layout)
        assert float((moved[block] - before[block]).detach().abs().max()) > 1e-3


def test_recomputing_layers_gives_the_same_gradients() -> None:
    batch = two_documents()
    drafter = random_drafter()
    features, embeddings = random_inputs(batch)
    found: list[list[Tensor]] = []
    for recompute in (False, True):
        drafter.zero_grad()
        forward = BlockForward(drafter, recompute=recompute)
        forward(features, embeddings, lay_out(batch)).square().sum().backward()
        found.append([p.grad for p in drafter.parameters() if p.grad is not None])
    assert len(found[0]) == len(list(drafter.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
