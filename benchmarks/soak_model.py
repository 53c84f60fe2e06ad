"""The model that the soak is run with: a random one of a megabyte, saved as a server loads it.

It writes nonsense in byte tokens, and its chat template knows tools.
"""

from pathlib import Path
from typing import Protocol, cast

import torch

from blockdraft.checkpoint import DrafterCheckpoint, save_checkpoint
from blockdraft.checkpoint.contents import expected_shapes
from blockdraft.drafter import DrafterConfig
from blockdraft.testing import TinySize, tiny_model
from blockdraft.testing.chat import END_ID, TEXT_END_ID, VOCAB_SIZE, chat_codec

MAX_CONTEXT = 2048
BLOCK_SIZE = 6
SIZE = TinySize(
    vocab_size=VOCAB_SIZE, hidden_size=32, max_context_len=MAX_CONTEXT, stop_ids=(END_ID,)
)


class _Saves(Protocol):
    """What a transformers tokenizer can do besides."""

    def save_pretrained(self, folder: str) -> object: ...


def save_models(folder: Path) -> tuple[Path, Path]:
    """The folders of target and drafter, made in `folder`; the same weights every time."""
    target, drafter = folder / "tiny", folder / "drafter"
    tiny_model("llama", dtype=torch.float32, size=SIZE).save_pretrained(str(target))
    cast(_Saves, cast(object, chat_codec().tokenizer)).save_pretrained(str(target))
    config = DrafterConfig(
        hidden_size=SIZE.hidden_size,
        intermediate_size=2 * SIZE.hidden_size,
        num_layers=1,
        num_heads=4,
        num_kv_heads=2,
        head_dim=SIZE.hidden_size // 4,
        rms_norm_eps=1e-6,
        vocab_size=VOCAB_SIZE,
        block_size=BLOCK_SIZE,
        mask_token_id=TEXT_END_ID,
        taps=(0, 1),
        layer_types=("full_attention",),
        max_position_embeddings=MAX_CONTEXT,
        num_target_layers=SIZE.num_layers,
    )
    generator = torch.Generator().manual_seed(0)
    state = {
        name: 0.3 * torch.randn(shape, generator=generator)
        for name, shape in expected_shapes(config).items()
    }
    save_checkpoint(drafter, DrafterCheckpoint(config=config, state=state, source="random"))
    return target, drafter
