"""`Session`: one run of `blockdraft bench` in process, from the first level to the last document.

Measuring is `bench/in_process`, the document `bench/results.py`.
"""

import os
import platform
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

import torch

from blockdraft.bench import RequestRecord, ResultsFolder
from blockdraft.bench.figures import acceptance_figures
from blockdraft.bench.in_process import InProcessBench, Turn
from blockdraft.bench.in_process.energy import EnergyMeter
from blockdraft.bench.in_process.pass_costs import costs_document
from blockdraft.bench.in_process.quality import Guard, quality_document
from blockdraft.bench.in_process.store import Order, read_stored
from blockdraft.bench.latency import speed_of
from blockdraft.bench.levels import LevelResult
from blockdraft.bench.report.page import FILE_NAME as PAGE_NAME
from blockdraft.bench.report.page import write_page
from blockdraft.bench.report.reading import parse_document
from blockdraft.bench.results import Run, lane_document, run_document
from blockdraft.bench.workload import workload_document
from blockdraft.cli.bench_command import command_line, resume_command
from blockdraft.cli.bench_models import BenchModels
from blockdraft.cli.bench_presets import Preset
from blockdraft.cli.bench_stack import EAGLE3_UNKNOWN, stack_document, unknown_stack
from blockdraft.cli.console import say, say_progress
from blockdraft.cli.engines import engine_config
from blockdraft.cli.hardware import describe_hardware
from blockdraft.cli.progress import progress_bar
from blockdraft.drafter.eagle3 import Eagle3Drafter
from blockdraft.engine import WidthMode
from blockdraft.errors import ConfigError
from blockdraft.evaluation.difference import NEAR_TIE
from blockdraft.native import NativeTarget

MOST_OF_TIME = 0.01
"""Share of a run that writing may take."""


@dataclass(slots=True)
class Session:
    """One run of the command, with what its document needs.

    `load_average` is the machine's before anything was measured, the highest one of a run that was
    gone on with. `before`: seconds of earlier parts.
    """

    args: Namespace
    preset: Preset
    models: BenchModels
    bench: InProcessBench
    meter: EnergyMeter
    folder: ResultsFolder | None
    started: float
    load_average: float | None
    before: float = 0.0
    began: float = 0.0

    def resume(self) -> None:
        """Take over what --out holds. Raises ConfigError where it is of another order."""
        order = Order(
            conditions=self.conditions(),
            workload=self.workload(),
            settings=self.settings(),
            lanes=[lane_document(lane.info) for lane in self.bench.plan.lanes],
        )
        stored = read_stored(Path(self.args.out), order, self.bench.plan.arrivals)
        if stored is None:
            return
        self.bench.resume(stored.levels)
        self.bench.costs = stored.costs
        self.started, self.before = stored.started, stored.seconds
        loads = [load for load in (stored.load_average, self.load_average) if load is not None]
        self.load_average = max(loads, default=None)
        say(f"{len(self.bench.levels)} of {len(self.bench.plan.turns)} levels are there already")

    def measure(self) -> None:
        """Every level that is left; the document is kept in between."""
        self.began = time.time()
        turns, bench = self.bench.remaining, self.bench
        if not turns:
            return
        say(f"opening {len(bench.plan.lanes)} lanes and measuring what passes cost")
        bench.open(engine_config(self.args, WidthMode()), say_progress)
        num_done, num_all = len(bench.levels), len(bench.plan.turns)
        due = 0.0
        for number, turn in enumerate(turns, start=num_done + 1):
            level = self._measure_turn(turn, f"[{number}/{num_all}] {_title(turn)}")
            say(f"[{number}/{num_all}] {_title(turn)}: {_summary(level)}")
            begun = time.monotonic()
            if self.folder is not None and begun >= due and number < num_all:
                self.keep(self.document(is_over=False))
                ended = time.monotonic()
                due = ended + (ended - begun) / MOST_OF_TIME

    def _measure_turn(self, turn: Turn, title: str) -> LevelResult:
        with progress_bar(len(self.bench.plan.jobs(turn.arrival)), title) as advance:

            def on_record(record: RequestRecord) -> None:
                advance()

            return self.bench.measure(turn, on_record)

    def document(self, *, is_over: bool) -> dict[str, object]:
        """Of what was measured so far; `is_over`: with the parts that are made at the end."""
        bench = self.bench
        costs = bench.costs
        quality = self._quality() if is_over else []
        if is_over and self.models.drafters:
            say_progress("checking what serving engines make of the pair")
        return run_document(
            Run(
                mode="in-process",
                preset=self.preset.name,
                started=self.started,
                seconds=self.before + (time.time() - self.began if self.began else 0.0),
                conditions=self.conditions(),
                workload=self.workload(),
                settings=self.settings(),
                lanes=[lane.info for lane in bench.plan.lanes],
                levels=bench.levels,
                is_complete=bench.is_complete,
                costs=None if costs is None else costs_document(costs, _overhead(bench.levels)),
                quality=quality,
                energy={"source": self.meter.source, "reason": self.meter.reason},
                stack=self._stack() if is_over else None,
            )
        )

    def keep(self, document: dict[str, object], *, is_over: bool = False) -> bool:
        """Write it, if it is to be kept, and with the page once it `is_over`.

        A full disk must not end a measurement: whether it was written.
        """
        if self.folder is None:
            return True
        try:
            self.folder.write(document)
            if is_over:
                page = self.folder.path.with_name(PAGE_NAME)
                missing = write_page(page, parse_document(document))
                say(f"results are in {self.folder.path}, for people in {page}")
                if missing:
                    say(f"the page has no plots: {missing}")
        except ConfigError as error:
            say(f"blockdraft: error: {error}")
            return False
        return True

    def keep_part(self) -> None:
        """After an interrupt or an error: write what there is, and say how to go on with it."""
        bench = self.bench
        num_done = sum(level.is_complete for level in bench.levels)
        told = f"{num_done} of {len(bench.plan.turns)} levels were measured"
        if self.folder is None:
            say(f"blockdraft: stopped: {told}, and nothing is kept: no --out was given")
        elif not bench.levels:
            say("blockdraft: stopped: nothing was measured yet, so nothing is kept")
        elif self.keep(self.document(is_over=False)):
            again = "" if num_done == len(bench.levels) else ", one in part, to be measured again"
            say(f"blockdraft: stopped: {told}{again}; they are kept in {self.folder.path}")
            say(f"go on with: {resume_command()}")

    def conditions(self) -> dict[str, object]:
        """What figures depend on, so that nobody has to guess it."""
        target, args = self.models.target, self.args
        hardware = describe_hardware(str(target.device))
        return {
            "command": command_line(),
            "target": args.target,
            "device": str(target.device),
            "dtype": _dtype(target.dtype),
            "quantize": args.quantize,
            "engine": "native" if isinstance(target, NativeTarget) else "hf",
            "threads": torch.get_num_threads(),
            "batch_invariant": self.models.invariant_rows,
            "hardware": hardware.machine,
            "software": hardware.software,
            "load_average": self.load_average,
            "blockdraft": version("blockdraft"),
            "python": platform.python_version(),
        }

    def workload(self) -> dict[str, object]:
        plan = self.bench.plan
        return workload_document(plan.workload, plan.num_requests, plan.num_warm_ups)

    def settings(self) -> dict[str, object]:
        """What was asked for, in the order of docs/measuring.md."""
        args, plan = self.args, self.bench.plan
        settings = plan.settings
        return {
            "max_tokens": settings.max_tokens,
            "temperature": settings.temperature,
            "template_args": dict(settings.template_args),
            "ignore_eos": settings.ignore_eos,
            "raw": settings.raw,
            "seed": settings.seed,
            "timeout": None,
            "repeats": max(plan.repeats),
            "arrivals": [
                {"concurrency": arrival.concurrency, "rate": arrival.rate, "repeats": repeats}
                for arrival, repeats in zip(plan.arrivals, plan.repeats, strict=True)
            ],
            "least_requests": plan.least_requests,
            "max_context": args.max_context,
            "kv_memory": args.kv_memory,
            "compile": args.compile,
        }

    def _quality(self) -> list[dict[str, object]]:
        bench, settings = self.bench, self.bench.plan.settings
        asks = {prompt.id: prompt.asks for prompt in bench.plan.workload.prompts}
        plain = next(lane.info.name for lane in bench.plan.lanes if lane.info.kind == "plain")
        guard = Guard(
            target=self.models.target,
            plain_lane=plain,
            epsilon=NEAR_TIE[_dtype(self.models.target.dtype)],
            is_greedy=lambda prompt_id: settings.of(asks[prompt_id]).temperature == 0,
            prompt_ids=bench.prompt_ids,
        )
        return [quality_document(one) for one in guard.compare(bench.levels)]

    def _stack(self) -> list[dict[str, object]] | None:
        """Of every drafter, one after the other; None where there is none."""
        args = self.args
        revisions: tuple[str | None, str | None] = (args.revision, args.drafter_revision)
        template_args = self.bench.plan.settings.template_args
        found: list[dict[str, object]] = []
        for choice in self.models.drafters:
            if isinstance(choice.drafter, Eagle3Drafter):
                found += unknown_stack(choice.name, EAGLE3_UNKNOWN)
            else:
                found += stack_document(args.target, choice.name, revisions, template_args)
        return found or None


def machine_load() -> float | None:
    """Processes that ran or waited to, on average over the last minute; None where nobody counts.

    To be read before a measurement: its own load would be inside afterwards.
    """
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def _dtype(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def _title(turn: Turn) -> str:
    return f"{turn.lane}, {turn.arrival.title}"


def _summary(level: LevelResult) -> str:
    rate = speed_of(level.records).tokens_per_second
    tau = acceptance_figures([level]).tau
    parts = [f"{len(level.records)} requests"]
    if rate is not None:
        parts.append(f"{rate:.1f} tok/s")
    if tau is not None:
        parts.append(f"tau {tau:.2f}")
    if level.num_failed:
        parts.append(f"{level.num_failed} failed")
    return ", ".join(parts)


def _overhead(levels: Sequence[LevelResult]) -> float | None:
    """Seconds of a step outside its passes, in plain decoding at the lowest load."""
    times = [
        level.step_time.other_seconds / level.step_time.steps
        for level in levels
        if level.lane == "plain" and level.step_time is not None and level.is_complete
    ]
    return median(times) if times else None
