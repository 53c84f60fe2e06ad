"""`load_pair`: the target and the drafter that the arguments name, and what they are run on.

It loads and reports; decoding is done by its callers.
"""

import logging
from argparse import Namespace
from dataclasses import dataclass
from typing import Protocol

import torch

from blockdraft.api import TextTarget, load_drafter, load_target
from blockdraft.builtin import builtin_drafter_path
from blockdraft.checkpoint import build_drafter, load_checkpoint
from blockdraft.checkpoint.contents import DrafterCheckpoint
from blockdraft.cli.console import say_progress
from blockdraft.cli.default_drafter import (
    settle_drafter,
    warn_of_other_files,
    warn_of_thinking,
)
from blockdraft.cli.hardware import describe_hardware
from blockdraft.cli.values import BatchInvariant
from blockdraft.decoding import Drafter
from blockdraft.engine import WidthMode, fast_drafter, parse_width
from blockdraft.engine.build import LoadedTarget
from blockdraft.errors import ConfigError
from blockdraft.native import NativeTarget
from blockdraft.target import HFTarget
from blockdraft.target.load import DTYPES

UNTRAINED_BLOCK_SIZE = 8
"""The block of prompt lookup, which was not trained for one."""

NOT_TRAINED = ("none", "prompt-lookup")

_LOGGER = logging.getLogger("blockdraft")


class PairTarget(TextTarget, LoadedTarget, Protocol):
    """A target that an engine can run, with its tokenizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a measured figure depends on, so that nobody has to guess it.

    `block_size` is the widest block of the drafter, `width` what was asked for.
    """

    target: str
    drafter: str
    block_size: int
    width: str
    engine: str
    dtype: str
    quantize: str | None
    batch_invariant: int | None
    device: str
    threads: int
    hardware: str
    software: str


@dataclass(frozen=True, slots=True)
class Pair:
    """A target, a drafter that fits it, the width they run at and all other conditions."""

    target: PairTarget
    drafter: Drafter
    width: WidthMode
    conditions: Conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenDrafter:
    """What is known of the drafter before the target is loaded.

    `checkpoint` is None for a drafter without weights. `block_size` is its widest block.
    """

    name: str
    checkpoint: DrafterCheckpoint | None
    block_size: int
    width: WidthMode

    @property
    def most_rows(self) -> int:
        """The widest pass that verifies its drafts."""
        return min(self.block_size, self.width.width or self.block_size)


def load_pair(args: Namespace) -> Pair:
    """Load what the model and engine arguments describe, the drafter's checkpoint checked first.

    Raises the errors of `load_target` and `load_drafter`, and ConfigError where no drafter is
    given and none is known.
    """
    chosen = choose_checked_drafter(args)
    threads: int | None = args.threads
    rows = _invariant_rows(args.batch_invariant, chosen)
    if threads is not None:
        torch.set_num_threads(threads)
    target = load_chosen_target(args, rows)
    drafter = build_chosen_drafter(args, chosen, target)
    hardware = describe_hardware(str(target.device))
    conditions = Conditions(
        target=args.target,
        drafter=chosen.name,
        block_size=drafter.block_size,
        width=str(chosen.width),
        engine="native" if isinstance(target, NativeTarget) else "hf",
        dtype=str(target.dtype).removeprefix("torch."),
        quantize=args.quantize,
        batch_invariant=rows,
        device=str(target.device),
        threads=torch.get_num_threads(),
        hardware=hardware.machine,
        software=hardware.software,
    )
    return Pair(target, drafter, chosen.width, conditions)


def load_chosen_target(
    args: Namespace, batch_invariant: int | None, dtype: str | None = None
) -> NativeTarget | HFTarget:
    """The target that the arguments name, its passes padded to so many rows or not at all."""
    say_progress(f"loading target {args.target} in {dtype or args.dtype}")
    return load_target(
        args.target,
        engine=args.engine,
        dtype=dtype or args.dtype,
        device=_checked_device(args.device),
        revision=args.revision,
        batch_invariant=batch_invariant,
        quantize=args.quantize,
        report=say_progress,
    )


def choose_checked_drafter(args: Namespace) -> ChosenDrafter:
    """The drafter that the arguments name, its checkpoint read and its width clamped.

    Reading it before the target is loaded finds a bad checkpoint in a second, not a minute.
    """
    name = settle_drafter(args)
    taps: tuple[int, ...] | None = args.taps
    revision: str | None = args.drafter_revision
    width = parse_width(args.width or "auto")
    if name in NOT_TRAINED and (taps is not None or revision is not None):
        raise ConfigError(f"--drafter {name} has no checkpoint; drop --taps, --drafter-revision")
    if name == "none":
        if args.width is not None and width.kind != "off":
            raise ConfigError(
                "--drafter none drafts nothing, so --width (or --block-size) means nothing; drop it"
            )
        return ChosenDrafter(name=name, checkpoint=None, block_size=1, width=WidthMode("off"))
    if name in NOT_TRAINED:
        block_size = width.width or UNTRAINED_BLOCK_SIZE
        return ChosenDrafter(name=name, checkpoint=None, block_size=block_size, width=width)
    warn_of_thinking(args, name)
    path = builtin_drafter_path(name) or name
    checkpoint = load_checkpoint(path, revision=revision, taps=taps, dtype=DTYPES.get(args.dtype))
    pinned = name if revision is None else f"{name}@{revision}"
    warn_of_other_files(pinned, checkpoint.config)
    trained = checkpoint.config.block_size
    if width.width is not None and width.width > trained:
        _LOGGER.warning(
            "width %d is cut to %d tokens (anchor included), what %s was made for",
            width.width,
            trained,
            name,
        )
        width = WidthMode("fixed", trained)
    return ChosenDrafter(name=name, checkpoint=checkpoint, block_size=trained, width=width)


def build_chosen_drafter(
    args: Namespace, chosen: ChosenDrafter, target: NativeTarget | HFTarget
) -> Drafter:
    """The drafter beside the loaded target, in its fast form. Raises CheckpointError."""
    checkpoint = chosen.checkpoint
    if checkpoint is None:
        return load_drafter(chosen.name, target, block_size=chosen.block_size)
    if DTYPES.get(args.dtype) != target.dtype:
        # The dtype was chosen by measuring, after the checkpoint was checked in its own.
        path = builtin_drafter_path(chosen.name) or chosen.name
        checkpoint = load_checkpoint(
            path, revision=args.drafter_revision, taps=args.taps, dtype=target.dtype
        )
    return fast_drafter(target, build_drafter(checkpoint, target, device=target.device))


def _invariant_rows(asked: BatchInvariant, chosen: ChosenDrafter) -> int | None:
    if asked == "off":
        return None
    width = chosen.most_rows
    if asked == "auto":
        if chosen.name == "none":
            raise ConfigError(
                "--batch-invariant without a drafter needs its number of rows, the block size that "
                f"the text is to be compared with: --batch-invariant {UNTRAINED_BLOCK_SIZE}"
            )
        return max(width, 3)
    if chosen.name != "none" and asked < width:
        raise ConfigError(
            f"--batch-invariant {asked} is narrower than a block of {width}; give at least {width}"
        )
    return asked


def _checked_device(device: str | None) -> torch.device | None:
    if device is None:
        return None
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n")[0]
        raise ConfigError(f"--device {device} can't be used: {reason}") from error
