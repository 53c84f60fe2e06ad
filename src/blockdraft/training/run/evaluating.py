"""Acceptance length during training: simulated over held-out answers, or by real decoding.

Both count with `AcceptanceStats`, so that they can be compared; what real decoding adds are
kernels, caches and dtype, which is how a mismatch between training and serving shows.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from blockdraft.api import encode_prompt
from blockdraft.decoding import AcceptanceStats, SamplingParams
from blockdraft.drafter import BlockDrafter, DFlashDrafter
from blockdraft.evaluation.acceptance import Progress, measure_acceptance
from blockdraft.evaluation.prompts import read_eval_prompts
from blockdraft.training.batches.packing import PackingConfig
from blockdraft.training.config import EvalSection
from blockdraft.training.run.setup import Training
from blockdraft.training.run.watch import EvalReport
from blockdraft.training.simulate import DraftBatch, pool, simulate


class Evaluator:
    """Evaluates the weights it is given, always on the same answers and prompts."""

    def __init__(self, training: Training, section: EvalSection, packing: PackingConfig) -> None:
        """Raises ConfigError or RequestError for prompts to decode that can't be read or fed."""
        self._training = training
        self._section = section
        self._packing = packing
        self._prompts: list[tuple[int, ...]] = []
        self._categories: list[str] = []
        if section.decode_every:
            assert section.prompts is not None
            rows = read_eval_prompts(Path(section.prompts)).prompts[: section.decode_limit]
            self._prompts = [encode_prompt(training.target, row.content) for row in rows]
            self._categories = [row.category for row in rows]

    def simulate(self, step: int, draft: DraftBatch) -> EvalReport | None:
        """Walks over the held-out answers; None without any. What `draft` raises ends it."""
        heldout = self._training.data.heldout
        if not len(heldout):
            return None
        started = time.perf_counter()
        longest = max(len(sample.ids) for sample in heldout)
        # Every position is an anchor here; rows are bounded by what a training row holds.
        room = replace(self._packing, row_tokens=max(self._packing.row_tokens, longest))
        block_size = self._training.drafter.config.block_size
        target = self._training.target
        walks = simulate(
            draft,
            heldout,
            block_size,
            room,
            stop_ids=target.spec.stop_ids,
            device=target.device,
        )
        return EvalReport(
            step=step,
            kind="simulated",
            stats=pool(walks),
            categories=by_category(heldout.categories, walks),
            seconds=time.perf_counter() - started,
        )

    def decode(
        self, step: int, tensors: Mapping[str, Tensor], progress: Progress | None = None
    ) -> EvalReport:
        """Greedy decoding of the first prompts of a file, with the reference loop and the weights
        as they will be served. `progress` is told of each answer; what it raises ends it."""
        started = time.perf_counter()
        params = SamplingParams(temperature=0.0, max_new_tokens=self._section.max_new_tokens)
        drafter = serving_drafter(self._training, tensors)
        result = measure_acceptance(
            self._training.target, drafter, self._prompts, params, progress=progress
        )
        walks = [answer.stats for answer in result.answers]
        return EvalReport(
            step=step,
            kind="decoded",
            stats=result.stats,
            categories=by_category(self._categories, walks),
            seconds=time.perf_counter() - started,
        )


def by_category(
    categories: Sequence[str | None], walks: Sequence[AcceptanceStats]
) -> dict[str, float]:
    """The acceptance length of each category, pooled; those without a step are left out."""
    grouped: dict[str, list[AcceptanceStats]] = {}
    for category, stats in zip(categories, walks, strict=True):
        grouped.setdefault(category or "none", []).append(stats)
    taus = {name: pool(some).tau for name, some in sorted(grouped.items())}
    return {name: tau for name, tau in taus.items() if tau is not None}


def serving_drafter(training: Training, tensors: Mapping[str, Tensor]) -> DFlashDrafter:
    """The drafter as it will be served: weights in the target's dtype, on its device."""
    target, vocabulary = training.target, training.vocabulary
    with torch.device("meta"):
        model = BlockDrafter(training.drafter.config)
    cast = {name: tensor.to(target.device, target.dtype) for name, tensor in tensors.items()}
    model.load_state_dict(cast, strict=True, assign=True)
    d2t = None if vocabulary is None else vocabulary.d2t.to(target.device)
    return DFlashDrafter(model.eval().requires_grad_(False), target, d2t=d2t)
