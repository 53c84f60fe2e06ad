"""`PackedReader`: what the native decoder says about whole documents, several of them in one pass.

For those who learn from a target: hidden states of all rows, no logits and no gradients. Nothing
is committed; decoding is in `target.py` and in the engine.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from blockdraft.native.model import NativeModel
from blockdraft.native.pool import TokenPool
from blockdraft.native.segments import Segment
from blockdraft.target.reading import Readout

PASS_ROWS = 1024
"""Rows of a pass: large enough for the matrix units, small enough for the activations to stay in
caches."""


class Piece(NamedTuple):
    """Tokens [start, end) of one document."""

    document: int
    start: int
    end: int


def plan_passes(lengths: Sequence[int], pass_rows: int) -> list[list[Piece]]:
    """Documents in order, as many in a pass as fit; a longer one gets passes of its own.

    Its pieces follow each other, one a pass.
    """
    passes: list[list[Piece]] = []
    filling: list[Piece] = []
    room = pass_rows
    for document, length in enumerate(lengths):
        if length > room and filling:
            passes.append(filling)
            filling, room = [], pass_rows
        if length > pass_rows:
            starts = range(0, length, pass_rows)
            passes += [[Piece(document, s, min(s + pass_rows, length))] for s in starts]
            continue
        filling.append(Piece(document, 0, length))
        room -= length
    return [*passes, filling] if filling else passes


class PackedReader:
    """Reads documents with one pool of keys and values, kept from call to call.

    pool: document by document of a pass, each from its first token; a long one lies at row 0.
    """

    def __init__(
        self, model: NativeModel, taps: Sequence[int], *, final: bool, pass_rows: int = PASS_ROWS
    ) -> None:
        self._model = model
        self._final = final
        self._pass_rows = pass_rows
        last = model.config.num_layers - 1
        # The head's input is the norm of what the last layer yields, so that layer is tapped too.
        self._taps = (*taps, last) if final else tuple(taps)
        self._pool: TokenPool | None = None

    def read(self, documents: Sequence[Int[Tensor, " tokens"]]) -> Readout:
        """Rows of all documents, one document after the other; none sees another."""
        lengths = [document.numel() for document in documents]
        pool = self._pool_of(max(*lengths, min(sum(lengths), self._pass_rows)))
        taps: list[Tensor] = []
        finals: list[Tensor] = []
        width = self._model.config.hidden_size
        for pieces in self._passes(lengths):
            features = self._feed(documents, pieces, pool)
            if self._final:
                finals.append(self._model.weights.norm(features[:, -width:].contiguous()))
                features = features[:, :-width]
            taps.append(features)
        return Readout(torch.cat(taps), torch.cat(finals) if finals else None)

    def _passes(self, lengths: Sequence[int]) -> list[list[Piece]]:
        passes = plan_passes(lengths, self._pass_rows)
        if self._model.invariant_rows is None:
            return passes
        # A batch-invariant pass serves one request.
        return [[piece] for pieces in passes for piece in pieces]

    def _feed(
        self, documents: Sequence[Tensor], pieces: Sequence[Piece], pool: TokenPool
    ) -> Tensor:
        segments: list[Segment] = []
        base = 0
        for piece in pieces:
            segments.append(Segment(base, piece.start, piece.end - piece.start))
            base += piece.end
        ids = torch.cat([documents[p.document][p.start : p.end] for p in pieces])
        features = self._model.forward(ids, segments, pool, taps=self._taps, asked=[]).features
        assert features is not None, "nothing is tapped"
        return features

    def _pool_of(self, num_rows: int) -> TokenPool:
        if self._pool is None or self._pool.num_rows < num_rows:
            self._pool = self._model.new_pool(num_rows)
        return self._pool
