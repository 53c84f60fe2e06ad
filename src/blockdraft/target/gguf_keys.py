"""`GgufKeys`: the metadata and tensor names of one GGUF model, read with checks.

It knows no meaning of a key; `gguf_config.py` does.
"""

import math
import struct
from collections.abc import Iterable
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from blockdraft.errors import CheckpointError
from blockdraft.gguf_header import Header, Scalar, map_file, parse_header

_FLOAT32 = 0


class GgufKeys:
    """`architecture` is llama.cpp's name of the model, which the names of most keys begin with."""

    def __init__(self, path: Path) -> None:
        """Raises CheckpointError for a file that is no readable GGUF."""
        self._path = path
        try:
            self._data = map_file(path)
            self._header: Header = parse_header(self._data)
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{path} can't be dequantized: it is no readable GGUF file ({error}); fetch it "
                "again"
            ) from error
        self.architecture = str(self._value("general.architecture") or "unknown")

    @property
    def tensor_names(self) -> Iterable[str]:
        return self._header.tensors.keys()

    def number(self, name: str, default: float) -> float:
        """The number under `<architecture>.<name>`: the shortest decimal that float32 keeps as it
        is stored, which is what people wrote: 1e-05, not 9.99999974e-06."""
        value = self._value(f"{self.architecture}.{name}")
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refusal(f"{name} is {value!r:.40}, expected a number")
        if not math.isfinite(value):
            raise self.refusal(f"{name} is {value}, expected a finite number")
        return float(value) if isinstance(value, int) else _shortest(value)

    def count(self, name: str, default: int) -> int:
        """A whole number of at least 1."""
        value = self.number(name, default)
        if value < 1 or value != int(value):
            raise self.refusal(f"{name} is {value:g}, expected a whole number of at least 1")
        return int(value)

    def text(self, name: str, default: str) -> str:
        value = self._value(f"{self.architecture}.{name}")
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.refusal(f"{name} is {value!r:.40}, expected a text")
        return value

    def token_id(self, name: str) -> int | None:
        """The id under `tokenizer.ggml.<name>_token_id`, None where there is none."""
        value = self._value(f"tokenizer.ggml.{name}_token_id")
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def vector(self, name: str) -> Float[Tensor, " n"] | None:
        """A small float32 tensor, None where there is none of this name."""
        info = self._header.tensors.get(name)
        if info is None:
            return None
        end = info.offset + 4 * math.prod(info.shape)
        if info.stored != _FLOAT32 or len(info.shape) != 1 or end > len(self._data):
            raise self.refusal(f"tensor {name} is no whole vector of float32")
        return torch.frombuffer(bytearray(self._data[info.offset : end]), dtype=torch.float32)

    def refusal(self, what: str) -> CheckpointError:
        """The error for a file that would not be computed as llama.cpp does."""
        return CheckpointError(
            f"{self._path} can't be dequantized: {what}; use the model's own folder of safetensors,"
            " or fetch the file again"
        )

    def _value(self, key: str) -> Scalar | tuple[Scalar, ...] | None:
        field = self._header.fields.get(key)
        return None if field is None else field.value


def _shortest(value: float) -> float:
    """The shortest decimal that is the same number in float32; `value` where none is."""
    for digits in range(1, 10):
        rounded = float(f"{value:.{digits}g}")
        if struct.pack("<f", rounded) == struct.pack("<f", value):
            return rounded
    return value
