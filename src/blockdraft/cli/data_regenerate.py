"""`blockdraft data regenerate`: every assistant turn written by the target itself.

Arguments only; the work is in `regeneration.py`.
"""

from argparse import ArgumentParser, Namespace

from blockdraft.cli import values
from blockdraft.cli.target_args import add_target_args, add_template_args

SUMMARY = "let the target answer prompts: one row of token ids for each assistant turn"
EPILOG = """examples:
  blockdraft data regenerate prompts/train.jsonl --target smollm2 --out answers
  blockdraft data regenerate math.jsonl code.jsonl --target smollm2 --out answers \\
      --max-new-tokens 512 --sampled-share 0.3 --sampled-temperature 0.7 --seed 1
  blockdraft data regenerate train.jsonl --target Qwen/Qwen3-8B --template-arg \\
      enable_thinking=false --endpoint http://host:8000/v1 --model qwen3-8b --return-token-ids \\
      --out answers

Prompts are files that `blockdraft data prepare` or `self-prompt` made, one conversation a line.
Turn k is asked with the target's own answers to the turns before it. The folder gets answers.jsonl
while the run goes on, answers.parquet and manifest.json at its end (docs/answers.md).

Run the same command again to continue a run that was interrupted, killed or had requests that
failed: nothing that is answered is asked again. Which turns are sampled, and their seeds, follow
from --seed, the conversation's id and the turn, so order and interruptions change nothing.

Exit code 0: finished. 1: some requests failed, or too many in a row. 2: a mistake in what was
asked. 130: interrupted; what is answered is kept.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("prompts", nargs="+", metavar="PROMPTS", help="files of conversations")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write or continue")
    parser.add_argument("--limit", type=values.count, metavar="N", help="only the first N of each")
    parser.add_argument("--json", action="store_true", help="one JSON document of counts")
    _add_answer_args(parser)
    _add_policy_args(parser)
    add_template_args(parser, raw=True)
    add_target_args(parser)
    _add_endpoint_args(parser)


def _add_answer_args(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("answers")
    group.add_argument(
        "--max-new-tokens",
        type=values.count,
        default=256,
        metavar="N",
        help="at most so many tokens an answer (default: %(default)s)",
    )
    group.add_argument(
        "--temperature", type=float, default=0.0, metavar="X", help="0 = greedy (default: 0)"
    )
    group.add_argument(
        "--sampled-share",
        type=float,
        default=0.0,
        metavar="X",
        help="share of the turns, from 0 to 1, drawn at --sampled-temperature (default: 0)",
    )
    group.add_argument(
        "--sampled-temperature", type=float, default=0.7, metavar="X", help="default: 0.7"
    )
    group.add_argument(
        "--top-p", type=float, default=1.0, metavar="X", help="of sampled turns (default: 1)"
    )
    group.add_argument("--seed", type=int, default=0, metavar="N", help="default: 0")


def _add_policy_args(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("what is kept")
    loops = group.add_mutually_exclusive_group()
    loops.add_argument(
        "--max-loop-share",
        type=float,
        default=1.0,
        metavar="X",
        help="at most so many of the kept answers may repeat one cycle until the limit ends them "
        "(default: 1, they are counted and kept)",
    )
    loops.add_argument(
        "--drop-loops",
        action="store_const",
        const=0.0,
        dest="max_loop_share",
        help="keep none of those",
    )
    group.add_argument(
        "--strict", action="store_true", help="refuse prompts with a bad line; else it is skipped"
    )
    group.add_argument(
        "--pack",
        action="store_true",
        help="ask nothing more: finish the folder with the answers that are there",
    )
    group.add_argument(
        "--adopt",
        action="store_true",
        help="take an answers.jsonl that came without settings.json as made with these settings",
    )


def _add_endpoint_args(parser: ArgumentParser) -> None:
    group = parser.add_argument_group(
        "server", "instead of this process; of --target only the tokenizer is read then"
    )
    group.add_argument("--endpoint", metavar="URL", help="OpenAI-compatible, like http://host/v1")
    group.add_argument("--model", metavar="NAME", help="what the server calls the target")
    group.add_argument(
        "--concurrency",
        type=values.count,
        default=64,
        metavar="N",
        help="requests at once (default: %(default)s)",
    )
    group.add_argument(
        "--retries", type=int, default=5, metavar="N", help="of one request (default: %(default)s)"
    )
    group.add_argument(
        "--timeout",
        type=float,
        default=600.0,
        metavar="S",
        help="seconds of one try (default: 600)",
    )
    group.add_argument(
        "--api-key-env", metavar="NAME", help="environment variable that holds the server's key"
    )
    group.add_argument(
        "--return-token-ids",
        action="store_true",
        help="ask the server for token ids (vLLM has them); else answers are tokenized here",
    )


def run(args: Namespace) -> int:
    from blockdraft.cli.regeneration import regenerate_answers

    return regenerate_answers(args)
