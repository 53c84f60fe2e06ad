"""What `blockdraft tune` does: load, measure, predict, verify, keep, show.

Stages are the package `tuning`'s; words and tables are `tune_report.py`.
"""

import time
from argparse import Namespace
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.progress import Progress

from blockdraft.bench import IN_PROCESS, Workload, read_workload
from blockdraft.bench.config import RequestSettings
from blockdraft.bench.encoding import encode_bench_prompt
from blockdraft.bench.in_process.jobs import EngineJob, engine_job, room_for
from blockdraft.bench.workload import Job
from blockdraft.cli.bench_command import command_line
from blockdraft.cli.console import emit_json, say
from blockdraft.cli.hardware import busy_text
from blockdraft.cli.pair import NOT_TRAINED, Pair, load_pair
from blockdraft.cli.tune import levels_of
from blockdraft.cli.tune_report import print_tuned, stage_text
from blockdraft.cli.workload_args import read_settings, read_source, say_notes
from blockdraft.data.durable import new_file, write_json
from blockdraft.engine import EngineConfig
from blockdraft.engine.costs import CostModel
from blockdraft.errors import ConfigError
from blockdraft.launch import found_device, read_pair
from blockdraft.launch.order import PairForLaunch
from blockdraft.tuning.advice import advise
from blockdraft.tuning.document import FILE_NAME, Circumstances, tune_document
from blockdraft.tuning.flags import EngineFlags, FlagsOrder, all_flags, script_of
from blockdraft.tuning.measure import Bench
from blockdraft.tuning.search import best_fixed
from blockdraft.tuning.store import RunStore, check_folder
from blockdraft.tuning.tune import Tuned, TuneOrder, tune

QUICK_PROMPTS = 6
QUICK_TOKENS = 48
PROMPTS = 16
TOKENS = 96


def tune_pair(args: Namespace) -> int:
    """Run the command. Raises ConfigError for what can't be measured."""
    quick: bool = args.quick
    order = TuneOrder(
        levels=levels_of(args),
        goal=args.goal,
        num_repeats=args.repeats or (2 if quick else 3),
        num_finalists=1 if quick else 2,
    )
    if args.drafter == "none":
        raise ConfigError("--drafter none is plain decoding: nothing to tune; give a drafter")
    settings = _settings(args)
    workload = _workload(args, settings)
    out: Path | None = args.out
    if out is not None:
        check_folder(out, _named_facts(_workload_facts(workload, settings)))
    say_notes(workload)
    busy = busy_text()
    pair = _load(args)
    if busy is not None:
        say(busy)
    session = _Session(args, pair, workload, settings)
    try:
        tune(session.bench, order, session.take)
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
        session.keep()
        say(session.stopped())
        raise
    session.show()
    return 0


def measure_pair_costs(args: Namespace) -> CostModel:
    """What passes of the pair cost here, for the what-if model."""
    pair = _load(args)
    store = RunStore(None, {})
    bench = Bench(pair.target, pair.drafter, (), _engine_config(args, None), store, _watch)
    return bench.costs(max(levels_of(args)))


def _load(args: Namespace) -> Pair:
    """The pair; the width is what is looked for, so none is given."""
    return load_pair(Namespace(**vars(args) | {"width": None, "compile": False}))


def _settings(args: Namespace) -> RequestSettings:
    given = read_settings(args)
    if args.max_tokens is None:
        given = replace(given, max_tokens=QUICK_TOKENS if args.quick else TOKENS)
    return given


def _workload(args: Namespace, settings: RequestSettings) -> Workload:
    limit: int = args.limit or (QUICK_PROMPTS if args.quick else PROMPTS)
    limited = Namespace(**vars(args) | {"limit": limit})
    return read_workload(read_source(limited, IN_PROCESS), settings)


def _engine_config(args: Namespace, max_context: int | None) -> EngineConfig:
    return EngineConfig(
        max_context=args.max_context or max_context,
        kv_memory=args.kv_memory,
        reuse_prefixes=False,
    )


@contextmanager
def _watch(what: str, total: int) -> Generator[Callable[[], None], None, None]:
    """A bar where someone watches (results come at the end only), and a line when it is done."""
    started = time.monotonic()
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.advance(task)
    say(f"{what}: {time.monotonic() - started:.1f} s")


class _Session:
    """One run of the command: what was found so far, and where it is kept."""

    def __init__(
        self, args: Namespace, pair: Pair, workload: Workload, settings: RequestSettings
    ) -> None:
        self.out: Path | None = args.out
        self._args = args
        self._pair = pair
        self._began = time.time()
        self._tuned: Tuned | None = None
        self._is_foreign = pair.conditions.drafter in NOT_TRAINED
        jobs = _jobs(pair, workload, settings)
        self._workload = _workload_facts(workload, settings, jobs)
        facts = asdict(pair.conditions) | _named_facts(self._workload)
        self.store = RunStore(self.out, facts)
        if self.store.num_kept:
            say(f"{self.store.num_kept} runs are there already")
        config = _engine_config(args, room_for(jobs, pair.target.spec.max_context_len))
        self.bench = Bench(pair.target, pair.drafter, jobs, config, self.store, _watch)

    def take(self, tuned: Tuned) -> None:
        """What is known after a stage."""
        self._tuned = tuned
        text = stage_text(tuned)
        if text is not None:
            say(text)
        self.keep()

    def keep(self) -> None:
        """Write what is known; nothing before the first stage, whose runs are kept as they are."""
        if self.out is None or self._tuned is None:
            return
        flags = self._flags(self._tuned)
        write_json(self.out / FILE_NAME, self._document(self._tuned, flags))
        folder = self.out / "flags"
        folder.mkdir(exist_ok=True)
        for one in flags:
            with new_file(folder / f"{one.engine}.sh") as unfinished:
                unfinished.write_text(script_of(one), encoding="utf-8")

    def stopped(self) -> str:
        """What an interrupt leaves, and how to go on."""
        if self.out is None:
            return "blockdraft: stopped: nothing is kept, since no --out was given"
        num, path = self.store.num_kept, self.store.path
        return f"blockdraft: stopped: {num} runs are kept in {path}; go on with: {command_line()}"

    def show(self) -> None:
        assert self._tuned is not None, "all stages were run"
        flags = self._flags(self._tuned)
        if self._args.json:
            emit_json(self._document(self._tuned, flags), indent=2)
        else:
            print_tuned(self._tuned, flags)
        if self.out is not None:
            say(f"kept in {self.out}: {FILE_NAME}, flags/")

    def _document(self, tuned: Tuned, flags: tuple[EngineFlags, ...]) -> dict[str, object]:
        around = Circumstances(
            started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._began)),
            seconds=time.time() - self._began,
            conditions=asdict(self._pair.conditions),
            workload=self._workload,
        )
        return tune_document(tuned, around, flags, advise(tuned))

    def _flags(self, tuned: Tuned) -> tuple[EngineFlags, ...]:
        """For the setting that was found; none before it is."""
        choice = tuned.choice
        if choice is None or tuned.verdict is None:
            return ()
        fixed: int | None = None
        if tuned.verdict == "speculate":
            best = best_fixed(tuned.predictions, choice.concurrency, tuned.goal)
            fixed = tuned.chosen.width or (None if best is None else best.mode.width)
        return all_flags(
            FlagsOrder(
                target=self._pair.conditions.target,
                drafter=self._pair.conditions.drafter,
                pair=self._pair_for_launch(),
                own=tuned.chosen,
                fixed=fixed,
                slots=max(one.concurrency for one in choice.by_concurrency),
                device=found_device(),
                serve_flags=self._serve_flags(),
            )
        )

    def _pair_for_launch(self) -> PairForLaunch | None:
        conditions = self._pair.conditions
        return None if self._is_foreign else read_pair(conditions.target, conditions.drafter)

    def _serve_flags(self) -> tuple[str, ...]:
        """What else the figures depend on."""
        conditions = self._pair.conditions
        words = ["--dtype", conditions.dtype]
        if conditions.quantize is not None:
            words += ["--quantize", conditions.quantize]
        if self._args.engine != "auto":
            words += ["--engine", self._args.engine]
        return tuple(words)


def _jobs(pair: Pair, workload: Workload, settings: RequestSettings) -> tuple[EngineJob, ...]:
    return tuple(
        engine_job(
            Job(number, prompt), encode_bench_prompt(pair.target, prompt, settings), settings
        )
        for number, prompt in enumerate(workload.prompts)
    )


def _workload_facts(
    workload: Workload, settings: RequestSettings, jobs: Sequence[EngineJob] = ()
) -> dict[str, object]:
    """What of the workload figures depend on; lengths of prompts where `jobs` know them."""
    lengths = [len(job.prompt_ids) for job in jobs]
    return {
        "source": workload.source,
        "sha256": workload.sha256,
        "prompts": len(workload.prompts),
        **({"mean_prompt_tokens": fmean(lengths)} if lengths else {}),
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "ignore_eos": settings.ignore_eos,
        "seed": settings.seed,
        "raw": settings.raw,
        "template_args": dict(settings.template_args),
    }


def _named_facts(workload: dict[str, object]) -> dict[str, object]:
    """The workload's facts by the names that they have among all others."""
    return {f"workload {name}": value for name, value in workload.items()}
