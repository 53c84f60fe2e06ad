"""`blockdraft verify`: check on your own prompts that the drafter does not change the text.

Arguments only; the work is in `verification.py`.
"""

from argparse import ArgumentParser, Namespace

from blockdraft.cli import values
from blockdraft.cli.args import (
    add_engine_args,
    add_model_args,
    add_prompt_args,
    add_sampling_args,
)

SUMMARY = "check that the text does not depend on the drafter"
EPILOG = """examples:
  blockdraft verify
  blockdraft verify --exact --prompts my-prompts.jsonl
  blockdraft verify --widths 2,3,5,8,auto "Explain prime numbers."
  blockdraft verify --dtype bfloat16 --batch-invariant --temperature 1 --seed 7
  blockdraft verify --target ./no-tokenizer --drafter ./drafter --prompt-ids 12,7,99

Each prompt is decoded plainly once by the reference loop, the readable specification, and then by
the engine: plainly (width off), with blocks of every width (a width counts the anchor) and with
widths chosen step by step (auto), all on the same target. --width or --block-size names a single
one.
Where an answer differs, you see the first differing position and the target's top-two margin there,
in logits. A margin under --epsilon is a near-tie: passes over different numbers of rows round
differently, and one rounding turned the choice. Default epsilon: 1e-9 for float64, 1e-3 for
float32, 1 for bfloat16.

Exit code 0: every answer is identical or parts at a near-tie. 1: some answer differs otherwise, or
a prompt of the file could not be served.
"""


def add_arguments(parser: ArgumentParser) -> None:
    add_prompt_args(parser, default="a few built-in ones")
    group = parser.add_argument_group("comparison")
    group.add_argument(
        "--widths",
        type=values.width_list,
        metavar="LIST",
        help="widths to try, like off,2,4,8,auto (default: off, 2, half and all of the drafter's "
        "block, auto)",
    )
    group.add_argument(
        "--exact",
        action="store_true",
        help="run in float32, where near-ties are rare, or in float64 with --dtype float64",
    )
    group.add_argument(
        "--epsilon", type=float, metavar="X", help="margin under which a difference is a near-tie"
    )
    group.add_argument("--json", action="store_true", help="one JSON document")
    add_model_args(parser, dtype="float32", batch_invariant="off")
    add_engine_args(parser, reuse=True)
    add_sampling_args(parser)


def run(args: Namespace) -> int:
    from blockdraft.cli.verification import verify_promise

    return verify_promise(args)
