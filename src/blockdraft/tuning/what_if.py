"""The what-if calculator: a table of predictions from numbers that a user has.

Arithmetic is `predict.py`; a bench's results are read by `bench_figures.py`. It measures nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from blockdraft.engine.costs import CostModel
from blockdraft.engine.width import candidate_widths
from blockdraft.errors import ConfigError
from blockdraft.tuning.predict import Answers, Prediction, predict
from blockdraft.tuning.survival import Survival

SCHEMA = "blockdraft.what-if"
VERSION = 1
MS = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What is assumed. The sources say in words where acceptance and costs come from."""

    survival: Survival
    acceptance_source: str
    costs: CostModel
    costs_source: str
    answers: Answers
    levels: tuple[int, ...]
    widths: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.levels or min(self.levels) < 1:
            raise ConfigError("--concurrency holds no level above 0; give some, like 1 4 8")
        over = [width for width in self.widths if not 2 <= width <= self.survival.widest]
        if over:
            raise ConfigError(
                f"--widths {over[0]}: widths are 2 to {self.survival.widest}, the anchor and the "
                "drafts of which the acceptance is known"
            )

    @property
    def all_widths(self) -> tuple[int, ...]:
        return self.widths or candidate_widths(self.survival.widest)


def predict_table(order: WhatIf) -> list[Prediction]:
    """Every width at every concurrency, plain decoding first at each."""
    return [
        predict(width, level, order.survival, order.costs, order.answers)
        for level in order.levels
        for width in (1, *order.all_widths)
    ]


def costs_by_hand(
    plain_ms: float,
    verify_ms: Mapping[int, float],
    draft_ms: Mapping[int, float],
    overhead_ms: float = 0.0,
) -> CostModel:
    """From milliseconds of passes: plain of 1 row, `verify_ms` by rows, `draft_ms` by block width.

    Drafting for n requests is taken to cost what one block of n times the rows costs. Raises
    ConfigError for what can't be.
    """
    if 1 in verify_ms:
        raise ConfigError(
            "--verify-ms: a pass of 1 row is a plain step; give it as --plain-step-ms"
        )
    verify = {1: plain_ms * MS} | {rows: ms * MS for rows, ms in verify_ms.items()}
    draft = {(width, 1): ms * MS for width, ms in draft_ms.items()}
    return CostModel.fit(verify, draft, overhead_ms * MS)


def best_of(predictions: Sequence[Prediction]) -> dict[int, Prediction]:
    """For each concurrency the width with the highest speed-up; plain decoding where none gains."""
    found: dict[int, Prediction] = {}
    for one in predictions:
        best = found.get(one.concurrency)
        if best is None or one.speedup > best.speedup:
            found[one.concurrency] = one
    return found


def what_if_document(order: WhatIf, predictions: Sequence[Prediction]) -> dict[str, object]:
    """The assumptions and the table as JSON (docs/tuning.md)."""
    widest = order.survival.widest
    answers = order.answers
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "acceptance": {
            "source": order.acceptance_source,
            "block_size": widest,
            "tau": order.survival.tau(widest),
            "by_position": list(order.survival.at(widest)),
        },
        "costs": {
            "source": order.costs_source,
            "verify": [{"rows": rows, "seconds": s} for rows, s in order.costs.verify.points],
            "draft": [
                {"requests": requests, "width": width, "seconds": seconds}
                for width, curve in order.costs.draft
                for requests, seconds in curve.points
            ],
            "step_overhead_seconds": order.costs.overhead_seconds,
        },
        "answers": {
            "tokens": answers.num_tokens,
            "prefill_seconds": answers.prefill_seconds,
            "drafter_prefill_seconds": answers.drafter_prefill_seconds,
        },
        "predictions": [one._asdict() for one in predictions],
        "best": [one._asdict() for one in best_of(predictions).values()],
    }
