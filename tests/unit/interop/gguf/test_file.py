"""The container, against package gguf's own reader; damage of every kind."""

from pathlib import Path

import gguf
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.interop.gguf.dtypes import Quantization
from blockdraft.interop.gguf.file import (
    Kind,
    TensorEntry,
    Value,
    f32,
    flag,
    read_file,
    text,
    u32,
    write_file,
)

METADATA = {
    "a.count": u32(7),
    "a.scale": f32(0.5),
    "a.name": text("gr\u00fcn"),
    "a.on": flag(True),
    "a.pattern": Value(Kind.BOOL, (True, False)),
    "a.layers": Value(Kind.INT32, (2, -3)),
    "a.tokens": Value(Kind.STRING, ("", "x y", "\u0120t")),
    "a.tau": Value(Kind.FLOAT64, 1.1),
}
TENSOR = torch.arange(12.0).reshape(3, 4)


def write(path: Path) -> None:
    entries = [
        TensorEntry(name="w", shape=(3, 4), stored=Quantization.BF16, load=lambda: TENSOR),
        TensorEntry(name="v", shape=(4,), stored=Quantization.F32, load=lambda: TENSOR[1]),
        TensorEntry(name="d2t", shape=(3,), stored=Quantization.I64, load=lambda: torch.arange(3)),
    ]
    write_file(path, "llama", METADATA, entries)


def test_another_reader_finds_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "m.gguf"
    write(path)
    reader = gguf.GGUFReader(path)
    for key, value in METADATA.items():
        expected = list(value.value) if isinstance(value.value, tuple) else value.value
        assert reader.fields[key].contents() == expected
    found = {tensor.name: tensor for tensor in reader.tensors}
    assert list(found) == ["w", "v", "d2t"]
    assert found["w"].tensor_type == Quantization.BF16
    assert found["w"].shape.tolist() == [4, 3]
    assert gguf.dequantize(found["w"].data, Quantization.BF16).tolist() == TENSOR.tolist()
    assert found["d2t"].data.tolist() == [0, 1, 2]
    assert [file.name for file in path.parent.iterdir()] == ["m.gguf"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_it_reads_back_metadata_and_shapes(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write(path)
    file = read_file(path)
    assert file.architecture == "llama"
    assert {key: file.metadata[key] for key in METADATA} == METADATA
    assert {name: entry.shape for name, entry in file.tensors.items()} == {
        "w": (3, 4),
        "v": (4,),
        "d2t": (3,),
    }


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path / "a.gguf")
    write(tmp_path / "b.gguf")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_an_existing_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match="exists already"):
        write(path)
    assert path.read_text(encoding="utf-8") == "mine"


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> torch.Tensor:
        raise CheckpointError("no such tensor")

    entry = TensorEntry(name="w", shape=(3, 4), stored=Quantization.F32, load=fail)
    with pytest.raises(CheckpointError, match="no such tensor"):
        write_file(tmp_path / "m.gguf", "llama", METADATA, [entry])
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"there is no file .*none\.gguf"):
        read_file(tmp_path / "none.gguf")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.data())
def test_a_truncated_file_is_refused(tmp_path: Path, data: st.DataObject) -> None:
    path, cut = tmp_path / "m.gguf", tmp_path / "cut.gguf"
    if not path.exists():
        write(path)
    whole = path.read_bytes()
    padded = 32 - 3 * 8  # after the last tensor, nothing is read
    cut.write_bytes(whole[: data.draw(st.integers(0, len(whole) - padded - 1))])
    with pytest.raises(CheckpointError, match="no complete GGUF file"):
        read_file(cut)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(st.data())
def test_damage_gives_one_line_or_another_value(tmp_path: Path, data: st.DataObject) -> None:
    path, damaged = tmp_path / "m.gguf", tmp_path / "damaged.gguf"
    if not path.exists():
        write(path)
    changed = bytearray(path.read_bytes())
    changed[data.draw(st.integers(0, 300))] = data.draw(st.integers(0, 255))
    damaged.write_bytes(changed)
    try:
        read_file(damaged)
    except CheckpointError as error:
        assert "\n" not in str(error)
