"""Runs the benchmarks and writes results.json and its tables. See README.md.

python benchmarks/run.py steps concurrency contexts compare --out results
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

import environments
import gguf_copy
import model_copy
import ours
from blockdraft.api import load_drafter
from blockdraft.builtin import builtin_drafter_path
from blockdraft.cli.hardware import describe_hardware
from blockdraft.native import NativeTarget
from compare import System, compare, our_system, peer_system
from measure_concurrency import measure_concurrency
from measure_steps import measure_contexts, measure_steps
from peers import Peer, PeerError, PeerSetup
from prompts import SETS, TokenPrompt, encode, read_set
from tables import render

PARTS = ("steps", "concurrency", "contexts", "compare")
OUR_SYSTEMS = ("native plain", "native auto", "native fixed:8")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for results.json, tables.md"
    )
    parser.add_argument("--target", default="smollm2")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--prompts", type=int, default=32, help="the first N of each set")
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--envs", type=Path, default=environments.default_folder())
    parser.add_argument(
        "--peers",
        nargs="*",
        default=[],
        help="names as in peers.PEERS; llamacpp:bf16 names a GGUF type",
    )
    parser.add_argument("--quantized", action="store_true", help="compare --quantize int4 too")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    target = ours.load_native(args.target, args.dtype)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "results.json"
    results: dict[str, object] = json.loads(path.read_text()) if path.exists() else {}
    results["conditions"] = conditions(args, target)
    for part in args.parts:
        _say(f"== {part}")
        results[part] = RUNNERS[part](args, target)
        path.write_text(json.dumps(results, indent=1) + "\n")
        (args.out / "tables.md").write_text(render(results))
    sys.stdout.write(render(results))
    return 0


def conditions(args: argparse.Namespace, target: NativeTarget) -> dict[str, object]:
    """What the figures depend on."""
    hardware = describe_hardware(str(target.device))
    return {
        "machine": hardware.machine,
        "software": hardware.software,
        "target": args.target,
        "dtype": args.dtype,
        "threads": torch.get_num_threads(),
        "kernels": list(target.model.plan.used),
    }


def run_steps(args: argparse.Namespace, target: NativeTarget) -> object:
    prompt = prompts_of(target, ["gsm8k"], 1)[0]
    return asdict(measure_steps(target, prompt.ids, args.repeats))


def run_contexts(args: argparse.Namespace, target: NativeTarget) -> object:
    return [asdict(cost) for cost in measure_contexts(target, args.repeats)]


def run_concurrency(args: argparse.Namespace, target: NativeTarget) -> object:
    prompts = [prompt.ids for prompt in prompts_of(target, ["gsm8k"], args.prompts)]
    rows = measure_concurrency(
        target, prompts, max_new_tokens=args.max_new_tokens, repeats=args.repeats
    )
    return [asdict(row) for row in rows]


def run_compare(args: argparse.Namespace, target: NativeTarget) -> object:
    drafter = load_drafter("smollm2", target)
    systems: dict[str, System] = {
        "native plain": our_system(ours.make_engine(target, None, "off")),
        "native auto": our_system(ours.make_engine(target, drafter, "auto")),
        "native fixed:8": our_system(ours.make_engine(target, drafter, "fixed:8")),
    }
    if args.quantized:
        small = ours.load_native(args.target, args.dtype, "int4")
        small_drafter = load_drafter("smollm2", small)
        systems["native int4 plain"] = our_system(ours.make_engine(small, None, "off"))
        systems["native int4 auto"] = our_system(ours.make_engine(small, small_drafter, "auto"))
    memory: dict[str, int] = {name: ours.peak_memory_bytes() for name in OUR_SYSTEMS}
    peers = start_peers(args, memory, systems, target.spec.stop_ids)
    try:
        by_set: dict[str, object] = {}
        for name in args.sets:
            _say(name)
            rows, failed = compare(
                systems,
                prompts_of(target, [name], args.prompts),
                max_new_tokens=args.max_new_tokens,
                repeats=args.repeats,
                baseline="native plain",
                memory=memory,
                say=_say,
            )
            by_set[name] = {"rows": [asdict(row) for row in rows], "failed": failed}
    finally:
        for peer in peers:
            peer.close()
    return {
        "sets": by_set,
        "prompts": args.prompts,
        "max_new_tokens": args.max_new_tokens,
        "repeats": args.repeats,
        "versions": {peer.name: dict(peer.versions) for peer in peers},
        "notes": {peer.name: list(peer.notes) for peer in peers},
    }


def start_peers(
    args: argparse.Namespace,
    memory: dict[str, int],
    systems: dict[str, System],
    stop_ids: Sequence[int],
) -> list[Peer]:
    """The peers asked for, added to `systems`; one that can't start is named and left out."""
    started: list[Peer] = []
    for name in args.peers:
        kind, _, variant = name.partition(":")
        setup = PeerSetup(
            model=model_for(kind, variant or "q4_1", args.envs / "models", args.dtype),
            dtype=args.dtype,
            threads=args.threads,
            drafter=builtin_drafter_path("smollm2") if "dflash" in kind else None,
        )
        try:
            peer = Peer(kind, args.envs, setup)
        except PeerError as error:
            _say(f"{name} is left out: {error}")
            continue
        _say(f"{name}: {dict(peer.versions)}")
        started.append(peer)
        systems[name] = peer_system(peer, stop_ids, memory, name)
    return started


def model_for(kind: str, variant: str, models: Path, dtype: str) -> Path:
    """The target as `kind` reads it, written once; `variant` is a GGUF type for llama.cpp."""
    if not kind.startswith("llamacpp"):
        return model_copy.builtin_model(models, model_copy.DTYPES[dtype])
    if variant == "q4_1":
        return gguf_copy.builtin_gguf(models)
    return gguf_copy.builtin_copy(models, variant)


def prompts_of(target: NativeTarget, sets: Sequence[str], limit: int) -> list[TokenPrompt]:
    assert target.text is not None
    return [p for name in sets for p in encode(read_set(name, limit), target.text)]


RUNNERS: dict[str, Callable[[argparse.Namespace, NativeTarget], object]] = {
    "steps": run_steps,
    "concurrency": run_concurrency,
    "contexts": run_contexts,
    "compare": run_compare,
}


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main())
