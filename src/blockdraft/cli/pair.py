"""`load_pair`: the target and the drafter that the arguments name, and what they are run on.

It loads and reports; decoding is done by its callers.
"""

import logging
from argparse import Namespace
from dataclasses import dataclass

import torch

from blockdraft.api import TextTarget, load_drafter, load_target
from blockdraft.builtin import builtin_drafter_path
from blockdraft.checkpoint import load_checkpoint
from blockdraft.cli.console import say_progress
from blockdraft.cli.hardware import describe_hardware
from blockdraft.cli.values import BatchInvariant
from blockdraft.decoding import Drafter
from blockdraft.errors import ConfigError
from blockdraft.target import HFTarget

UNTRAINED_BLOCK_SIZE = 8
"""The block of prompt lookup, which was not trained for one."""

_LOGGER = logging.getLogger("blockdraft")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a measured figure depends on, so that nobody has to guess it."""

    target: str
    drafter: str
    block_size: int
    dtype: str
    batch_invariant: int | None
    device: str
    threads: int
    hardware: str
    software: str


@dataclass(frozen=True, slots=True)
class Pair:
    """A target, a drafter that fits it, and the conditions they run under."""

    target: TextTarget
    drafter: Drafter
    conditions: Conditions


def load_pair(args: Namespace) -> Pair:
    """Load what `add_model_args` describes, the drafter's checkpoint checked first.

    Raises the errors of `load_target` and `load_drafter`, and ConfigError where no drafter is
    given and none is known.
    """
    drafter_name = choose_drafter(args.target, args.drafter)
    taps: tuple[int, ...] | None = args.taps
    block_size: int | None = args.block_size
    revision: str | None = args.drafter_revision
    threads: int | None = args.threads
    _check_drafter_args(drafter_name, taps, block_size, revision)
    trained = _trained_block_size(drafter_name, taps, revision)
    if trained is not None and block_size is not None and block_size > trained:
        # The drafter's own warning would come only after the target is loaded.
        _LOGGER.warning(
            "block size %d is cut to %d, what %s was made for", block_size, trained, drafter_name
        )
        block_size = trained
    width = block_size or trained or UNTRAINED_BLOCK_SIZE
    rows = _invariant_rows(args.batch_invariant, args.dtype, drafter_name, width)
    if threads is not None:
        torch.set_num_threads(threads)
    target = load_chosen_target(args, rows)
    drafter = load_drafter(
        drafter_name, target, taps=taps, block_size=block_size, revision=revision
    )
    hardware = describe_hardware(str(target.device))
    conditions = Conditions(
        target=args.target,
        drafter=drafter_name,
        block_size=drafter.block_size,
        dtype=args.dtype,
        batch_invariant=rows,
        device=str(target.device),
        threads=torch.get_num_threads(),
        hardware=hardware.machine,
        software=hardware.software,
    )
    return Pair(target, drafter, conditions)


def load_chosen_target(args: Namespace, batch_invariant: int | None) -> HFTarget:
    """The target that the arguments name, its passes padded to so many rows or not at all."""
    say_progress(f"loading target {args.target} in {args.dtype}")
    return load_target(
        args.target,
        dtype=args.dtype,
        device=_checked_device(args.device),
        revision=args.revision,
        batch_invariant=batch_invariant,
        report=say_progress,
    )


def choose_drafter(target: str, drafter: str | None) -> str:
    """The drafter to use: the one given, or the built-in one of a built-in target."""
    if drafter is not None:
        return drafter
    if builtin_drafter_path(target) is not None:
        return target
    raise ConfigError(
        f"no drafter is known for {target}: give --drafter FOLDER or hub id, --drafter "
        "prompt-lookup, or --drafter none for plain decoding"
    )


def _check_drafter_args(
    drafter: str, taps: tuple[int, ...] | None, block_size: int | None, revision: str | None
) -> None:
    if drafter in ("none", "prompt-lookup") and (taps is not None or revision is not None):
        raise ConfigError(f"--drafter {drafter} has no checkpoint; drop --taps, --drafter-revision")
    if drafter == "none" and block_size is not None:
        raise ConfigError("--drafter none drafts nothing, so --block-size means nothing; drop it")


def _trained_block_size(
    drafter: str, taps: tuple[int, ...] | None, revision: str | None
) -> int | None:
    """The block size of a checkpoint; None for a drafter that is none.

    Reading it before the target is loaded also finds a bad checkpoint in a second, not a minute.
    """
    if drafter in ("none", "prompt-lookup"):
        return None
    path = builtin_drafter_path(drafter) or drafter
    return load_checkpoint(path, revision=revision, taps=taps).config.block_size


def _invariant_rows(asked: BatchInvariant, dtype: str, drafter: str, width: int) -> int | None:
    if asked == "off":
        return None
    if asked == "auto":
        if drafter == "none":
            raise ConfigError(
                "--batch-invariant without a drafter needs its number of rows, the block size that "
                f"the text is to be compared with: --batch-invariant {UNTRAINED_BLOCK_SIZE}"
            )
        return max(width, 3)
    if drafter != "none" and asked < width:
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
