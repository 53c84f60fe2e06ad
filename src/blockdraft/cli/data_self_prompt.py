"""`blockdraft data self-prompt`: user turns drawn from the target's own chat template.

Arguments only; the work is in `self_prompting.py`.
"""

from argparse import ArgumentParser, Namespace

from blockdraft.cli import values
from blockdraft.cli.target_args import add_target_args, add_template_args

SUMMARY = "let the target write user turns, where chat prompts are scarce"
EPILOG = """examples:
  blockdraft data self-prompt --target smollm2 --count 20000 --out chat.jsonl
  blockdraft data self-prompt --target smollm2 --count 2000 --out code.jsonl --category code \\
      --start "Write a Python function" --eval humaneval.jsonl

The target is fed its chat template up to where the user speaks, and goes on as the user. Turns are
kept that end by themselves, have four words or more, no special tokens inside, do not repeat
themselves, and repeat neither another one nor a prompt of --eval, exactly or nearly (more than half
of their 8-word runs).

The n-th turn follows from --seed and n: the file is the same however often the run was interrupted
and continued. FILE.partial holds the run until it is done, FILE.manifest.json says how it was made.

Exit code 0: the file is written. 1: the engine failed. 2: a mistake in what was asked. 130:
interrupted; the same command continues.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--out", required=True, metavar="FILE", help="JSON lines to write")
    parser.add_argument(
        "--count", required=True, type=values.count, metavar="N", help="turns to keep"
    )
    parser.add_argument(
        "--start", default="", metavar="TEXT", help="how every turn begins (default: anyhow)"
    )
    parser.add_argument("--category", default="chat", help="default: chat")
    parser.add_argument(
        "--eval",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="evaluation prompts that no turn may repeat",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document of counts")
    group = parser.add_argument_group("sampling")
    group.add_argument(
        "--max-new-tokens", type=values.count, default=256, metavar="N", help="default: 256"
    )
    group.add_argument("--temperature", type=float, default=1.0, metavar="X", help="default: 1")
    group.add_argument("--top-p", type=float, default=0.95, metavar="X", help="default: 0.95")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="default: 0")
    add_template_args(parser, raw=False)
    add_target_args(parser)


def run(args: Namespace) -> int:
    from blockdraft.cli.self_prompting import self_prompt

    return self_prompt(args)
