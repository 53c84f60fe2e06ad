"""`LiveFeatures`: what the frozen target says about a packed row, computed when it is asked for.

The features are those that the drafter is given at inference; nothing is kept from row to row.
Features from disk are in `cache.py`.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from blockdraft.decoding.interfaces import TargetModel
from blockdraft.errors import ConfigError, NumericsError, RequestError, UnsupportedTarget
from blockdraft.native.reading import PASS_ROWS, PackedReader
from blockdraft.native.target import NativeTarget
from blockdraft.target.reading import ReadableTarget, Readout
from blockdraft.target.rows import check_fed, check_taps
from blockdraft.training.batches.batch import Batch, Sample, TargetFeatures

TRIAL_LEN = 6
MOST_HEAD_ERROR = 0.05
"""Of the trial of `final`, relative to the largest logit: far above what bfloat16 rounds."""


class DocumentReader(Protocol):
    """Reads several documents, none of which sees another."""

    def read(self, documents: Sequence[Int[Tensor, " tokens"]]) -> Readout: ...


class LiveFeatures:
    """A FeatureSource that runs the target; no gradient reaches it.

    `final` also gives what the LM head is given. `dtype` casts what comes out (None = as the target
    computes). `pass_rows` bounds a pass of the native decoder.
    """

    def __init__(
        self,
        target: TargetModel,
        taps: Sequence[int],
        *,
        final: bool = False,
        dtype: torch.dtype | None = None,
        pass_rows: int = PASS_ROWS,
    ) -> None:
        """Raises ConfigError for taps that are no layers, UnsupportedTarget where `final` can't
        be had from `target` or would not give its logits.
        """
        if not taps:
            raise ConfigError("no layer is tapped: name at least one (taps)")
        check_taps(taps, target.spec)
        self._spec = target.spec
        self._dtype = dtype
        self._reader = _reader(target, tuple(taps), final, pass_rows)
        if final:
            _try_final(target, self._reader)

    def features(self, batch: Batch) -> TargetFeatures:
        """Features of all rows of `batch`.

        Raises RequestError for a sample that can't be fed and NumericsError for states that are
        not finite, both naming the sample's row.
        """
        documents = [torch.tensor(sample.ids) for sample in batch.samples]
        for sample, document in zip(batch.samples, documents, strict=True):
            try:
                check_fed(document, 0, self._spec)
            except RequestError as error:
                raise RequestError(f"sample row {sample.row}: {error}") from error
        with torch.no_grad():
            read = self._reader.read(documents)
            taps = read.taps if self._dtype is None else read.taps.to(self._dtype)
            final = read.final
            if final is not None and self._dtype is not None:
                final = final.to(self._dtype)
        found = TargetFeatures(taps, final)
        check_finite(found, batch.samples)
        return found


def check_finite(features: TargetFeatures, samples: Sequence[Sample]) -> None:
    """Raise NumericsError, naming the samples' rows, for features that are NaN or infinite."""
    parts = [part for part in features if part is not None]
    if all(bool(part.isfinite().all()) for part in parts):
        return
    bad_rows: list[int] = []
    start = 0
    for sample in samples:
        end = start + len(sample.ids)
        if not all(bool(part[start:end].isfinite().all()) for part in parts):
            bad_rows.append(sample.row)
        start = end
    shown = ", ".join(str(row) for row in bad_rows[:8]) + (", ..." if len(bad_rows) > 8 else "")
    raise NumericsError(
        f"the target's hidden states of sample row {shown} are not finite: leave the sample out, "
        "or run the target in float32"
    )


class SerialReader(NamedTuple):
    """Reads documents one by one through the seam that every target has: `open` and `prefill`."""

    target: TargetModel
    taps: tuple[int, ...]

    def read(self, documents: Sequence[Int[Tensor, " tokens"]]) -> Readout:
        rows: list[Tensor] = []
        for document in documents:
            features = self.target.open(self.taps).prefill(document).features
            assert features is not None, "a target with taps yields features"
            rows.append(features)
        return Readout(torch.cat(rows), None)


class SerialFinalReader(NamedTuple):
    """The same for targets that also tell the input of their head."""

    target: ReadableTarget
    taps: tuple[int, ...]

    def read(self, documents: Sequence[Int[Tensor, " tokens"]]) -> Readout:
        reads = [self.target.read(document, self.taps) for document in documents]
        finals = [read.final for read in reads if read.final is not None]
        return Readout(torch.cat([read.taps for read in reads]), torch.cat(finals))


def _reader(
    target: TargetModel, taps: tuple[int, ...], final: bool, pass_rows: int
) -> DocumentReader:
    if isinstance(target, NativeTarget):
        return PackedReader(target.model, taps, final=final, pass_rows=pass_rows)
    if not final:
        return SerialReader(target, taps)
    if isinstance(target, ReadableTarget):
        return SerialFinalReader(target, taps)
    raise UnsupportedTarget(
        f"{target.spec.name} does not tell what its LM head is given, so soft labels can't be "
        "made: train with hard labels, or use a native or transformers target"
    )


def _try_final(target: TargetModel, reader: DocumentReader) -> None:
    """Raise UnsupportedTarget unless the head makes the target's own logits of `final`.

    A final soft-cap or logit scale, as Gemma 2 has, is not in the head.
    """
    ids = _trial_ids(target.spec.vocab_size)
    with torch.no_grad():
        final = reader.read([ids]).final
        assert final is not None
        logits: Float[Tensor, "1 vocab"] = target.head()(final[-1:]).float()
        expected = target.open().prefill(ids).logits.float()
    error = float((logits - expected).abs().max() / expected.abs().max().clamp_min(1e-6))
    if not error < MOST_HEAD_ERROR:
        raise UnsupportedTarget(
            f"the LM head of {target.spec.name} does not give its logits by itself (they differ by "
            f"{error:.0%}; a soft-cap or a scale comes after it): train with hard labels"
        )


def _trial_ids(vocab_size: int) -> Int[Tensor, " trial"]:
    return torch.tensor([(7 * i + 3) % vocab_size for i in range(TRIAL_LEN)])
