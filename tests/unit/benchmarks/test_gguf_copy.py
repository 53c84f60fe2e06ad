"""Tests of the dequantized GGUF copy: the same values as torch rounds them, the same metadata."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from gguf_copy import copy_dequantized

Q4_1 = gguf.GGMLQuantizationType.Q4_1


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.gguf"
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(3)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1)
    writer.add_quantization_version(2)
    writer.add_token_list(["a", "b", "\u00e9"])
    writer.add_token_types([1, 2, 3])
    matrix = gguf.quantize(random.normal(size=(5, 64)).astype(np.float32), Q4_1)
    writer.add_tensor("blk.0.ffn_up.weight", matrix, raw_shape=matrix.shape, raw_dtype=Q4_1)
    writer.add_tensor("blk.0.ffn_norm.weight", random.normal(size=64).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("output_type", ["bf16", "f32"])
def test_values_are_the_dequantized_ones(source: Path, tmp_path: Path, output_type: str) -> None:
    copy_dequantized(source, tmp_path / "copy.gguf", output_type)
    old_matrix, old_vector = gguf.GGUFReader(source).tensors
    matrix, vector = gguf.GGUFReader(tmp_path / "copy.gguf").tensors
    expected = torch.from_numpy(gguf.dequantize(old_matrix.data, Q4_1))
    if output_type == "bf16":
        expected = expected.to(torch.bfloat16).to(torch.float32)
    found = gguf.dequantize(matrix.data, matrix.tensor_type)
    assert np.array_equal(found, expected.numpy())
    assert matrix.tensor_type.name == output_type.upper()
    assert list(matrix.shape) == list(old_matrix.shape)
    assert (matrix.name, vector.name) == (old_matrix.name, old_vector.name)
    assert vector.tensor_type.name == "F32"
    assert np.array_equal(vector.data, old_vector.data)


def test_metadata_is_kept_but_for_the_file_type(source: Path, tmp_path: Path) -> None:
    copy_dequantized(source, tmp_path / "copy.gguf", "bf16")
    old = gguf.GGUFReader(source).fields
    new = gguf.GGUFReader(tmp_path / "copy.gguf").fields
    assert new["general.file_type"].contents() == gguf.LlamaFileType.MOSTLY_BF16
    changed = {"general.file_type", "general.quantization_version"}
    kept = [key for key in old if not key.startswith("GGUF.") and key not in changed]
    assert {key: new[key].contents() for key in kept} == {key: old[key].contents() for key in kept}
    assert "general.quantization_version" not in new
