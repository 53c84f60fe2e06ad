"""`blockdraft models`: the models that come with Blockdraft, and the published drafters it knows.

It looks at the cache directory and fetches nothing.
"""

from argparse import ArgumentParser, Namespace
from typing import cast

from blockdraft.errors import ConfigError

SUMMARY = "list the built-in models, or all published drafters"
EPILOG = """examples:
  blockdraft models
  blockdraft models --json
  blockdraft models --published
  blockdraft models --published --target Qwen/Qwen3-8B

A built-in target is downloaded once, when it is first used; its drafter is part of the package.

--published lists every drafter checkpoint that is known to be published, by target: layout, block
size, layers, tapped target layers, size, thinking mode. With --target also notes, what is not known
and where it is from; --json has every field, null where it is not known. The drafter marked as
default is taken where a target is named by its hub id and no --drafter is given.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--published", action="store_true", help="the published drafters instead")
    parser.add_argument(
        "--target", metavar="MODEL", help="with --published: only those of this target, in full"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(args: Namespace) -> int:
    from blockdraft.cli.console import emit, emit_json

    if args.published:
        from blockdraft.cli.published_report import published_json, published_text, select

        entries = select(args.target)
        if args.json:
            emit_json(published_json(entries), indent=2)
        else:
            emit(published_text(entries, in_full=args.target is not None))
        return 0
    if args.target is not None:
        raise ConfigError("--target chooses among published drafters: add --published")
    listing = list_builtin()
    if args.json:
        emit_json({"models": listing}, indent=2)
        return 0
    for model in listing:
        size = f"{cast('int', model['download_bytes']) / 1e6:.0f} MB"
        state = f"cached in {model['path']}" if model["cached"] else f"to be downloaded: {size}"
        emit(f"{model['name']:<10} {model['description']}, {model['license']}, {state}")
        emit(f"{'':<10} drafter: {model['drafter'] or 'none'}")
    return 0


def list_builtin() -> list[dict[str, object]]:
    """The built-in targets as JSON objects."""
    from blockdraft.builtin import builtin_drafter_path, builtin_models

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
    return listing
