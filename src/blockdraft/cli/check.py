"""`blockdraft check`: what engines will make of a target and its drafter, before they load them.

Arguments only; the rules are in `blockdraft.check`, the run and its report in `check_report.py`.
"""

from argparse import ArgumentParser, Namespace

from blockdraft.cli import values
from blockdraft.cli.args import DEFAULT_TARGET, DTYPES, add_template_arg, add_threads

SUMMARY = "say what vLLM, SGLang, llama.cpp and others will make of a pair, before they load it"
ENGINES = ("vllm", "sglang", "trtllm", "llamacpp", "openvino", "blockdraft")
EPILOG = """examples:
  blockdraft check
  blockdraft check --target ./qwen3 --drafter ./my-drafter --engine vllm --engine llamacpp
  blockdraft check --target ./qwen3 --drafter ./my-drafter --template-arg enable_thinking=false
  blockdraft check --target owner/name --drafter owner/drafter --no-live --json

Static checks need configuration, tokenizer and the headers of the weights only; of a target on the
hub nothing else is fetched. The live check decodes a few prompts here, when the pair's weights are
on this machine and it loads, and compares acceptance with what the drafter recorded. Every finding
has a code; docs/check.md lists all of them.

Exit code 0: no finding of severity error for the engines asked for. 1: there is one. 2: no such
target or drafter, or another mistake in what was asked.
"""


def add_arguments(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("models")
    group.add_argument(
        "--target",
        default=DEFAULT_TARGET,
        metavar="MODEL",
        help="built-in name, folder, GGUF file or hub id (default: %(default)s)",
    )
    group.add_argument(
        "--drafter",
        metavar="MODEL",
        help="built-in name, folder (published or speculators layout), GGUF file or hub id "
        "(default: the built-in one of a built-in target)",
    )
    group.add_argument("--revision", help="commit, tag or branch of a target from the hub")
    group.add_argument("--drafter-revision", metavar="REVISION", help="the same for the drafter")
    group = parser.add_argument_group("what to check")
    group.add_argument(
        "--engine",
        action="append",
        choices=ENGINES,
        help="an engine that will serve the pair; repeatable (default: all)",
    )
    add_template_arg(group)
    group.add_argument("--no-live", action="store_true", help="decode nothing")
    group.add_argument(
        "--max-new-tokens",
        type=values.count,
        default=64,
        metavar="N",
        help="tokens an answer of the live check (default: %(default)s)",
    )
    group.add_argument(
        "--dtype",
        choices=DTYPES,
        default="float32",
        help="of the live check (default: %(default)s)",
    )
    add_threads(group)
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(args: Namespace) -> int:
    from blockdraft.cli.check_report import check_and_report

    return check_and_report(args)
