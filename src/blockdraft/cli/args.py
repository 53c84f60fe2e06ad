"""Groups of arguments that several commands share.

Defaults of sampling settings are those of `SamplingParams`: a flag that is not given is None here.
"""

import argparse
from argparse import ArgumentParser

from blockdraft.cli import values

DTYPES = ("auto", "float32", "bfloat16", "float64")
ENGINES = ("auto", "native", "hf")
QUANTIZATIONS = ("int8", "int4")
DEFAULT_TARGET = "smollm2"

Group = argparse._ArgumentGroup  # pyright: ignore[reportPrivateUsage]: it has no public name


def add_model_args(
    parser: ArgumentParser, *, dtype: str, batch_invariant: str, many_drafters: bool = False
) -> None:
    """Which target and drafter, and how they compute. `many_drafters`: the flag may be repeated."""
    group = parser.add_argument_group("models")
    group.add_argument(
        "--target",
        default=DEFAULT_TARGET,
        metavar="MODEL",
        help="built-in name (see `blockdraft models`), folder, GGUF file or hub id "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--drafter",
        action="append" if many_drafters else "store",
        metavar="MODEL",
        help="built-in name, folder or hub id of a DFlash drafter; prompt-lookup; or none for "
        "plain decoding (default: the built-in one of a built-in target, the published one of a "
        f"hub id: `blockdraft models --published`){'; repeatable' if many_drafters else ''}",
    )
    group.add_argument("--revision", help="commit, tag or branch of a target from the hub")
    group.add_argument("--drafter-revision", metavar="REVISION", help="the same for the drafter")
    group.add_argument(
        "--yes", action="store_true", help="download a published drafter without being asked"
    )
    group.add_argument(
        "--taps",
        type=values.id_list,
        metavar="LAYERS",
        help="zero-based target layers the drafter reads, like 1,8,14, for a checkpoint that does "
        "not say",
    )
    group.add_argument(
        "--dtype",
        choices=DTYPES,
        default=dtype,
        help="of weights and passes; auto = the faster of float32 and bfloat16 here, by measuring "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--quantize",
        choices=QUANTIZATIONS,
        help="round the target's weights; plain and drafted decoding share the rounded ones, and "
        "the text is that of the rounded model",
    )
    group.add_argument(
        "--batch-invariant",
        nargs="?",
        const="auto",
        default=batch_invariant,
        type=values.batch_invariant,
        metavar="ROWS",
        help="pad every target pass to ROWS rows, so that a token's logits do not depend on what "
        "is verified beside it: plain and drafted text are then equal in any dtype. auto = the "
        "drafter's block size; off (default: %(default)s)",
    )
    group.add_argument("--device", help="torch device of the models (default: chosen by torch)")
    add_threads(group)


def add_engine_args(parser: ArgumentParser, *, reuse: bool, has_width: bool = True) -> None:
    """What runs the models, how wide it drafts and how much memory it may take.

    `has_width`: False for a command with a width flag of its own.
    """
    group = parser.add_argument_group("engine")
    group.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="native = our own decoder, for dense Llama-like models; hf = transformers, for any; "
        "auto (default) = native where it fits (`blockdraft inspect --target MODEL` says whether)",
    )
    if has_width:
        width = group.add_mutually_exclusive_group()
        width.add_argument(
            "--width",
            metavar="auto|off|fixed:N",
            help="tokens of a block, anchor included. auto (default): chosen at every step from "
            "what passes cost here and how much is accepted; where drafting does not pay it costs "
            "at most about 1%%; off: plain decoding; fixed:N: always N, at most what the drafter "
            "was made for",
        )
        width.add_argument(
            "--block-size",
            type=values.fixed_width,
            dest="width",
            metavar="N",
            help="another name of --width fixed:N",
        )
    group.add_argument(
        "--compile",
        action="store_true",
        help="verify in fixed shapes through torch.compile; each shape is compiled when it first "
        "occurs (up to a minute, kept in torch's cache) and used only if it is faster",
    )
    group.add_argument(
        "--max-context",
        type=values.count,
        metavar="N",
        help="tokens of one prompt and its answer together (default: the target's limit, at most "
        "8192)",
    )
    add_kv_memory(group)
    if reuse:
        group.add_argument(
            "--no-prefix-reuse",
            action="store_true",
            help="compute every prompt anew, also where it begins like an earlier one",
        )


def add_prompt_args(parser: ArgumentParser, *, default: str) -> None:
    """Where prompts come from and how they become token ids."""
    group = parser.add_argument_group("prompts")
    group.add_argument("prompt", nargs="?", help=f"one prompt (default: {default})")
    group.add_argument(
        "--prompts",
        metavar="FILE",
        help='JSON lines of the shape {"id": "a", "category": "math", "turns": ["first user '
        'turn", ...]}',
    )
    group.add_argument("--limit", type=values.count, metavar="N", help="only the first N of FILE")
    group.add_argument(
        "--prompt-ids",
        type=values.id_list,
        metavar="IDS",
        help="a prompt as token ids, like 12,7,99, for models without a tokenizer",
    )
    add_chat_args(group)


def add_chat_args(group: Group) -> None:
    """How a prompt becomes token ids."""
    group.add_argument("--raw", action="store_true", help="do not apply the chat template")
    group.add_argument("--system", metavar="TEXT", help="a system message before the first turn")
    add_template_arg(group)


def add_template_arg(group: Group) -> None:
    """Variables of the chat template: pairs of name and value in `template_arg`."""
    group.add_argument(
        "--template-arg",
        action="append",
        default=[],
        type=values.template_arg,
        metavar="KEY=VALUE",
        help="a variable for the chat template, like enable_thinking=false; repeatable",
    )


def add_kv_memory(group: Group) -> None:
    """The memory of the caches, in bytes; None = half of what is free."""
    group.add_argument(
        "--kv-memory",
        type=values.byte_count,
        metavar="SIZE",
        help="memory for keys and values of target and drafter, like 500MB, 2GB or 1GiB (default: "
        "half of what is free once the models are loaded)",
    )


def add_threads(group: ArgumentParser | Group) -> None:
    """How many threads torch computes with; not given, nothing sets torch's own number."""
    group.add_argument(
        "--threads",
        type=values.thread_count,
        metavar="N",
        help="CPU threads of torch (default: torch's own number, which OMP_NUM_THREADS sets)",
    )


def add_sampling_args(parser: ArgumentParser) -> None:
    """One flag for each setting of `SamplingParams` that changes which tokens come out."""
    group = parser.add_argument_group("sampling")

    def add(flag: str, kind: type[int] | type[float], text: str) -> None:
        metavar = "N" if kind is int else "X"
        group.add_argument(flag, type=kind, metavar=metavar, help=text)

    add("--max-new-tokens", int, "at most so many tokens an answer (default: 256)")
    add("--temperature", float, "0 = greedy (default: 0)")
    add("--top-k", int, "only the K most likely tokens; 0 = off (default: 0)")
    add("--top-p", float, "only the most likely tokens that reach probability X (default: 1)")
    add("--min-p", float, "only tokens of at least X times the highest probability (default: 0)")
    add("--repetition-penalty", float, "divides logits of tokens seen before (default: 1)")
    add("--presence-penalty", float, "taken off logits of tokens in the output (default: 0)")
    add("--frequency-penalty", float, "the same, times their number (default: 0)")
    add("--min-tokens", int, "no stop before so many tokens (default: 0)")
    add("--seed", int, "makes sampling repeatable, whatever the drafter (default: a random one)")
    add("--max-draft-tokens", int, "at most so many drafts a step; 0 = plain (default: no limit)")
    group.add_argument(
        "--law",
        choices=("argmax", "sampled"),
        help="what drafts are taken to be: argmax (default) gives plain decoding's very tokens for "
        "a seed, sampled gives its distribution",
    )
    group.add_argument(
        "--logit-bias",
        action="append",
        type=values.bias,
        metavar="ID=VALUE",
        help="added to the logit of one token; repeatable",
    )
    group.add_argument(
        "--allowed-ids", type=values.id_list, metavar="IDS", help="no tokens but these"
    )
    group.add_argument("--banned-ids", type=values.id_list, metavar="IDS", help="never these")
    group.add_argument(
        "--bad-words",
        action="append",
        metavar="TEXT",
        help="a word that may not be written, alone or after a space; repeatable",
    )
    group.add_argument(
        "--stop-ids",
        type=values.id_list,
        metavar="IDS",
        help="token ids that end an answer, besides the model's own",
    )
    group.add_argument(
        "--stop", action="append", metavar="TEXT", help="text that ends an answer; repeatable"
    )
    group.add_argument(
        "--ignore-eos",
        action="store_true",
        default=None,
        help="do not stop at the model's own end-of-sequence tokens",
    )
