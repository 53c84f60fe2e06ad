"""`blockdraft eval`: what a drafter is worth on a file of prompts, in tau and in seconds.

Arguments only; the work is in `evaluation.py`.
"""

from argparse import ArgumentParser, Namespace

from blockdraft.cli import values
from blockdraft.cli.args import ENGINES, add_chat_args, add_model_args, add_sampling_args

SUMMARY = "measure a drafter on a file of prompts"
EPILOG = """examples:
  blockdraft eval --prompts gsm8k.jsonl --limit 64
  blockdraft eval --prompts gsm8k.jsonl --limit 64 --max-new-tokens 256 --json > result.json
  blockdraft eval --drafter ./my-drafter --prompts held-out.jsonl --no-speed
  blockdraft eval --prompts chat.jsonl --temperature 0.8 --seed 7 --repeats 3
  blockdraft eval --target ./qwen3 --drafter ./dflash --prompts p.jsonl --template-arg \
enable_thinking=false

FILE holds JSON lines: {"id": "a", "category": "math", "turns": ["first user turn", ...]}, of which
the first turn is asked; {"prompt": "text"}; or {"prompt_ids": [12, 7]}. id and category may be left
out. A line that can't be used ends the run, named, before any model is loaded.

tau is tokens committed for each target pass after the prefill, pooled over all answers (plain
decoding has 1). Greedy answers of small models may run in circles, which flatters a drafter: tau of
the answers that ended by themselves stands beside it. The reference loop decodes one prompt at a
time, always drafting a whole block; plain decoding and prompt lookup decode the same prompts in
turn. Speedup is plain seconds over the drafter's, for each token, prefills inside.
docs/evaluation.md says how to read the figures.

Exit code 0 once everything is measured; an interrupted run (130) prints no result.
"""


def add_arguments(parser: ArgumentParser) -> None:
    _add_prompt_args(parser)
    group = parser.add_argument_group("measurement")
    group.add_argument(
        "--block-size",
        type=values.fixed_width,
        dest="width",
        metavar="N",
        help="tokens of every block, anchor included (default: the drafter's own)",
    )
    speed = group.add_mutually_exclusive_group()
    speed.add_argument(
        "--no-speed",
        action="store_true",
        help="tau only: plain decoding and prompt lookup are left out, nothing is timed",
    )
    speed.add_argument(
        "--repeats",
        type=values.count,
        default=1,
        metavar="N",
        help="time every answer N times and take medians (default: %(default)s)",
    )
    group.add_argument("--json", action="store_true", help="one JSON document")
    group.add_argument(
        "--details", action="store_true", help="a row for each prompt as well, in --json"
    )
    group.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="what runs the target: native = our own decoder, hf = transformers, auto (default) = "
        "native where it fits",
    )
    add_model_args(parser, dtype="float32", batch_invariant="off")
    add_sampling_args(parser)


def _add_prompt_args(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("prompts")
    group.add_argument(
        "--prompts", metavar="FILE", required=True, help="JSON lines (see below), never trained on"
    )
    group.add_argument("--limit", type=values.count, metavar="N", help="only the first N of FILE")
    add_chat_args(group)


def run(args: Namespace) -> int:
    from blockdraft.cli.evaluation import evaluate

    return evaluate(args)
