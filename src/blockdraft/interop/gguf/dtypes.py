"""The tensor types that are written to GGUF files, and torch tensors to and from their bytes.

Which tensors a file has is decided elsewhere. Float types are converted by torch, so that a value
that fits comes back to the bit; only blocks of 8-bit integers are `gguf`'s.
"""

from collections.abc import Sequence
from typing import Literal, cast, get_args

import gguf
import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from blockdraft.errors import CheckpointError, ConfigError

GgufType = Literal["f32", "bf16", "f16", "q8_0"]
GGUF_TYPES: tuple[GgufType, ...] = get_args(GgufType)

Quantization = gguf.GGMLQuantizationType

QUANTIZATION_VERSION = gguf.GGML_QUANT_VERSION
"""`general.quantization_version`: which layout the blocks of quantized tensors have."""

Q8_0_BLOCK = 32
"""Numbers that share one float16 scale; the rows of a q8_0 tensor are whole blocks."""

_MATRIX_TYPES: dict[GgufType, Quantization] = {
    "f32": Quantization.F32,
    "bf16": Quantization.BF16,
    "f16": Quantization.F16,
    "q8_0": Quantization.Q8_0,
}
_FILE_TYPES: dict[GgufType, gguf.LlamaFileType] = {
    "f32": gguf.LlamaFileType.ALL_F32,
    "bf16": gguf.LlamaFileType.MOSTLY_BF16,
    "f16": gguf.LlamaFileType.MOSTLY_F16,
    "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
}
_TORCH_TYPES: dict[Quantization, torch.dtype] = {
    Quantization.F32: torch.float32,
    Quantization.BF16: torch.bfloat16,
    Quantization.F16: torch.float16,
}


def parse_gguf_type(name: str) -> GgufType:
    """The type of that name; ConfigError for one that is not written."""
    for known in GGUF_TYPES:
        if name == known:
            return known
    raise ConfigError(f"GGUF type {name!r} is unknown: use one of {', '.join(GGUF_TYPES)}")


def file_type(dtype: GgufType) -> int:
    """The number that `general.file_type` has for a file whose matrices are `dtype`."""
    return int(_FILE_TYPES[dtype])


def stored_type(shape: Sequence[int], dtype: GgufType) -> Quantization:
    """How a tensor of `shape` is stored in a file of type `dtype`.

    Vectors stay float32, which is what llama.cpp's kernels take; a matrix whose rows are no whole
    q8_0 blocks is stored in float16.
    """
    if len(shape) < 2:
        return Quantization.F32
    if dtype == "q8_0" and shape[-1] % Q8_0_BLOCK:
        return Quantization.F16
    return _MATRIX_TYPES[dtype]


def num_bytes(shape: Sequence[int], stored: Quantization) -> int:
    """Bytes of a tensor in the file, padding left out; ValueError when rows are no whole blocks."""
    block_len, block_bytes = gguf.GGML_QUANT_SIZES[stored]
    count = 1
    for size in shape:
        count *= size
    if count % block_len:
        raise ValueError(f"{list(shape)} has no whole blocks of {stored.name.lower()}")
    return count // block_len * block_bytes


def encode(tensor: Tensor, stored: Quantization, name: str) -> npt.NDArray[np.generic]:
    """The tensor as the file holds it, row by row; float tensors of any type, and int64.

    Raises CheckpointError for a value that is not finite, as given or in the stored type.
    """
    tensor = tensor.detach().cpu().contiguous()
    if stored == Quantization.I64:
        return cast("npt.NDArray[np.generic]", tensor.long().numpy())
    if stored == Quantization.Q8_0:
        _check_finite(tensor, stored, name)
        return cast(
            "npt.NDArray[np.generic]", gguf.quantize(tensor.float().numpy(), Quantization.Q8_0)
        )
    converted = tensor.to(_TORCH_TYPES[stored])
    _check_finite(converted, stored, name)
    return cast("npt.NDArray[np.generic]", converted.view(torch.uint8).numpy())


def decode(
    data: npt.NDArray[np.uint8], stored: Quantization, shape: Sequence[int]
) -> Float[Tensor, "..."] | None:
    """The tensor of `shape` that the bytes hold, q8_0 as float32; None for a type not read."""
    if stored == Quantization.Q8_0:
        rows = data.reshape(-1, num_bytes(shape[-1:], stored))
        return torch.from_numpy(gguf.dequantize(rows, stored).copy()).reshape(tuple(shape))
    if stored not in _TORCH_TYPES:
        return None
    return torch.from_numpy(np.array(data)).view(_TORCH_TYPES[stored]).reshape(tuple(shape))


def _check_finite(tensor: Tensor, stored: Quantization, name: str) -> None:
    if not bool(torch.isfinite(tensor).all()):
        raise CheckpointError(
            f"tensor {name} has values that are not finite in {stored.name.lower()}; write another"
            " type (--outtype bf16 or f32), or fetch the checkpoint again"
        )
