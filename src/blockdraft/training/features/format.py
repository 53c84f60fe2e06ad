"""How cached features look: what a cache is for, its numbers in bf16 or fp8, and its size.

Values only; files are in `index.py`, `shards.py` and `cache.py`.

Shape legend: feature = num_taps * hidden, parts = tensors of `hidden` numbers a token: one for each
tap.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from blockdraft.errors import ConfigError

FeatureDtype = Literal["bf16", "fp8"]
STORED = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}
LARGEST_FP8 = 448.0
SCALE_BYTES = 4
SAMPLE_BYTES = 64
"""Of the index, for each sample: row, offset, hash, as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureKind:
    """What a cache holds: whose states, of which layers, how stored.

    `fingerprint` tells targets apart by weights (`fingerprint_of`); `target` is for people.
    """

    target: str
    fingerprint: str
    hidden_size: int
    taps: tuple[int, ...]
    dtype: FeatureDtype = "bf16"
    final: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in STORED:
            raise ConfigError(f"feature dtype {self.dtype!r} is unknown: use bf16 or fp8")
        if not self.taps:
            raise ConfigError("no layer is tapped: name at least one, like --taps 1,8,14,20,27")

    @property
    def bytes_per_token(self) -> int:
        """Of taps, scales and final states."""
        parts = len(self.taps) + self.final
        if self.dtype == "bf16":
            return 2 * parts * self.hidden_size
        return parts * (self.hidden_size + SCALE_BYTES)

    def num_bytes(self, num_tokens: int, num_samples: int) -> int:
        """Disk space of a whole cache, to a thousandth."""
        return num_tokens * self.bytes_per_token + num_samples * SAMPLE_BYTES


class Stored(NamedTuple):
    """Numbers as they lie on disk; `scale` is None for bf16."""

    values: Tensor
    scale: Float32[Tensor, "tokens parts"] | None


def encode(
    features: Float[Tensor, "tokens feature"], dtype: FeatureDtype, num_parts: int
) -> Stored:
    """Round to bf16, or to fp8 (e4m3) with one scale for each token and tap.

    A few large states of one layer would push those of the others out of fp8's range if they
    shared a scale.
    """
    if dtype == "bf16":
        return Stored(features.to(torch.bfloat16).cpu(), None)
    parts = features.float().reshape(len(features), num_parts, features.shape[1] // num_parts)
    scale = parts.abs().amax(-1) / LARGEST_FP8
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    rounded = (parts / scale.unsqueeze(-1)).clamp(-LARGEST_FP8, LARGEST_FP8)
    return Stored(rounded.reshape(features.shape).to(torch.float8_e4m3fn).cpu(), scale.cpu())


def decode(stored: Stored, dtype: torch.dtype) -> Float[Tensor, "tokens feature"]:
    """The numbers that `encode` rounded, in `dtype`."""
    if stored.scale is None:
        return stored.values.to(dtype)
    num_tokens, num_parts = stored.scale.shape
    wide = stored.values.float().view(num_tokens, num_parts, stored.values.shape[1] // num_parts)
    return (wide * stored.scale.unsqueeze(-1)).reshape(stored.values.shape).to(dtype)


def hash_ids(ids: Sequence[int]) -> str:
    """64 bits of SHA-256 over the ids, each as eight little-endian bytes: 16 hex digits."""
    return hashlib.sha256(torch.tensor(ids).numpy().astype("<i8").tobytes()).hexdigest()[:16]


def digest_of(samples: Iterable[tuple[int, str]]) -> str:
    """One hash of all (row, hash of ids), in order."""
    digest = hashlib.sha256()
    for row, ids_hash in samples:
        digest.update(f"{row} {ids_hash}\n".encode())
    return digest.hexdigest()[:16]


def plan_shards(lengths: Sequence[int], tokens_per_shard: int) -> list[range]:
    """Consecutive samples, as many in a shard as fit, at least one."""
    shards: list[range] = []
    first, filled = 0, 0
    for sample, length in enumerate(lengths):
        if filled and filled + length > tokens_per_shard:
            shards.append(range(first, sample))
            first, filled = sample, 0
        filled += length
    return [*shards, range(first, len(lengths))] if filled else shards


def parse_feature_dtype(name: str) -> FeatureDtype:
    """A name of the command line or of an index; ConfigError for an unknown one."""
    if name not in STORED:
        raise ConfigError(f"feature dtype {name!r} is unknown: use bf16 or fp8")
    return cast(FeatureDtype, name)
