"""Loads who answers when training data is made: an engine in this process, or a tokenizer alone.

What is asked is in `data/`.
"""

import json
from argparse import Namespace
from pathlib import Path
from typing import NamedTuple, cast

from blockdraft.cli.console import say, say_progress
from blockdraft.cli.engines import engine_config, open_engine
from blockdraft.cli.pair import load_pair
from blockdraft.data.in_process import InProcessGenerator
from blockdraft.data.rendering import Codec, Renderer, RenderingConfig
from blockdraft.errors import ConfigError
from blockdraft.json_values import as_list
from blockdraft.target.fingerprint import fingerprint_of
from blockdraft.target.folder import read_json
from blockdraft.target.hf_load import load_text
from blockdraft.target.load import resolve_source


class Writer(NamedTuple):
    """The target as far as prompts and answers are concerned."""

    renderer: Renderer
    vocab_size: int


class LocalWriter(NamedTuple):
    """The same, with the engine that writes. `max_context` is what the engine has room for."""

    renderer: Renderer
    vocab_size: int
    source: InProcessGenerator
    max_context: int


def load_local(args: Namespace, *, settings_file: Path) -> LocalWriter:
    """The target and an engine with many slots. Raises what loading a pair raises.

    A dtype that is not named is that of `settings_file`, where a run to be continued left one.
    """
    args.dtype = recorded_dtype(settings_file) or args.dtype if args.dtype == "auto" else args.dtype
    pair = load_pair(args)
    limit = pair.target.spec.max_context_len
    if limit is not None and limit < args.max_context:
        say(f"--max-context is cut to the {limit} tokens that the target was made for")
        args.max_context = limit
    writer = _writer(args, pair.target.text, pair.target.spec.stop_ids, pair.target.spec.vocab_size)
    built = open_engine(pair, engine_config(args, pair.width, slots=args.slots))
    say_progress(built.banner)
    conditions = pair.conditions
    settings: dict[str, object] = {
        "kind": "in_process",
        "target": conditions.target,
        "revision": args.revision,
        "dtype": conditions.dtype,
        "quantize": conditions.quantize,
    }
    notes: dict[str, object] = {
        "target_fingerprint": fingerprint_of(pair.target),
        "engine": conditions.engine,
        "drafter": conditions.drafter,
        "width": conditions.width,
        "slots": args.slots,
        "hardware": conditions.hardware,
        "software": conditions.software,
    }
    source = InProcessGenerator(built.engine, args.slots, settings, notes)
    return LocalWriter(*writer, source, built.capacity.max_context)


def load_tokenizer(args: Namespace) -> Writer:
    """The target's tokenizer and what its configuration says, no weights.

    Raises CheckpointError for a target that is not there, ConfigError for one without a tokenizer.
    """
    folder = resolve_source(args.target, args.revision, say_progress)
    codec = load_text(folder, args.target)
    config = read_json(folder / "config.json")
    generation = folder / "generation_config.json"
    ends = read_json(generation).get("eos_token_id") if generation.exists() else None
    stop_ids = _id_tuple(config.get("eos_token_id") if ends is None else ends)
    size = config.get("vocab_size")
    known = codec.vocab_size if codec is not None else 0
    return _writer(args, codec, stop_ids, max(known, size if isinstance(size, int) else 0))


def recorded_dtype(settings_file: Path) -> str | None:
    """The dtype that an earlier run recorded; None where there is none."""
    try:
        settings = cast("dict[str, object]", json.loads(settings_file.read_text(encoding="utf-8")))
        dtype = cast("dict[str, object]", settings["source"])["dtype"]
    except (OSError, ValueError, KeyError, TypeError):
        return None  # a damaged file is refused with a message later
    return dtype if isinstance(dtype, str) else None


def _writer(
    args: Namespace, codec: Codec | None, stop_ids: tuple[int, ...], vocab_size: int
) -> Writer:
    if codec is None:
        raise ConfigError(
            f"{args.target} has no tokenizer, so no text can be given to it; add its tokenizer "
            "files to the folder"
        )
    template_args: list[tuple[str, object]] = args.template_arg
    config = RenderingConfig(
        raw=getattr(args, "raw", False), system=args.system, template_args=dict(template_args)
    )
    return Writer(Renderer(codec, config, stop_ids), vocab_size)


def _id_tuple(value: object) -> tuple[int, ...]:
    if isinstance(value, int):
        return (value,)
    return tuple(part for part in as_list(value) if isinstance(part, int))
