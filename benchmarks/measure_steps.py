"""What one step costs: weights streamed, plain steps, drafted steps, steps over long contexts.

Figures are medians; compared figures are taken in turn within one run.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

import ours
from blockdraft.api import load_drafter
from blockdraft.engine import BuiltEngine
from blockdraft.native import NativeTarget
from blockdraft.native.segments import Segment

CONTEXTS = (256, 1024, 2048, 4096, 8000)
NEW_TOKENS = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """Milliseconds, and bytes of the weights that a pass reads."""

    weight_bytes: int
    stream_ms: float
    plain_ms: float
    drafted_ms: float
    random16_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCost:
    """One plain pass and one pass of 8 rows behind `context_len` tokens of one request."""

    context_len: int
    kv_bytes: int
    plain_ms: float
    verify8_ms: float


def measure_steps(target: NativeTarget, prompt: Sequence[int], repeats: int) -> StepCosts:
    """Whole engine steps of one request: plain, with the built-in drafter, with a random one."""
    plain = ours.make_engine(target, None, "off")
    drafted = ours.make_engine(target, load_drafter("smollm2", target), "fixed:8")
    random16 = ours.make_engine(target, ours.random_drafter(target, 16), "fixed:16")
    weights = _weights(target)
    figures: dict[str, list[float]] = {"stream": [], "plain": [], "drafted": [], "random16": []}
    for repeat in range(repeats + 1):
        taken = {
            "stream": _stream_ms(weights),
            "plain": _step_ms(plain, prompt),
            "drafted": _step_ms(drafted, prompt),
            "random16": _step_ms(random16, prompt),
        }
        if repeat:  # the first round warms up
            for name, value in taken.items():
                figures[name].append(value)
    return StepCosts(
        weight_bytes=sum(w.numel() * w.element_size() for w in weights),
        stream_ms=median(figures["stream"]),
        plain_ms=median(figures["plain"]),
        drafted_ms=median(figures["drafted"]),
        random16_ms=median(figures["random16"]),
    )


def measure_contexts(target: NativeTarget, repeats: int) -> list[ContextCost]:
    """The cost of passes and the memory of keys and values as one context grows."""
    model = target.model
    pool = model.new_pool(max(CONTEXTS) + 16)
    pool.tensor.zero_()
    costs: list[ContextCost] = []
    for context_len in CONTEXTS:
        timed: dict[int, list[float]] = {1: [], 8: []}
        for repeat in range(repeats + 1):
            for rows, figures in timed.items():
                segment = Segment(0, context_len, rows)
                ids = torch.ones(rows, dtype=torch.long)
                ms = _time_ms(lambda i=ids, s=segment: model.forward(i, [s], pool))
                if repeat:
                    figures.append(ms)
        costs.append(
            ContextCost(
                context_len=context_len,
                kv_bytes=context_len * pool.bytes_per_token,
                plain_ms=median(timed[1]),
                verify8_ms=median(timed[8]),
            )
        )
    return costs


def _step_ms(built: BuiltEngine, prompt: Sequence[int]) -> float:
    stats = ours.answer(built, prompt, NEW_TOKENS).stats
    return (stats.seconds - stats.prefill_seconds) / stats.steps * 1e3


def _weights(target: NativeTarget) -> list[torch.Tensor]:
    """Random matrices of the sizes that one pass multiplies by."""
    return [
        torch.rand(linear.num_out, linear.num_in).to(target.dtype)
        for linear in target.model.weights.linears
    ]


def _stream_ms(weights: Sequence[torch.Tensor]) -> float:
    """Reading all weights once: the fastest of three sums over their bytes as float32."""
    views = [weight.view(torch.float32).flatten() for weight in weights]
    return min(_time_ms(lambda: [view.sum() for view in views]) for _ in range(3))


def _time_ms(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) * 1e3
