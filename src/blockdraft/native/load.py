"""`load_engine_target`: a target on the native decoder where it fits, else on transformers.

Reading files is `target/load.py`'s duty; this adds the choice of engine, dtype and quantization.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from transformers import PreTrainedModel

from blockdraft.errors import ConfigError, UnsupportedTarget
from blockdraft.native.config import why_not_native
from blockdraft.native.quantized import Quantize
from blockdraft.native.target import NativeOptions, NativeTarget
from blockdraft.native.tuning import faster_dtype
from blockdraft.target.hf import MOST_PASS_ROWS, HFTarget, check_pass_width
from blockdraft.target.load import Report, load_parts, parse_dtype
from blockdraft.target.quiet import quiet

EngineKind = Literal["auto", "native", "hf"]

SAMPLED_LAYERS = 4
"""Layers whose products are timed to choose a dtype."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """How a target is loaded for the engine.

    `engine` "auto" takes the native decoder when the model fits it. `dtype` "auto" takes the
    faster of float32 and bfloat16, by measuring. `tuned` off: nothing is chosen by timing, so that
    every load computes the same bits (`dtype` "auto" is bfloat16 then).
    """

    engine: EngineKind = "auto"
    dtype: str | torch.dtype = "float32"
    device: str | torch.device | None = None
    revision: str | None = None
    batch_invariant: int | None = None
    quantize: Quantize | None = None
    tuned: bool = True

    def __post_init__(self) -> None:
        if self.engine not in ("auto", "native", "hf"):
            raise ConfigError(f"engine {self.engine!r} is unknown: use auto, native or hf")
        if self.quantize not in (None, "int8", "int4"):
            raise ConfigError(f"quantize {self.quantize!r} is unknown: use int8 or int4")
        if self.quantize is not None and self.engine == "hf":
            raise ConfigError("quantize needs the native engine: drop --engine hf, or --quantize")


def load_engine_target(
    source: str | Path, options: TargetOptions | None = None, *, report: Report | None = None
) -> NativeTarget | HFTarget:
    """Load a target as `target.load_target` does, for speed.

    Raises what `load_target` raises, and UnsupportedTarget when the native engine is demanded (by
    `engine` or `quantize`) for a model that it does not fit.
    """
    options = options or TargetOptions()
    check_pass_width(options.batch_invariant, MOST_PASS_ROWS)
    say = report or _say_nothing
    wanted = options.dtype
    if wanted == "auto" and not options.tuned:
        wanted = torch.bfloat16
    parts = load_parts(
        source,
        dtype=torch.float32 if wanted == "auto" else parse_dtype(wanted),
        device=options.device,
        revision=options.revision,
        attn=None if options.batch_invariant is None else "eager",
        report=say,
    )
    if wanted == "auto":
        chosen = _choose_dtype(parts.model)
        say(f"{str(chosen).removeprefix('torch.')} is the faster dtype here")
        for weight in parts.model.parameters():
            weight.data = weight.data.to(chosen)
    name = str(source)
    reason = why_not_native(parts.model.config)
    demanded = options.engine == "native" or options.quantize is not None
    if reason is not None and demanded:
        raise UnsupportedTarget(f"{name} does not fit the native engine: {reason}")
    if options.engine == "hf" or reason is not None:
        if reason is not None:
            say(f"{name} runs on transformers: {reason}")
        with quiet():
            return HFTarget(
                parts.model, name=name, text=parts.text, batch_invariant=options.batch_invariant
            )
    return NativeTarget(
        parts.model,
        name=name,
        text=parts.text,
        options=NativeOptions(
            batch_invariant=options.batch_invariant,
            quantize=options.quantize,
            tuned=options.tuned,
        ),
    )


def _choose_dtype(model: PreTrainedModel) -> torch.dtype:
    """By timing the products of a few layers in both dtypes."""
    weights = [weight.detach() for weight in model.parameters() if weight.dim() == 2]
    return faster_dtype(weights[: 1 + 7 * SAMPLED_LAYERS], time.perf_counter)


def _say_nothing(line: str) -> None:
    pass
