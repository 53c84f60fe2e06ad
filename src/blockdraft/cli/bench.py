"""`blockdraft bench`: the five answers on the user's models and prompts, here or at an endpoint.

Arguments only; what it does is in `bench_in_process.py` and `bench_endpoint.py`.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from blockdraft.cli.args import add_engine_args, add_model_args
from blockdraft.cli.bench_endpoint import add_endpoint_args
from blockdraft.cli.given_flags import given_flags
from blockdraft.cli.workload_args import add_load_args, add_request_args, add_workload_args
from blockdraft.errors import ConfigError

SUMMARY = "measure what drafts gain: acceptance, latency, throughput, block size, fit"
EPILOG = """examples:
  blockdraft bench --quick --out results
  blockdraft bench --target ./model --drafter ./drafter --prompts my.jsonl --out results
  blockdraft bench --drafter ./one --drafter ./other --width fixed:8 auto --concurrency 1 4
  blockdraft bench --full --out results        go on after an interrupt: add --resume
  blockdraft bench --endpoint http://127.0.0.1:8000 --concurrency 1 4 8 --out results
  blockdraft bench --endpoint http://host:8000/v1 --model my-model --rate 0.5 2 --max-tokens 256

Without --endpoint the models are loaded here, and plain decoding, prompt lookup and each drafter at
each width answer the same requests in turn, on engines of the same target: speed-ups are ratios
within one repeat. --quick (what is measured when nothing else is said) takes under 3 minutes on 2
cores for the built-in pair, --full an hour or more; what is given beside them overrides them.

With --endpoint any server with OpenAI's interface is measured: blockdraft serve, vLLM, SGLang,
TensorRT-LLM or llama-server. Answers are streamed from /v1/chat/completions; with --raw, and for
prompts of token ids, from /v1/completions. Tokens are counted by the server, never by chunks.

FILE holds JSON lines: {"id": "a", "category": "math", "turns": ["first user turn", ...]}, of which
the first turn is asked; {"prompt": "text"}; {"prompt_ids": [12, 7]}; {"messages": [...]}, or logged
OpenAI requests. A level sends every prompt once, and at least two requests for each that runs at a
time (--quick: that many, and at least 6); --requests says how many instead.

--out DIR keeps results.json and report.html there, also of a part of a run. docs/measuring.md says
what every figure means, docs/bench.md what each engine tells at an endpoint.

Exit code 1 when a request failed or was not sent; the others are reported all the same. 2: a model,
the endpoint, the key or the prompts can't be used, so nothing was measured.
"""


def add_arguments(parser: ArgumentParser) -> None:
    add_endpoint_args(parser)
    add_workload_args(parser)
    add_load_args(parser)
    add_request_args(parser)
    _add_loaded_args(parser)
    out = parser.add_argument_group("output")
    out.add_argument(
        "--out", type=Path, metavar="DIR", help="keep results.json and report.html there"
    )
    out.add_argument(
        "--resume", action="store_true", help="go on with the run that --out holds a part of"
    )
    out.add_argument("--json", action="store_true", help="one JSON document instead of tables")


def _add_loaded_args(parser: ArgumentParser) -> None:
    """Of models that are loaded here."""
    add_model_args(parser, dtype="float32", batch_invariant="off", many_drafters=True)
    add_engine_args(parser, reuse=False, has_width=False)
    _add_lane_args(parser)


def _add_lane_args(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("lanes (without --endpoint)")
    group.add_argument(
        "--width",
        nargs="+",
        metavar="auto|fixed:N",
        help="widths of each drafter, side by side (default: fixed:4, fixed:8 and auto; more with "
        "--full)",
    )
    preset = group.add_mutually_exclusive_group()
    preset.add_argument(
        "--quick", action="store_true", help="24 tokens an answer, 1, 2, 4 and 8 at once (default)"
    )
    preset.add_argument(
        "--full",
        action="store_true",
        help="every prompt, 256 tokens an answer, up to 16 at once, three times",
    )


def run(args: Namespace) -> int:
    """Run the command; a SIGTERM keeps what was measured, as Ctrl-C does."""
    from blockdraft.cli.signals import ended_by_sigterm

    with ended_by_sigterm():
        return _run(args)


def _run(args: Namespace) -> int:
    if args.endpoint is not None:
        from blockdraft.cli.bench_endpoint import run_endpoint

        _check_endpoint(args)
        return run_endpoint(args)
    from blockdraft.cli.bench_in_process import run_in_process

    wrong = given_flags(args, add_endpoint_args)
    if wrong:
        raise ConfigError(f"{', '.join(wrong)}: only for a server; give its --endpoint")
    return run_in_process(args)


def _check_endpoint(args: Namespace) -> None:
    """What only models that are loaded here have must not be thought to have an effect."""
    wrong = given_flags(args, _add_loaded_args)
    if args.resume:
        raise ConfigError(
            "--resume: a run at an endpoint can't be gone on with, since the server may be another "
            "one by now; measure into another --out"
        )
    if wrong:
        raise ConfigError(
            f"{', '.join(wrong)}: an endpoint has its own model and settings; drop this, or drop "
            "--endpoint to measure here"
        )
