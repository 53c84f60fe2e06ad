"""`blockdraft models`: the models that come with Blockdraft.

It looks at the cache directory and fetches nothing.
"""

from argparse import ArgumentParser, Namespace

SUMMARY = "list the built-in models"
EPILOG = """examples:
  blockdraft models
  blockdraft models --json

A built-in target is downloaded once, when it is first used; its drafter is part of the package.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(args: Namespace) -> int:
    from blockdraft.builtin import builtin_drafter_path, builtin_models
    from blockdraft.cli.console import emit, emit_json

    listing: list[dict[str, object]] = []
    for model in builtin_models():
        drafter = builtin_drafter_path(model.name)
        listing.append(
            {
                "name": model.name,
                "description": model.description,
                "license": model.licence,
                "cached": model.cached,
                "path": str(model.path),
                "download_bytes": model.download_bytes,
                "drafter": None if drafter is None else str(drafter),
            }
        )
        if not args.json:
            size = f"{model.download_bytes / 1e6:.0f} MB"
            state = f"cached in {model.path}" if model.cached else f"to be downloaded: {size}"
            emit(f"{model.name:<10} {model.description}, {model.licence}, {state}")
            emit(f"{'':<10} drafter: {'none' if drafter is None else drafter}")
    if args.json:
        emit_json({"models": listing}, indent=2)
    return 0
