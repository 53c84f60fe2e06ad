"""`blockdraft train`: train a drafter from a recipe, or say what that would cost.

Arguments only; the work is in `training_run.py` and `training_plan.py`.
"""

from argparse import ArgumentParser, Namespace

from blockdraft.cli import values
from blockdraft.cli.args import add_threads

SUMMARY = "train a drafter from a recipe"
EPILOG = """examples:
  blockdraft train smollm2-cpu --plan
  blockdraft train qwen3-8b --plan --assume 800000,150,600
  blockdraft train smollm2-cpu --out runs/smollm2
  blockdraft train my-recipe.toml --out runs/mine --set optimizer.muon_lr=2e-3 --set run.epochs=3
  torchrun --nproc-per-node 8 -m blockdraft.cli.main train qwen3-8b --out runs/qwen3-8b
  torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \\
      -m blockdraft.cli.main train qwen3-8b --out /shared-disk/qwen3-8b --set run.sharding=fsdp

A recipe is a TOML file, or the name of one that comes with Blockdraft (--list shows them). Answers
come from `blockdraft data regenerate`. The same command goes on where a run stopped: SIGTERM and
Ctrl-C save first, and what is killed loses at most what came after the last checkpoint. The order
of the data and its anchors depend on the seed alone, not on the number of processes.

In the run folder: step-*/ (checkpoints), metrics.jsonl, curves.png, and at the end drafter/, which
`--drafter` takes everywhere.

Exit code 0: trained, or stopped by SIGTERM after saving. 1: it failed while running (a loss that is
not finite, no memory); the last checkpoint is intact. 2: a mistake in recipe, data or target. 130:
Ctrl-C, after saving.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "recipe", nargs="?", metavar="RECIPE", help="name of a recipe, or a TOML file"
    )
    parser.add_argument("--out", metavar="DIR", help="folder of the run; made if missing")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--plan",
        action="store_true",
        help="print memory, disk, operations and time, and train nothing",
    )
    what.add_argument("--list", action="store_true", help="list the recipes that come with it")
    what.add_argument(
        "--show", action="store_true", help="print the recipe with all its settings resolved"
    )
    parser.add_argument(
        "--assume",
        type=values.id_list,
        metavar="ANSWERS,PROMPT,ANSWER",
        help="with --plan, before there are answers: their number and the mean tokens of a prompt "
        "and of an answer, like 800000,150,600",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override one setting, like run.seed=1 (repeatable)",
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), help="where to train (default: cuda if there is one)"
    )
    add_threads(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document at the end")


def run(args: Namespace) -> int:
    from blockdraft.cli.training_run import list_recipes, show_recipe, train
    from blockdraft.errors import ConfigError

    if args.assume is not None and not args.plan:
        raise ConfigError("--assume belongs to --plan: add it, or leave --assume out to train")
    if args.list:
        return list_recipes(args)
    if args.show:
        return show_recipe(args)
    if args.plan:
        from blockdraft.cli.training_plan import print_plan

        return print_plan(args)
    return train(args)
