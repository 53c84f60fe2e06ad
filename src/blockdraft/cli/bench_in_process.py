"""What `blockdraft bench` does without an endpoint: load, measure every lane in turn, keep, show.

The run itself is `bench_session.py`, tables are `bench_report.py`.
"""

import time
from argparse import Namespace
from pathlib import Path

from blockdraft.bench import IN_PROCESS, ResultsFolder, read_workload
from blockdraft.bench.in_process import BenchPlan, InProcessBench, choose_lanes
from blockdraft.bench.in_process.energy import find_meter
from blockdraft.bench.remarks import remarks
from blockdraft.cli.bench_models import load_models
from blockdraft.cli.bench_presets import choose_preset
from blockdraft.cli.bench_report import print_bench
from blockdraft.cli.bench_session import Session, machine_load
from blockdraft.cli.console import emit_json, say
from blockdraft.cli.hardware import busy_text
from blockdraft.cli.workload_args import read_settings, read_source, say_notes
from blockdraft.errors import ConfigError


def run_in_process(args: Namespace) -> int:
    """Run the command. Prompts and arguments are checked before anything is loaded."""
    if args.resume and args.out is None:
        raise ConfigError("--resume goes on with the run in a folder; give its --out")
    started = time.time()
    preset = choose_preset(args)
    settings = read_settings(preset.args)
    workload = read_workload(read_source(args, IN_PROCESS), settings)
    arrivals = preset.arrivals(workload)
    out: Path | None = args.out
    folder = None if out is None else ResultsFolder(out, resumes=args.resume)
    say_notes(workload)
    busy, load_average = busy_text(), machine_load()
    models = load_models(args, preset.widths)
    plan = BenchPlan(
        lanes=choose_lanes(models.drafters, preset.widths),
        arrivals=arrivals,
        repeats=preset.repeats,
        workload=workload,
        settings=settings,
        num_requests=args.requests,
        least_requests=preset.least_requests,
        num_warm_ups=args.warmup,
    )
    meter = find_meter(str(models.target.device))
    bench = InProcessBench(models.target, plan, meter)
    session = Session(args, preset, models, bench, meter, folder, started, load_average)
    if args.resume:
        session.resume()
    if busy is not None:
        say(busy)
    try:
        session.measure()
        document = session.document(is_over=True)
    except BaseException as error:
        # Also while the end is made: no level may be lost that was measured.
        if bench.levels or not isinstance(error, Exception):
            session.keep_part()
        raise
    is_kept = session.keep(document, is_over=True)
    if args.json:
        emit_json(document, indent=2)
    else:
        print_bench(document)
        for line in remarks(bench.levels):
            say(line)
    has_failed = any(level.num_failed for level in bench.levels)
    return 0 if bench.is_complete and is_kept and not has_failed else 1
