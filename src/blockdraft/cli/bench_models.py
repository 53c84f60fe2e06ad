"""The target and all the drafters that `blockdraft bench` measures, loaded once.

Which lanes they make is the package `bench`.
"""

import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from blockdraft.bench.in_process import DrafterChoice
from blockdraft.builtin import builtin_drafter_path
from blockdraft.checkpoint.eagle3 import build_eagle3, load_eagle3
from blockdraft.cli.default_drafter import settle_drafter
from blockdraft.cli.pair import (
    build_chosen_drafter,
    choose_checked_drafter,
    load_chosen_target,
)
from blockdraft.decoding import Drafter
from blockdraft.engine import WidthMode
from blockdraft.errors import ConfigError
from blockdraft.native import NativeTarget
from blockdraft.native.eagle3 import fast_kernels
from blockdraft.target import HFTarget

PLAIN_ONLY = "none"
LOOKUP = "prompt-lookup"


@dataclass(frozen=True, slots=True)
class BenchModels:
    """What is measured. `invariant_rows`: rows that every verification is padded to, or None."""

    target: NativeTarget | HFTarget
    drafters: tuple[DrafterChoice, ...]
    invariant_rows: int | None


def load_models(args: Namespace, widths: tuple[WidthMode, ...]) -> BenchModels:
    """All drafters are checked before the target is loaded.

    `none` and `prompt-lookup` among them add nothing, since both are measured anyway. Raises the
    errors of `load_target` and `load_drafter`.
    """
    named: list[str] | None = args.drafter
    if named is None:
        named = [settle_drafter(Namespace(**vars(args)))]
    if len(set(named)) < len(named):
        raise ConfigError("--drafter: each drafter can be measured once; drop the second one")
    found = [_find(args, name) for name in named if name not in (PLAIN_ONLY, LOOKUP)]
    _check_widths(found, widths)
    rows = _invariant_rows(args, [one.block_size for one in found], widths)
    threads: int | None = args.threads
    if threads is not None:
        torch.set_num_threads(threads)
    target = load_chosen_target(args, rows)
    drafters = tuple(DrafterChoice(one.name, one.build(target)) for one in found)
    return BenchModels(target, drafters, rows)


@dataclass(frozen=True, slots=True)
class _Found:
    """A drafter whose checkpoint is read, to be built beside the target."""

    name: str
    block_size: int
    build: Callable[[NativeTarget | HFTarget], Drafter]


def _find(args: Namespace, name: str) -> _Found:
    """An EAGLE-3 drafter where the name leads to one, else a block drafter."""
    if builtin_drafter_path(name) is None and not Path(name).is_file():
        eagle3 = load_eagle3(name, revision=args.drafter_revision, taps=args.taps)
        if eagle3 is not None:
            kernels = fast_kernels(time.perf_counter)
            block_size = eagle3.facts.config.block_size
            return _Found(name, block_size, partial(build_eagle3, eagle3, kernels=kernels))
    of_one = Namespace(**{**vars(args), "drafter": name, "width": None})
    chosen = choose_checked_drafter(of_one)
    build = partial(build_chosen_drafter, of_one, chosen)
    return _Found(chosen.name, chosen.block_size, build)


def _check_widths(found: Sequence[_Found], widths: Sequence[WidthMode]) -> None:
    """Raises ConfigError where no drafter can draft any of `widths`."""
    asked = [width.width for width in widths if width.width is not None]
    most = max((one.block_size for one in found), default=None)
    if most is not None and len(asked) == len(widths) and min(asked) > most:
        raise ConfigError(
            f"--width fixed:{min(asked)} is wider than what "
            f"{found[0].name if len(found) == 1 else 'any of the drafters'} was made for; give "
            f"fixed:{most} or less"
        )


def _invariant_rows(
    args: Namespace, block_sizes: list[int], widths: tuple[WidthMode, ...]
) -> int | None:
    asked: int | str = args.batch_invariant
    if asked == "off":
        return None
    fixed = [width.width for width in widths if width.width is not None]
    widest = max(block_sizes, default=max(fixed, default=8))
    if isinstance(asked, int):
        if asked < widest:
            raise ConfigError(
                f"--batch-invariant {asked} is narrower than a block of {widest}; give at least "
                f"{widest}"
            )
        return asked
    return max(widest, 3)
