"""Small packed rows and drafters that several tests of this folder share."""

from dataclasses import replace

import torch
from torch import Tensor

from blockdraft.drafter import BlockDrafter, DrafterConfig
from blockdraft.drafter.config import LayerType
from blockdraft.training.batches.batch import Batch, Sample

CONFIG = DrafterConfig(
    hidden_size=16,
    intermediate_size=24,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    rms_norm_eps=1e-6,
    vocab_size=40,
    block_size=5,
    mask_token_id=3,
    taps=(1, 3),
    num_target_layers=6,
    layer_types=("full_attention", "full_attention"),
    max_position_embeddings=256,
)


def config_with(kinds: tuple[LayerType, ...], *, window: int | None = None) -> DrafterConfig:
    """The small drafter with layers of other kinds."""
    return replace(CONFIG, layer_types=kinds, num_layers=len(kinds), sliding_window=window)


def sample(row: int, prompt_len: int, answer_len: int, *, vocab: int = 40) -> Sample:
    """A sample of tokens that depend on the row alone."""
    generator = torch.Generator().manual_seed(row)
    ids = torch.randint(4, vocab, (prompt_len + answer_len,), generator=generator)
    return Sample(row=row, ids=tuple(int(i) for i in ids), answer_start=prompt_len)


def batch_of(
    samples: list[Sample], anchors: list[list[int]], block_size: int = CONFIG.block_size
) -> Batch:
    """A packed row with the given anchors (positions in each document)."""
    positions: list[int] = []
    documents: list[int] = []
    start = 0
    for document, (one, chosen) in enumerate(zip(samples, anchors, strict=True)):
        positions += [start + position for position in chosen]
        documents += [document] * len(chosen)
        start += len(one.ids)
    return Batch(
        samples=tuple(samples),
        anchors=torch.tensor(positions, dtype=torch.long),
        document_of=torch.tensor(documents, dtype=torch.long),
        block_size=block_size,
    )


def two_documents() -> Batch:
    """Two documents; some anchors are closer to each other than a block, one is near the end."""
    return batch_of([sample(1, 4, 9), sample(2, 3, 7)], [[4, 5, 8, 11], [3, 6, 8]])


def random_drafter(config: DrafterConfig = CONFIG, seed: int = 0) -> BlockDrafter:
    """Random weights of unit size in float64, so that a leak would be seen."""
    torch.manual_seed(seed)
    drafter = BlockDrafter(config).double()
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.ndim > 1 else 1.0))
    return drafter


def random_inputs(batch: Batch, config: DrafterConfig = CONFIG) -> tuple[Tensor, Tensor]:
    """Features [tokens, feature] and block embeddings [blocks, width, hidden] in float64."""
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(
        batch.num_tokens,
        len(config.taps) * config.hidden_size,
        generator=generator,
        dtype=torch.float64,
    )
    table = torch.randn(config.vocab_size, config.hidden_size, generator=generator).double()
    ids = torch.full((batch.num_anchors, batch.block_size), config.mask_token_id)
    ids[:, 0] = batch.ids[batch.anchors]
    return features, table[ids]
