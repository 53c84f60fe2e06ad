"""Writes a Llama or Qwen3 target as a GGUF file, tensor by tensor.

The model is not loaded: configuration, tokenizer and safetensors files of its folder are enough.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from jaxtyping import Float
from safetensors import safe_open
from torch import Tensor

from blockdraft.errors import CheckpointError
from blockdraft.interop.gguf.dtypes import GgufType, Quantization, stored_type
from blockdraft.interop.gguf.file import TensorEntry, write_file
from blockdraft.interop.gguf.names import target_name
from blockdraft.interop.gguf.rope import FACTORS_NAME, render_rope
from blockdraft.interop.gguf.target_config import TargetShape, read_shape, shape_metadata
from blockdraft.interop.gguf.tokenizer import read_tokenizer
from blockdraft.target.folder import check_model_folder, is_harmless, weight_files

Report = Callable[[str], None]

_HEAD = "lm_head.weight"
_EMBEDDING = "model.embed_tokens.weight"


def write_target(
    folder: str | Path, path: str | Path, *, dtype: GgufType, report: Report | None = None
) -> None:
    """Write the target in `folder` (safetensors) to `path`, which appears complete or not at all.

    Vectors stay float32. `report` is told what was stored otherwise than asked. Raises
    CheckpointError for a damaged folder and, with the reason, for a model that llama.cpp would
    compute otherwise.
    """
    folder, path = Path(folder), Path(path)
    check_model_folder(folder)
    shape = read_shape(folder)
    rope = render_rope(shape.rope, shape.head_dim, shape.architecture, str(folder))
    if rope.factors is not None and shape.architecture != "llama":
        raise CheckpointError(
            f"{folder}: llama.cpp scales rotary frequencies one by one (llama3) for Llama models"
            f" only, this is a {shape.architecture}"
        )
    metadata = shape_metadata(shape, dtype) | rope.metadata | read_tokenizer(folder).metadata()
    with ExitStack() as stack:
        sources = _sources(folder, shape, stack)
        entries = [_entry(name, source, shape, dtype) for name, source in sources.items()]
        if rope.factors is not None:
            entries.insert(0, _factors(rope.factors))
        _tell_fallbacks(entries, dtype, report)
        write_file(path, shape.architecture, metadata, entries)


def permute_rope(
    weight: Float[Tensor, "rows hidden"], num_heads: int
) -> Float[Tensor, "rows hidden"]:
    """Rows of a query or key projection in the order of llama.cpp's Llama models.

    There neighboring rows of a head are rotated together, here row i and row i + head_dim / 2.
    """
    rows, hidden = weight.shape
    halves = weight.reshape(num_heads, 2, rows // num_heads // 2, hidden)
    return halves.transpose(1, 2).reshape(weight.shape)


class _Slice(Protocol):
    def get_shape(self) -> list[int]: ...


class _Reader(Protocol):
    """The part of safetensors' untyped reader that is used here."""

    def keys(self) -> list[str]: ...
    def get_slice(self, name: str) -> _Slice: ...
    def get_tensor(self, name: str) -> Tensor: ...


class _Source(NamedTuple):
    """A tensor in an open file, under the name that it has there."""

    reader: _Reader
    stored_name: str
    shape: tuple[int, ...]


def _sources(folder: Path, shape: TargetShape, stack: ExitStack) -> dict[str, _Source]:
    """Where each tensor of the model is, in the order of writing; all are there, no other is."""
    found: dict[str, _Source] = {}
    for file in weight_files(folder):
        opened = cast("AbstractContextManager[_Reader]", safe_open(str(file), framework="pt"))
        reader = stack.enter_context(opened)
        for name in _wanted(reader.keys(), shape, folder):
            found[name] = _Source(reader, name, tuple(reader.get_slice(name).get_shape()))
    head = found.pop(_HEAD, None) if shape.tied else None
    if head is not None:
        found.setdefault(_EMBEDDING, head)  # either name may stand for the one tensor
    for name, expected in shape.tensors().items():
        if name not in found or found[name].shape != expected:
            has = list(found[name].shape) if name in found else "missing"
            raise CheckpointError(
                f"{folder}: tensor {name} is {has}, expected {list(expected)}: config.json and"
                " weights do not belong together; fetch the model again"
            )
    return {name: found[name] for name in shape.tensors()}


def _wanted(names: list[str], shape: TargetShape, folder: Path) -> Generator[str, None, None]:
    known: Mapping[str, object] = shape.tensors()
    for name in names:
        if is_harmless(name):
            continue
        if name not in known and not (name == _HEAD and shape.tied):
            raise CheckpointError(
                f"{folder} has a tensor {name}, for which a {shape.architecture} file of llama.cpp"
                " has no place; convert the target with llama.cpp's own converter"
            )
        yield name


def _entry(name: str, source: _Source, shape: TargetShape, dtype: GgufType) -> TensorEntry:
    written = target_name(name)
    assert written is not None, f"{name} has no place in GGUF"

    def load() -> Tensor:
        tensor = source.reader.get_tensor(source.stored_name)
        heads = shape.permuted_heads(name)
        return tensor if heads is None else permute_rope(tensor, heads)

    stored = stored_type(source.shape, dtype)
    return TensorEntry(name=written, shape=source.shape, stored=stored, load=load)


def _factors(factors: Tensor) -> TensorEntry:
    shape = tuple(factors.shape)
    return TensorEntry(
        name=FACTORS_NAME, shape=shape, stored=Quantization.F32, load=lambda: factors
    )


def _tell_fallbacks(entries: list[TensorEntry], dtype: GgufType, report: Report | None) -> None:
    names = [entry.name for entry in entries if entry.stored == Quantization.F16]
    if report is not None and dtype == "q8_0" and names:
        report(f"{len(names)} matrices are stored as f16, their rows being no multiple of 32")
