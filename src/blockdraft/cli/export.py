"""`blockdraft export`: write a pair, or a drafter alone, for another engine; or read one from it.

Arguments only; the work is in `interop/export.py`.
"""

from argparse import ArgumentParser, Namespace

from blockdraft.cli import values
from blockdraft.cli.args import DEFAULT_TARGET

SUMMARY = "write a drafter for vLLM, SGLang, TensorRT-LLM, OpenVINO or llama.cpp, or read one back"
FORMATS = ("hf", "speculators", "gguf")
OUTTYPES = ("f32", "bf16", "f16", "q8_0")
EPILOG = """examples:
  blockdraft export --format hf --out ./smollm2-dflash
  blockdraft export --format speculators --target owner/model --drafter ./mine --out ./for-vllm
  blockdraft export --format gguf --outtype q8_0 --out ./for-llamacpp
  blockdraft export --format hf --target ./model --drafter ./theirs.gguf --out ./read-here \\
    --keep-draft-vocabulary

formats:
  hf           the published folder: vLLM, SGLang, TensorRT-LLM, OpenVINO, MLX. A reduced draft
               vocabulary is left out (drafts then come from the target's whole head, which holds
               it), unless --keep-draft-vocabulary, for Blockdraft.
  speculators  one folder that `vllm serve` takes by itself: layer ids one higher, the target's
               embedding and head rows inside.
  gguf         target.gguf and drafter.gguf for llama.cpp, reduced vocabulary included.

The drafter may be a built-in name, an HF or speculators folder, a hub id, a .gguf file or a
DeepSpec folder: exporting to hf is how to read a foreign one. What a format can't say is refused
with the reason; nothing is approximated. The folder appears whole or not at all, after it was read
back and compared, with provenance.json and a model card (README.md).
docs/export.md has the formats in full; `blockdraft check` looks for what engines trip over.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--format", required=True, choices=FORMATS, help="see below")
    parser.add_argument(
        "--out",
        required=True,
        type=values.new_folder,
        metavar="DIR",
        help="new (or empty) folder to write",
    )
    parser.add_argument(
        "--target",
        default=DEFAULT_TARGET,
        metavar="MODEL",
        help="built-in name, folder, GGUF file or hub id that the drafter is for "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--drafter",
        metavar="MODEL",
        help="drafter in any readable format (default: the built-in one of a built-in target)",
    )
    parser.add_argument("--revision", help="commit, tag or branch of a target from the hub")
    parser.add_argument("--drafter-revision", metavar="REVISION", help="the same for the drafter")
    parser.add_argument(
        "--taps",
        type=values.id_list,
        metavar="LAYERS",
        help="zero-based target layers, like 1,8,14, for a drafter that does not say; others than "
        "it records are refused",
    )
    parser.add_argument(
        "--outtype",
        choices=OUTTYPES,
        help="type of the weights (default: the drafter's own); q8_0 for gguf only",
    )
    parser.add_argument(
        "--verifier",
        metavar="MODEL",
        help="speculators: the name by which vLLM loads the target (default: its folder or hub id)",
    )
    parser.add_argument(
        "--keep-draft-vocabulary",
        action="store_true",
        help="hf: keep a reduced vocabulary, which Blockdraft reads and other engines do not",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(args: Namespace) -> int:
    from blockdraft.api import choose_drafter
    from blockdraft.cli.console import emit, emit_json, say_progress
    from blockdraft.cli.export_report import render_report
    from blockdraft.cli.signals import ended_by_sigterm
    from blockdraft.errors import ConfigError
    from blockdraft.interop.export import export_pair
    from blockdraft.interop.order import ExportOrder

    drafter = choose_drafter(args.target, args.drafter, revision=args.drafter_revision)
    if drafter in ("none", "prompt-lookup"):
        raise ConfigError(f"--drafter {drafter} has no weights to export; give a checkpoint")
    order = ExportOrder(
        format=args.format,
        target=args.target,
        drafter=drafter,
        out=args.out,
        outtype=args.outtype,
        revision=args.revision,
        drafter_revision=args.drafter_revision,
        taps=args.taps,
        verifier=args.verifier,
        keep_draft_vocabulary=args.keep_draft_vocabulary,
    )
    with ended_by_sigterm():
        report = export_pair(order, report=say_progress)
    if args.json:
        emit_json(report.to_json(), indent=2)
    else:
        emit(render_report(report))
    return 0
