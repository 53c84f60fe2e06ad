"""`blockdraft serve`: an OpenAI-compatible server for a target and its drafter.

Arguments and settings only; the models, the engine and HTTP are in `serving.py`.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from blockdraft.cli.serve_file import read_config_file
from blockdraft.cli.serve_flags import SETTINGS, add_settings
from blockdraft.cli.serve_settings import ServeSettings
from blockdraft.errors import ConfigError

EXTRA = ("fastapi", "pydantic", "uvicorn", "prometheus_client", "xgrammar")
"""What the extra `serve` installs."""

SUMMARY = "serve a model over HTTP, in the shape of OpenAI's API"
EPILOG = """examples:
  blockdraft serve                                     the built-in pair on http://127.0.0.1:8000
  blockdraft serve --target ./model --drafter ./drafter --port 9000
  blockdraft serve --config blockdraft.toml --log-format json
  BLOCKDRAFT_API_KEY=secret blockdraft serve --host 0.0.0.0
  blockdraft serve --config blockdraft.toml --check    say what would be served, and exit

  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\
      -d '{"messages": [{"role": "user", "content": "Why is the sky blue?"}]}'

Every flag is also a key of the configuration file: --max-context 4096 is max_context = 4096. Flags
win over the file. docs/serving.md is the operator's guide.

SIGTERM and Ctrl-C: new requests are refused, accepted ones finish (--drain-timeout), then it ends
with exit code 0; a second signal ends it at once. Exit code 1: the engine died. 2: a mistake in the
settings, a port in use, a model that is missing or does not fit.
"""


def add_arguments(parser: ArgumentParser) -> None:
    add_settings(parser)
    other = parser.add_argument_group("other")
    other.add_argument(
        "--config", type=Path, metavar="FILE", help="settings from a TOML file; flags win over it"
    )
    other.add_argument(
        "--check",
        action="store_true",
        help="check settings and drafter, print what is set as JSON, and exit; the target is not "
        "loaded",
    )


def run(args: Namespace) -> int:
    settings = resolve(args)
    require(EXTRA)

    from blockdraft.cli.serving import check, serve

    return check(settings) if args.check else serve(settings)


def resolve(args: Namespace) -> ServeSettings:
    """Flags over file over defaults. Raises ConfigError."""
    path: Path | None = args.config
    chosen = {} if path is None else read_config_file(path)
    for setting in SETTINGS:
        if hasattr(args, setting.key):
            given: object = getattr(args, setting.key)
            many = cast("list[object]", given) if isinstance(given, list) else None
            chosen[setting.key] = given if many is None else tuple(many)
    return _made(ServeSettings, chosen)


def _made(make: Callable[..., ServeSettings], values: Mapping[str, object]) -> ServeSettings:
    """Each value was converted for its key, which types can't tell."""
    return make(**values)


def require(packages: tuple[str, ...]) -> None:
    """Raises ConfigError where one of `packages` is not installed."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"serving needs {', '.join(missing)}, not installed here: "
            "pip install 'blockdraft[serve]'"
        )
