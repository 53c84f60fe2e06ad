"""`blockdraft launch`: start another engine with a target and its drafter, or show how.

Arguments and words; commands and processes are in the package `launch`.
"""

import os
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import TYPE_CHECKING

from blockdraft.cli.commands import add_traceback_flag
from blockdraft.cli.console import emit, emit_json, say
from blockdraft.cli.launch_flags import ENGINE_TITLES, add_launch_flags
from blockdraft.errors import ConfigError

if TYPE_CHECKING:
    from blockdraft.launch import Engine, LaunchOrder, LaunchPlan

SUMMARY = "start vLLM, SGLang, TensorRT-LLM, llama.cpp or OpenVINO with a pair, or show how"
EPILOG = """examples:
  blockdraft launch vllm --target ./model --drafter ./exported --print
  blockdraft launch vllm --target ./model --drafter ./exported --tensor-parallel 2 -- --seed 1
  blockdraft launch llamacpp --target ./pair-gguf --drafter ./pair-gguf
  blockdraft launch trtllm --target ./model --drafter ./exported --device cuda --print --json
  blockdraft launch vllm --help                        the flags

The drafter is what `blockdraft export` wrote for the engine: hf for vLLM, SGLang and TensorRT-LLM,
speculators for vLLM, gguf (with the target) for llama.cpp; OpenVINO's is converted from hf.
--block-size counts the anchor; engines that count drafts are told one less. What follows -- goes to
the engine as it is. Whether the two models fit is `blockdraft check`'s business, not launch's.

llama.cpp runs with fused attention (-fa on), which rounds keys and values to float16 even where the
caches are float32; to compare float32 answers or counts with another engine add -- -fa off.

The engine's output goes to stderr. Once it is healthy its address, and the line that measures it,
are written to stdout. SIGTERM and Ctrl-C are handed to the engine, and the exit code is its own; a
second signal ends it at once. Exit code 1: it ended, or was not healthy in time, before it was
ready. 2: it is not installed, or can't do this with this pair.

docs/scaling.md goes from one machine to a cluster.
"""


def add_arguments(parser: ArgumentParser) -> None:
    engines = parser.add_subparsers(title="engines", metavar="ENGINE", required=True, dest="engine")
    for name, title in ENGINE_TITLES.items():
        engine = engines.add_parser(
            name,
            help=f"serve with {title}",
            description=f"Start {title} with a target and its drafter, or show how.",
            epilog=EPILOG,
            formatter_class=RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        add_launch_flags(engine)
        add_traceback_flag(engine)


def run(args: Namespace) -> int:
    from blockdraft.launch import ENGINES, as_document, render_shell

    only_print: bool = args.print_only
    if args.json and not only_print:
        raise ConfigError("--json goes with --print; without it the engine is started")
    engine = ENGINES[args.engine]
    plan = engine.make_plan(_order(args, engine))
    for note in plan.notes:
        say(f"note: {note}")
    if not only_print:
        return _start(args, plan, engine.title)
    if args.json:
        emit_json(as_document(plan), indent=2)
    else:
        emit(render_shell(plan), end="")
    return 0


def _order(args: Namespace, engine: "Engine") -> "LaunchOrder":
    from blockdraft.launch import LaunchOrder, found_device, read_pair

    device = args.device
    if device == "auto":
        device = found_device()
        if args.print_only and device == "cpu":
            if engine.gpu == "needed":
                device = "cuda"
                say("note: there is no GPU here; the command is for a machine that has one")
            elif engine.gpu == "differs":
                say("note: there is no GPU here; for a machine that has one add --device cuda")
    return LaunchOrder(
        pair=read_pair(args.target, args.drafter),
        device=device,
        host=args.host,
        port=args.port,
        tensor_parallel=args.tensor_parallel,
        data_parallel=args.data_parallel,
        block_size=args.block_size,
        dtype=None if args.dtype == "auto" else args.dtype,
        max_model_len=args.max_model_len,
        extra=tuple(args.extra),
    )


def _start(args: Namespace, plan: "LaunchPlan", title: str) -> int:
    from blockdraft.launch import RunOrder, bench_command, engine_environment, locate, run_plan

    venv: Path | None = args.venv
    environ = engine_environment(venv, os.environ)
    located = locate(plan, environ, venv)

    def on_ready(url: str, model: str) -> None:
        emit(f"{title} is ready at {url}")
        emit(bench_command(url, model))

    say(f"starting {title}; it has {args.timeout:g} s to get ready (--timeout)")
    return run_plan(
        located,
        RunOrder(
            environ=environ,
            timeout=args.timeout,
            grace=args.grace,
            on_line=say,
            on_ready=on_ready,
            folder=args.files,
        ),
    )
