"""Reads a drafter back from a GGUF file of architecture `dflash`.

Files of other programs are read as far as they say everything; nothing is guessed.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from blockdraft.checkpoint.assemble import assemble
from blockdraft.checkpoint.contents import D2T_NAME, HEAD_NAME, DrafterCheckpoint, expected_shapes
from blockdraft.drafter.config import DrafterConfig
from blockdraft.errors import CheckpointError
from blockdraft.interop.gguf.dtypes import Quantization, decode
from blockdraft.interop.gguf.file import GgufFile, read_file
from blockdraft.interop.gguf.foreign import check_version, read_config
from blockdraft.interop.gguf.metadata import PROVENANCE_KEY, TARGET_HEAD_KEY, TAU_KEY
from blockdraft.interop.gguf.names import D2T, OUTPUT_HEAD, TARGET_EMBEDDING, drafter_name
from blockdraft.interop.gguf.rope import FACTORS_NAME
from blockdraft.json_values import as_object

Report = Callable[[str], None]


def read_drafter(path: str | Path, *, report: Report | None = None) -> DrafterCheckpoint:
    """The drafter in a GGUF file, its weights in the type of the file's matrices.

    A file that we wrote gives back the checkpoint that went into it, to the bit when the type was
    the same; q8_0 is dequantized to float32, which `report` is told. Raises CheckpointError for
    another architecture, for what is not supported here and for a damaged file.
    """
    file = read_file(Path(path))
    check_version(file)
    config = read_config(file)
    say = report or _say_nothing
    tensors = _tensors(file, config, say)
    mask_embedding = _mask_embedding(file, config, tensors, say)
    return assemble(
        config,
        tensors,
        str(path),
        mask_embedding=mask_embedding,
        recorded_tau=_recorded_tau(file),
    )


def read_provenance(path: str | Path) -> Mapping[str, object]:
    """What a file that we wrote records of the drafter's making; empty for other files."""
    file = read_file(Path(path))
    found = file.metadata.get(PROVENANCE_KEY)
    if found is None:
        return {}
    try:
        parsed = cast("object", json.loads(str(found.value)))
    except ValueError as error:
        raise CheckpointError(f"{path}: {PROVENANCE_KEY} is no JSON: export it again") from error
    return as_object(parsed)


def _tensors(file: GgufFile, config: DrafterConfig, say: Report) -> dict[str, Tensor]:
    """The drafter's tensors by their published names, in one type; every one must be known."""
    published = {drafter_name(name): name for name in expected_shapes(config)}
    published |= {OUTPUT_HEAD: HEAD_NAME, D2T: D2T_NAME}
    dtype = _dtype(file)
    tensors: dict[str, Tensor] = {}
    for name in file.tensors:
        if name == D2T:
            tensors[D2T_NAME] = _offsets(file)
        elif name in published:
            tensors[published[name]] = _decoded(file, name).to(dtype)
        elif name not in (TARGET_EMBEDDING, FACTORS_NAME):
            raise CheckpointError(
                f"{file.path} has an unexpected tensor {name}: every tensor must be used, and a"
                " plain DFlash (version 1) drafter has no such one"
            )
    if any(entry.stored == Quantization.Q8_0 for entry in file.tensors.values()):
        say("q8_0 weights are dequantized to float32: the drafter that was quantized is not in it")
    head = file.metadata.get(TARGET_HEAD_KEY)
    if head is not None and head.value is True:
        tensors.pop(HEAD_NAME, None)  # the target's own rows, copied for llama.cpp
    return tensors


def _mask_embedding(
    file: GgufFile, config: DrafterConfig, tensors: Mapping[str, Tensor], say: Report
) -> Tensor | None:
    """The mask token's row of the file's own embedding, which differs from the target's there."""
    entry = file.tensors.get(TARGET_EMBEDDING)
    if entry is None:
        return None
    if entry.shape != (config.vocab_size, config.hidden_size):
        raise CheckpointError(
            f"{file.path}: {TARGET_EMBEDDING} has shape {list(entry.shape)}, expected"
            f" [{config.vocab_size}, {config.hidden_size}]: fetch it again"
        )
    if HEAD_NAME not in tensors and TARGET_HEAD_KEY not in file.metadata:
        raise CheckpointError(
            f"{file.path} drafts with its own embedding as the head, which is not supported here"
        )
    if TARGET_HEAD_KEY not in file.metadata:
        say(
            "of the file's own embedding only the mask token's row is kept; the rest is taken to"
            " be the target's"
        )
    return _decoded(file, TARGET_EMBEDDING)[config.mask_token_id].to(_dtype(file))


def _dtype(file: GgufFile) -> torch.dtype:
    """The type of the checkpoint: that of `fc`, the one matrix that each drafter has."""
    entry = file.tensors.get("fc.weight")
    if entry is None:
        raise CheckpointError(f"{file.path} has no tensor fc.weight: fetch it again")
    mixed = any(known.stored == Quantization.Q8_0 for known in file.tensors.values())
    return torch.float32 if mixed else _decoded(file, "fc.weight").dtype


def _decoded(file: GgufFile, name: str) -> Tensor:
    entry = file.tensors[name]
    tensor = decode(entry.data, entry.stored, entry.shape)
    if tensor is None:
        raise CheckpointError(
            f"{file.path}: tensor {name} is stored as {entry.stored.name.lower()}; only f32, bf16,"
            " f16 and q8_0 are read: convert the drafter to one of these"
        )
    return tensor


def _offsets(file: GgufFile) -> Tensor:
    """`d2t` as checkpoints have it: target id - draft id."""
    entry = file.tensors[D2T]
    if entry.stored != Quantization.I64 or len(entry.shape) != 1:
        raise CheckpointError(
            f"{file.path}: d2t is {entry.stored.name.lower()} {list(entry.shape)}, expected i64"
            " target ids: export it again"
        )
    raw = torch.frombuffer(bytearray(entry.data.tobytes()), dtype=torch.int64)
    return raw - torch.arange(len(raw))


def _recorded_tau(file: GgufFile) -> float | None:
    found = file.metadata.get(TAU_KEY)
    return float(found.value) if found is not None and isinstance(found.value, float) else None


def _say_nothing(line: str) -> None:
    pass
