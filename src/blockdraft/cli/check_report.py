"""What `blockdraft check` does: gather, judge, decode a few prompts, and say what was found.

The rules are in `blockdraft.check`.
"""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, replace
from textwrap import fill

import torch

from blockdraft.api import choose_drafter
from blockdraft.check import (
    ENGINE_NAMES,
    ENGINES,
    Engine,
    Finding,
    LiveOrder,
    Located,
    PairFacts,
    gather_pair,
    has_error,
    judge_pair,
    locate_drafter,
    locate_target,
    run_live,
)
from blockdraft.check.facts import LiveOutcome
from blockdraft.cli.console import emit, emit_json, say_progress
from blockdraft.cli.progress import progress_bar
from blockdraft.cli.prompts import builtin_prompts
from blockdraft.errors import ConfigError
from blockdraft.evaluation import AnswerCount

NOT_TRAINED = ("none", "prompt-lookup")
BYTE_PROMPTS = ((1, 2, 3), (3, 1, 2), (2, 3, 1), (1, 3, 2))
"""For targets without a tokenizer."""


def check_and_report(args: Namespace) -> int:
    """Run the command; 1 when a finding for an engine asked for is an error."""
    if args.drafter in NOT_TRAINED:
        raise ConfigError(
            f"--drafter {args.drafter} has no checkpoint to check; give a trained drafter"
        )
    engines = chosen_engines(args.engine)
    # First, since a mistyped target has no built-in drafter either, which is not what is wrong.
    target = locate_target(args.target, args.revision)
    name = choose_drafter(args.target, args.drafter, revision=args.drafter_revision)
    drafter = locate_drafter(name, args.drafter_revision)
    pair = gather_pair(target, drafter, dict(args.template_arg))
    if not args.no_live:
        pair = replace(pair, live=measure(args, pair, target, drafter))
    findings = judge_pair(pair, engines)
    if args.json:
        emit_json(report_json(pair, engines, findings), indent=2)
    else:
        emit(report_text(pair, engines, findings))
    return int(has_error(findings))


def chosen_engines(asked: Sequence[Engine] | None) -> tuple[Engine, ...]:
    """The engines asked for, in the order of the report; all when none was named."""
    return tuple(engine for engine in ENGINES if asked is None or engine in asked)


def measure(args: Namespace, pair: PairFacts, target: Located, drafter: Located) -> LiveOutcome:
    """The live check on the prompts that ship with the package."""
    threads: int | None = args.threads
    if threads is not None:
        torch.set_num_threads(threads)
    prompts: list[str | tuple[int, ...]] = [r.turns[0] for r in builtin_prompts().records]
    if pair.target.format == "hf" and pair.target.tokenizer is None:
        prompts = list(BYTE_PROMPTS)
    say_progress(f"decoding {len(prompts)} prompts with {pair.drafter.source}")
    with progress_bar(len(prompts), "prompts") as advance:

        def count(answer: AnswerCount) -> None:
            advance()

        order = LiveOrder(
            prompts=prompts, max_new_tokens=args.max_new_tokens, dtype=args.dtype, progress=count
        )
        return run_live(pair, target, drafter, order)


def report_json(
    pair: PairFacts, engines: Sequence[Engine], findings: Sequence[Finding]
) -> dict[str, object]:
    """One document: the pair, the engines, every finding, and what the live check measured."""
    return {
        "target": pair.target.source,
        "drafter": pair.drafter.source,
        "engines": {engine: ENGINE_NAMES[engine] for engine in engines},
        "usable": {engine: _is_usable(engine, findings) for engine in engines},
        "findings": [finding.to_json() for finding in findings],
        "live": None if pair.live is None else asdict(pair.live),
        "recorded_tau": pair.drafter.record.tau,
    }


def report_text(pair: PairFacts, engines: Sequence[Engine], findings: Sequence[Finding]) -> str:
    """Findings, errors first, then a line for each engine; without a final newline."""
    lines = [f"target   {pair.target.source}", f"drafter  {pair.drafter.source}", ""]
    for finding in findings:
        where = ENGINE_NAMES[finding.engine]
        lines.append(f"{finding.code} {finding.severity}: {where}")
        lines.append(_indented(finding.happens))
        if finding.remedy != "Nothing.":
            lines.append(_indented(f"-> {finding.remedy}"))
    if findings:
        lines.append("")
    width = max(len(ENGINE_NAMES[engine]) for engine in engines)
    for engine in engines:
        lines.append(f"{ENGINE_NAMES[engine]:<{width}}  {_summary(engine, findings)}")
    return "\n".join(lines)


def _summary(engine: Engine, findings: Sequence[Finding]) -> str:
    own = [found for found in findings if found.engine in ("all", engine)]
    counts = [
        f"{number} {kind}{'s' if number > 1 else ''}"
        for kind in ("error", "warning")
        if (number := sum(found.severity == kind for found in own))
    ]
    return ", ".join(counts) or "ready"


def _is_usable(engine: Engine, findings: Sequence[Finding]) -> bool:
    return not has_error([found for found in findings if found.engine in ("all", engine)])


def _indented(text: str) -> str:
    return fill(
        text,
        width=96,
        initial_indent="  ",
        subsequent_indent="  ",
        break_on_hyphens=False,
        break_long_words=False,
    )
