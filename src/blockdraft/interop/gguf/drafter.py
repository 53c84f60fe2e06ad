"""Writes a drafter as a GGUF file of architecture `dflash`.

It needs the target's tokenizer, and the rows of its embedding and head where llama.cpp wants a
drafter to bring its own; reading is in `drafter_read.py`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from blockdraft.checkpoint.contents import DrafterCheckpoint, expected_shapes
from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.interop.gguf.dtypes import GgufType, Quantization, stored_type
from blockdraft.interop.gguf.file import Metadata, TensorEntry, flag, u32, write_file
from blockdraft.interop.gguf.metadata import (
    DRAFTER_ARCHITECTURE,
    MASK_KEY,
    TARGET_HEAD_KEY,
    drafter_metadata,
    provenance_metadata,
)
from blockdraft.interop.gguf.names import (
    D2T,
    OUTPUT_HEAD,
    TARGET_EMBEDDING,
    drafter_name,
)
from blockdraft.interop.gguf.rope import FACTORS_NAME, render_rope
from blockdraft.interop.gguf.tokenizer import TargetTokenizer
from blockdraft.interop.target_facts import TargetRows

Report = Callable[[str], None]


def write_drafter(
    checkpoint: DrafterCheckpoint,
    tokenizer: TargetTokenizer,
    path: str | Path,
    *,
    dtype: GgufType,
    provenance: Mapping[str, object],
    rows: TargetRows | None = None,
    report: Report | None = None,
) -> None:
    """Write `checkpoint` to `path`, which appears complete or not at all.

    `rows` are the target's embedding and head: a reduced vocabulary without a head of its own and
    a learned mask embedding need them. `report` is told what was stored otherwise than asked.
    Raises ConfigError, with the reason, for a drafter that llama.cpp would run otherwise, and
    CheckpointError when drafter and target do not belong together.
    """
    path = Path(path)
    config = checkpoint.config
    _check_target(checkpoint, tokenizer, rows)
    rope = render_rope(config.rope, config.head_dim, DRAFTER_ARCHITECTURE, checkpoint.source)
    metadata = drafter_metadata(config, dtype) | rope.metadata | tokenizer.metadata()
    metadata[MASK_KEY] = u32(config.mask_token_id)
    metadata |= provenance_metadata(provenance, checkpoint.recorded_tau)
    tensors = _shared_tensors(checkpoint, rows, metadata)
    if rope.factors is not None:
        tensors[FACTORS_NAME] = rope.factors
    for name in expected_shapes(config):
        written = drafter_name(name)
        assert written is not None, f"{name} has no place in GGUF"
        tensors[written] = checkpoint.state[name]
    entries = [_entry(name, tensor, dtype) for name, tensor in tensors.items()]
    _tell_fallbacks(entries, dtype, report)
    write_file(path, DRAFTER_ARCHITECTURE, metadata, entries)


def _check_target(
    checkpoint: DrafterCheckpoint, tokenizer: TargetTokenizer, rows: TargetRows | None
) -> None:
    config = checkpoint.config
    if len(tokenizer.tokens) != config.vocab_size:
        raise CheckpointError(
            f"{checkpoint.source}: the drafter's target has {config.vocab_size} tokens, the"
            f" tokenizer given has {len(tokenizer.tokens)}; give the target that it was trained for"
        )
    wanted = (config.vocab_size, config.hidden_size)
    for tensor in () if rows is None else (rows.embedding, rows.head):
        if tuple(tensor.shape) != wanted:
            raise CheckpointError(
                f"{checkpoint.source}: the target's embedding or head is {list(tensor.shape)}, the"
                f" drafter's is {list(wanted)}, and llama.cpp takes both from one; give the target"
                " that it was trained for"
            )


def _shared_tensors(
    checkpoint: DrafterCheckpoint, rows: TargetRows | None, metadata: Metadata
) -> dict[str, Tensor]:
    """Embedding, head and vocabulary map, as far as llama.cpp can't take them from the target."""
    tensors: dict[str, Tensor] = {}
    head, d2t = checkpoint.lm_head, checkpoint.d2t
    if checkpoint.mask_embedding is not None:
        given = _needed(rows, checkpoint, "a learned mask embedding")
        tensors[TARGET_EMBEDDING] = _with_mask_row(checkpoint, given.embedding)
    # A file with an embedding and no head would draft with the embedding's patched row.
    if head is None and (d2t is not None or TARGET_EMBEDDING in tensors):
        head = _needed(rows, checkpoint, "a reduced vocabulary").head
        metadata[TARGET_HEAD_KEY] = flag(True)
        if d2t is not None:
            head = head[_target_ids(d2t)]
    if head is not None:
        tensors[OUTPUT_HEAD] = head
    if d2t is not None:
        tensors[D2T] = _target_ids(d2t)
    return tensors


def _with_mask_row(checkpoint: DrafterCheckpoint, embedding: Tensor) -> Tensor:
    assert checkpoint.mask_embedding is not None
    # The wider of the two types, so that neither is rounded before it is stored.
    wider = torch.promote_types(embedding.dtype, checkpoint.mask_embedding.dtype)
    patched = embedding.to(wider, copy=True)
    patched[checkpoint.config.mask_token_id] = checkpoint.mask_embedding.to(wider)
    return patched


def _needed(rows: TargetRows | None, checkpoint: DrafterCheckpoint, why: str) -> TargetRows:
    if rows is None:
        raise ConfigError(
            f"{checkpoint.source} has {why}, for which llama.cpp wants rows of the target in the"
            " drafter's file: give the target with its weights"
        )
    return rows


def _target_ids(d2t: Tensor) -> Tensor:
    """Absolute ids, int64 [draft_vocab]: checkpoints have offsets."""
    return torch.arange(len(d2t)) + d2t.cpu()


def _entry(name: str, tensor: Tensor, dtype: GgufType) -> TensorEntry:
    shape = tuple(tensor.shape)
    stored = Quantization.I64 if name == D2T else stored_type(shape, dtype)
    return TensorEntry(name=name, shape=shape, stored=stored, load=lambda: tensor)


def _tell_fallbacks(entries: list[TensorEntry], dtype: GgufType, report: Report | None) -> None:
    """Report matrices whose rows are no whole q8_0 blocks."""
    if report is None or dtype != "q8_0":
        return
    names = [entry.name for entry in entries if entry.stored == Quantization.F16]
    if names:
        shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        report(
            f"{len(names)} matrices are stored as f16, their rows being no multiple of 32: {shown}"
        )
