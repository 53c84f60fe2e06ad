"""Engines over a loaded pair, as the arguments limit them: one, or two side by side.

It chooses sizes and opens; decoding is in the engine.
"""

from argparse import Namespace
from dataclasses import dataclass, replace

from blockdraft.cli.console import say_progress
from blockdraft.cli.pair import Pair
from blockdraft.decoding import Drafter, NoDrafter
from blockdraft.engine import BuiltEngine, EngineConfig, Session, WidthMode, build_engine
from blockdraft.engine.config import PREFILL_ROWS


def engine_config(args: Namespace, width: WidthMode, *, slots: int = 1) -> EngineConfig:
    """The engine arguments; a command without `--no-prefix-reuse` reuses no prefixes."""
    return EngineConfig(
        slots=slots,
        max_context=args.max_context,
        kv_memory=args.kv_memory,
        compiled=args.compile,
        width=width,
        prefill_rows=getattr(args, "prefill_chunk", PREFILL_ROWS),
        reuse_prefixes=not getattr(args, "no_prefix_reuse", True),
    )


def open_engine(pair: Pair, config: EngineConfig, drafter: Drafter | None = None) -> BuiltEngine:
    """An engine on the pair's target, with its drafter or with another one."""
    codec = pair.target.text
    return build_engine(
        pair.target,
        pair.drafter if drafter is None else drafter,
        config,
        decode_text=None if codec is None else codec.decode,
        report=say_progress,
    )


@dataclass(frozen=True, slots=True)
class Lanes:
    """Plain decoding and decoding with a drafter: two engines on the same target weights."""

    plain: Session
    drafted: Session


def open_plain(pair: Pair, config: EngineConfig) -> Session:
    """Plain decoding: no drafter, nothing tapped."""
    config = replace(config, width=WidthMode("off"))
    return Session(open_engine(pair, config, NoDrafter()).engine)


def open_lanes(pair: Pair, config: EngineConfig) -> Lanes:
    """Both engines, neither of which reuses what the other has computed."""
    return Lanes(open_plain(pair, config), Session(open_engine(pair, config).engine))
