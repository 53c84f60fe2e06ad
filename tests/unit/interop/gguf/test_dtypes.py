"""Tensors to the bytes of a GGUF file and back."""

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.interop.gguf.dtypes import (
    GGUF_TYPES,
    GgufType,
    Quantization,
    decode,
    encode,
    file_type,
    num_bytes,
    parse_gguf_type,
    stored_type,
)

FLOATS = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


@pytest.mark.parametrize("name", sorted(FLOATS))
def test_every_finite_value_comes_back_to_the_bit(name: GgufType) -> None:
    dtype = FLOATS[name]
    if dtype == torch.float32:
        bits = torch.randint(-(2**31), 2**31 - 1, (65536,), dtype=torch.int64).to(torch.int32)
    else:
        bits = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16)
    values = bits.view(dtype)
    values = values[torch.isfinite(values)]
    values = values[: len(values) // 4 * 4].reshape(4, -1)
    stored = stored_type(values.shape, name)
    raw = encode(values, stored, "x")
    assert raw.nbytes == num_bytes(values.shape, stored)
    back = decode(np.frombuffer(raw.tobytes(), np.uint8), stored, values.shape)
    assert back is not None and back.dtype == dtype
    integers = torch.int32 if dtype == torch.float32 else torch.int16
    assert torch.equal(back.view(integers), values.view(integers))


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 99))
def test_q8_0_is_what_the_library_dequantizes(rows: int, blocks: int, seed: int) -> None:
    values = torch.randn(rows, 32 * blocks, generator=torch.Generator().manual_seed(seed))
    raw = encode(values, Quantization.Q8_0, "x")
    assert raw.nbytes == num_bytes(values.shape, Quantization.Q8_0) == rows * blocks * 34
    back = decode(np.frombuffer(raw.tobytes(), np.uint8), Quantization.Q8_0, values.shape)
    assert back is not None
    expected = gguf.dequantize(gguf.quantize(values.numpy(), Quantization.Q8_0), Quantization.Q8_0)
    assert torch.equal(back, torch.from_numpy(expected))
    # Half a step of 1/127 of each block's largest value, and the rounding of the float16 scale.
    largest = values.view(rows, blocks, 32).abs().amax(-1, keepdim=True)
    assert bool(((back - values).view(rows, blocks, 32).abs() <= largest / 127 * 0.57).all())


def test_vectors_and_rows_without_whole_blocks_are_not_quantized() -> None:
    assert stored_type((64,), "q8_0") == Quantization.F32
    assert stored_type((2, 48), "q8_0") == Quantization.F16
    assert stored_type((2, 64), "q8_0") == Quantization.Q8_0
    assert stored_type((64,), "bf16") == Quantization.F32


def test_a_value_too_large_for_float16_is_refused() -> None:
    with pytest.raises(
        CheckpointError, match=r"layers\.0\.x has values that are not finite in f16"
    ):
        encode(torch.full((2, 2), 1e6), Quantization.F16, "layers.0.x")


def test_an_unknown_type_is_named() -> None:
    assert [parse_gguf_type(name) for name in GGUF_TYPES] == list(GGUF_TYPES)
    with pytest.raises(ConfigError, match="'q4_0' is unknown: use one of f32, bf16, f16, q8_0"):
        parse_gguf_type("q4_0")


def test_file_types_are_llama_cpps() -> None:
    assert [file_type(name) for name in GGUF_TYPES] == [0, 32, 1, 7]
