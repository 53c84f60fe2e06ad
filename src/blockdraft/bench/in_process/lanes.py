"""Lanes: what is measured side by side (plain, prompt lookup, each drafter at each width).

`choose_lanes` says which, `open_lane` makes the engine of one. Nothing is decoded here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from blockdraft.api import TextTarget
from blockdraft.bench.in_process.step_clock import StepClock
from blockdraft.bench.levels import LaneInfo, LaneKind
from blockdraft.decoding import Drafter, NoDrafter, PromptLookupDrafter
from blockdraft.drafter.dflash import DFlashDrafter
from blockdraft.drafter.eagle3 import Eagle3Drafter
from blockdraft.engine import BuiltEngine, EngineConfig, WidthMode, build_engine
from blockdraft.engine.build import LoadedTarget, Report
from blockdraft.errors import ConfigError
from blockdraft.native.drafting import PackedDrafter

PLAIN, LOOKUP, DFLASH, EAGLE3 = "plain", "prompt-lookup", "dflash", "eagle-3"


class BenchTarget(TextTarget, LoadedTarget, Protocol):
    """A target that an engine can run, with its tokenizer."""


@dataclass(frozen=True, slots=True)
class DrafterChoice:
    """A loaded drafter and the name that the user knows it by."""

    name: str
    drafter: Drafter


@dataclass(frozen=True, slots=True)
class LaneOrder:
    """A lane to be opened."""

    info: LaneInfo
    drafter: Drafter
    width: WidthMode


@dataclass(frozen=True, slots=True)
class OpenLane:
    """A lane with its engine, and the clock that sees the engine's steps.

    `warning` says what is not as it was asked for; empty where nothing is.
    """

    info: LaneInfo
    built: BuiltEngine
    clock: StepClock
    warning: str = ""


def choose_lanes(
    drafters: Sequence[DrafterChoice], widths: Sequence[WidthMode]
) -> tuple[LaneOrder, ...]:
    """Plain decoding and prompt lookup as baselines, then every drafter at every width.

    Prompt lookup has blocks as wide as the widest fixed width of a drafter (or as a drafter's
    block). A width above what a drafter was made for is left out; a drafter that all are above
    drafts its own block, and a note says so. Raises ConfigError for two lanes of one name.
    """
    drafted: list[LaneOrder] = []
    for choice in drafters:
        title = choice.name if len(drafters) > 1 else _title(choice)
        drafted += _of_drafter(choice, widths, title)
    fixed = [mode.width for mode in ([lane.width for lane in drafted] or widths) if mode.width]
    widest = max(fixed, default=0) or max((c.drafter.block_size for c in drafters), default=0) or 8
    plain = LaneInfo(name=PLAIN, kind="plain", width="off", block_size=1)
    lookup_info = LaneInfo(
        name=LOOKUP, kind="lookup", drafter=LOOKUP, width=f"fixed:{widest}", block_size=widest
    )
    lanes = [LaneOrder(plain, NoDrafter(), WidthMode("off"))]
    if widest > 1:
        lookup = PromptLookupDrafter(widest)
        lanes.append(LaneOrder(lookup_info, lookup, WidthMode("fixed", widest)))
    lanes += drafted
    names = [lane.info.name for lane in lanes]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"two lanes are called {twice!r}; name each drafter and width once")
    return tuple(lanes)


def _of_drafter(choice: DrafterChoice, widths: Sequence[WidthMode], title: str) -> list[LaneOrder]:
    drafter, most = choice.drafter, choice.drafter.block_size
    fitting = [width for width in widths if (width.width or 0) <= most]
    note = None
    if not fitting:
        fitting = [WidthMode("fixed", most)]
        note = f"all widths that were asked for are above its block of {most}, so it drafts that"
    lanes: list[LaneOrder] = []
    for width in fitting:
        info = LaneInfo(
            name=f"{title} {width}",
            kind=kind_of(drafter),
            drafter=choice.name,
            width=str(width),
            block_size=width.width or most,
            note=note,
        )
        lanes.append(LaneOrder(info, drafter, width))
    return lanes


def _title(choice: DrafterChoice) -> str:
    """What lanes of the only drafter are called: its kind."""
    return EAGLE3 if isinstance(choice.drafter, Eagle3Drafter) else DFLASH


def kind_of(drafter: Drafter) -> LaneKind:
    """How it drafts: a whole block in one pass, from the prompt, or (all others) by the token."""
    if isinstance(drafter, PackedDrafter | DFlashDrafter):
        return "block"
    return "lookup" if isinstance(drafter, PromptLookupDrafter) else "autoregressive"


def open_lane(
    target: BenchTarget, order: LaneOrder, config: EngineConfig, report: Report | None = None
) -> OpenLane:
    """The engine of a lane on the shared target; it reuses no prefixes. Raises ConfigError.

    `auto` needs to know what passes cost. With a drafter that fails when that is measured, its lane
    drafts at the widest block instead, as a fixed lane would: it shows, and the others go on.
    """
    try:
        return _open(target, order, config, report)
    except ConfigError:
        raise  # no memory for it, or settings that exclude each other
    except Exception as error:  # a drafter may be anything
        widest = order.drafter.block_size
        if order.width.kind != "auto" or widest < 2:
            raise
        warning = (
            f"what {order.info.drafter} costs can't be measured ({error}), so auto has nothing to "
            f"go by and drafts at fixed:{widest}"
        )
    if report is not None:
        report(f"{order.info.name}: {warning}")
    opened = _open(target, replace(order, width=WidthMode("fixed", widest)), config, report)
    return replace(opened, warning=warning)


def _open(
    target: BenchTarget, order: LaneOrder, config: EngineConfig, report: Report | None
) -> OpenLane:
    clock = StepClock()
    codec = target.text
    built = build_engine(
        target,
        order.drafter,
        replace(config, width=order.width, reuse_prefixes=False),
        decode_text=None if codec is None else codec.decode,
        report=report,
        observe=clock.observe,
    )
    return OpenLane(order.info, built, clock)
