"""What `blockdraft tune --what-if` does: gathers assumptions, predicts, prints.

The formula is `tuning/predict.py`, tables are `tune_report.py`.
"""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from blockdraft.cli.console import emit_json
from blockdraft.cli.tune import levels_of
from blockdraft.cli.tune_report import print_what_if
from blockdraft.engine.costs import CostModel
from blockdraft.errors import ConfigError
from blockdraft.tuning.bench_figures import BenchFigures
from blockdraft.tuning.predict import Answers
from blockdraft.tuning.survival import Survival
from blockdraft.tuning.what_if import MS, WhatIf, costs_by_hand, predict_table, what_if_document

BY_HAND = ("plain_step_ms", "verify_ms", "draft_ms", "overhead_ms")

Sized = Sequence[tuple[int | None, float]]


def calculate(args: Namespace) -> int:
    """Run the command. Raises ConfigError for assumptions that contradict each other."""
    file: Path | None = args.costs
    bench = None if file is None else BenchFigures(file)
    survival, acceptance_source = _acceptance(args, bench)
    answers = _answers(args)
    costs, costs_source = _costs(args, bench, survival.widest)
    widths: tuple[int, ...] = args.widths or ()
    order = WhatIf(
        survival=survival,
        acceptance_source=acceptance_source,
        costs=costs,
        costs_source=costs_source,
        answers=answers,
        levels=levels_of(args),
        widths=widths,
    )
    predictions = predict_table(order)
    if args.json:
        emit_json(what_if_document(order, predictions), indent=2)
    else:
        print_what_if(order, predictions)
    return 0


def _acceptance(args: Namespace, bench: BenchFigures | None) -> tuple[Survival, str]:
    tau: float | None = args.tau
    shares: tuple[float, ...] | None = args.acceptance
    block_size: int | None = args.block_size
    if tau is not None:
        if block_size is None:
            raise ConfigError("--tau is of blocks of some size; give it as --block-size")
        return Survival.of_tau(tau, block_size), f"tau {tau:g} of {block_size}-token blocks"
    if block_size is not None:
        raise ConfigError("--block-size goes with --tau; the acceptance by position has its own")
    if shares is not None:
        return Survival.of_positions(shares), "given by position"
    found = None if bench is None else bench.survival()
    if found is None:
        raise ConfigError(
            "--what-if needs to know what is accepted: give --tau with --block-size, or "
            "--acceptance (blockdraft bench and eval measure both)"
        )
    return found, f"measured by the bench of {args.costs}"


def _answers(args: Namespace) -> Answers:
    prefill, drafter = args.prefill_ms, args.drafter_prefill_ms
    num_tokens: int | None = args.answer_tokens
    if num_tokens is None and (prefill or drafter):
        raise ConfigError("a prefill weighs by the answer after it; give --answer-tokens too")
    return Answers(
        prefill_seconds=(prefill or 0.0) * MS,
        drafter_prefill_seconds=(drafter or 0.0) * MS,
        num_tokens=num_tokens,
    )


def _costs(args: Namespace, bench: BenchFigures | None, block_size: int) -> tuple[CostModel, str]:
    by_hand = [name for name in BY_HAND if getattr(args, name) is not None]
    if bench is not None:
        if by_hand:
            raise ConfigError(
                f"costs come from one place: --costs, or --{by_hand[0].replace('_', '-')}"
            )
        return bench.costs(), f"measured by the bench of {args.costs}"
    if not by_hand:
        from blockdraft.cli.tune_run import measure_pair_costs

        return measure_pair_costs(args), "measured here, on the pair"
    if args.plain_step_ms is None or args.draft_ms is None:
        raise ConfigError("costs by hand need --plain-step-ms and --draft-ms, at least")
    verify: Sized = args.verify_ms or ()
    draft: Sized = args.draft_ms
    if min(args.plain_step_ms, *(ms for _, ms in (*verify, *draft))) <= 0:
        raise ConfigError(
            "--plain-step-ms, --verify-ms and --draft-ms: a pass takes more than 0 ms; give what "
            "blockdraft bench measures"
        )
    costs = costs_by_hand(
        args.plain_step_ms,
        {block_size if rows is None else rows: ms for rows, ms in verify},
        {block_size if width is None else width: ms for width, ms in draft},
        args.overhead_ms or 0.0,
    )
    return costs, "given by hand; sizes between and beyond are drawn out"
