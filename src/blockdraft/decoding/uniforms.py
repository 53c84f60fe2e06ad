"""The random numbers of a request: one uniform for each output position and purpose.

Indexing by output position, never by verified row, is what makes a seeded answer independent of
drafter, width and batch (docs/losslessness.md). No number is ever used for two purposes.
"""

import hashlib
from typing import Literal

import torch

Purpose = Literal["token", "draft", "residual"]
_CHUNK = 64


class Uniforms:
    """Lazily drawn float64 uniforms in [0, 1), the same for the same seed in any order of access.

    "token" decides the target's own draw (or the acceptance test of a sampled draft), "draft" draws
    from the drafter's proposal, "residual" draws the replacement of a rejected sampled draft.
    """

    def __init__(self, seed: int) -> None:
        self._streams = {
            "token": _Stream(seed, "token"),
            "draft": _Stream(seed, "draft"),
            "residual": _Stream(seed, "residual"),
        }

    def at(self, purpose: Purpose, position: int) -> float:
        """The uniform of output position `position` (0 = the first emitted token)."""
        return self._streams[purpose].at(position)


class _Stream:
    def __init__(self, seed: int, purpose: str) -> None:
        digest = hashlib.blake2b(f"{purpose}:{seed}".encode(), digest_size=8).digest()
        self._generator = torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
        self._drawn: list[float] = []

    def at(self, position: int) -> float:
        while position >= len(self._drawn):
            chunk = torch.rand(_CHUNK, generator=self._generator, dtype=torch.float64)
            self._drawn += [float(u) for u in chunk]
        return self._drawn[position]
