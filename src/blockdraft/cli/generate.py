"""`blockdraft generate`: answers to the user's prompts.

Arguments only; the work is in `generation.py`.
"""

from argparse import ArgumentParser, Namespace

from blockdraft.cli import values
from blockdraft.cli.args import (
    add_engine_args,
    add_model_args,
    add_prompt_args,
    add_sampling_args,
)

SUMMARY = "answer prompts, with a drafter or plainly"
EPILOG = """examples:
  blockdraft generate "What is 17 * 23?"
  blockdraft generate --stream --stats < question.txt
  blockdraft generate --prompts prompts.jsonl --json > answers.jsonl
  blockdraft generate --drafter none "the same text, decoded plainly"
  blockdraft generate --dtype auto --prompts prompts.jsonl --concurrency 32
  blockdraft generate --temperature 0.8 --top-p 0.9 --seed 7 "Tell me a story."
  blockdraft generate --target ./qwen3 --drafter ./dflash --template-arg enable_thinking=false "Hi"
  blockdraft generate --target ./no-tokenizer --drafter ./drafter --prompt-ids 12,7,99

A file of prompts is answered 16 at a time and printed in the order of the file; --stream, and a
single prompt, one by one. float32 is the default because it gives the same text however many
prompts run together and whatever is drafted, up to near-ties that are rare; --dtype auto takes the
faster dtype, in which rounding turns more of them.

--json prints one object a line: id, turn (from 0), prompt_ids, token_ids, text, finish_reason,
stats, with --logprobs also logprobs. In a file of prompts, one that can't be served gives {id,
turn, error} instead; the others go on and the exit code is 1.
"""


def add_arguments(parser: ArgumentParser) -> None:
    add_prompt_args(parser, default="standard input")
    add_model_args(parser, dtype="float32", batch_invariant="off")
    add_engine_args(parser, reuse=True)
    add_sampling_args(parser)
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="one JSON object a turn (see below)")
    group.add_argument("--stream", action="store_true", help="print text as it comes")
    group.add_argument(
        "--logprobs",
        type=int,
        metavar="N",
        help="log-probability of each token and of the N likeliest ones (0 = none), in --json",
    )
    group.add_argument(
        "--stats", action="store_true", help="figures, chosen widths and memory on stderr"
    )
    group.add_argument(
        "--concurrency",
        "--slots",
        dest="concurrency",
        type=values.count,
        metavar="N",
        help="N prompts of a file at once, batched (default: 16, with --stream 1)",
    )


def run(args: Namespace) -> int:
    from blockdraft.cli.generation import generate_answers

    return generate_answers(args)
