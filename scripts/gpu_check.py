"""Checks a CUDA machine: the tests marked `gpu`, then step costs of an 8B-shaped random model.

    python scripts/gpu_check.py [--small] [--skip-tests]

Weights are random, so nothing would be accepted: acceptance is forced to given lengths by drafting
the answer that plain decoding gave. Prints a table and, as its last line, one JSON document.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import cast

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from blockdraft.decoding import DraftIds, NoDrafter, SamplingParams, collect, decode
from blockdraft.decoding.interfaces import Draft
from blockdraft.drafter import BlockDrafter, DFlashDrafter, DrafterConfig
from blockdraft.engine import Engine, EngineConfig, Failed, build_engine, parse_width
from blockdraft.engine.alarm import AcceptanceAlarm
from blockdraft.engine.engine import EngineParts
from blockdraft.engine.extents import Move
from blockdraft.engine.plan import SchedulerConfig
from blockdraft.engine.pooled import PooledDrafts, PooledTarget
from blockdraft.engine.scheduler import Scheduler
from blockdraft.engine.sides import DraftRequest, DraftRows, Extension
from blockdraft.engine.width import WidthController
from blockdraft.native import NativeTarget, PackedDrafter
from blockdraft.target import HFTarget

ROOT = Path(__file__).resolve().parent.parent
BLOCK = 16
NEW_TOKENS = 64
REPEATS = 5
CONCURRENCY = (1, 2, 4, 8, 16, 32, 64)
FEW = (1, 4)


@dataclass(frozen=True, slots=True)
class Shape:
    """A Qwen3-like target; the drafter has 5 layers of its sizes (the published shape)."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int


QWEN3_8B = Shape(4096, 12288, 36, 32, 8, 128, 151_936)
SMALL = Shape(512, 1024, 6, 8, 2, 64, 8192)


class ForcedDrafts:
    """Runs the drafter for its cost, then proposes `answers` with `lengths` right in turn."""

    can_copy = True

    def __init__(self, drafter: PackedDrafter, num_rows: int, lengths: Sequence[int]) -> None:
        self._inner = PooledDrafts(drafter, num_rows)
        self.block_size, self.taps = self._inner.block_size, self._inner.taps
        self.bytes_per_token = self._inner.bytes_per_token
        self.answers: dict[int, tuple[int, ...]] = {}
        self.prompt_lens: dict[int, int] = {}
        self._lengths = tuple(lengths)
        self._turn = 0

    def move(self, moves: Sequence[Move]) -> None:
        self._inner.move(moves)

    def extend(self, extensions: Sequence[Extension]) -> None:
        self._inner.extend(extensions)

    def forget(self, key: int) -> None:
        self._inner.forget(key)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        rows = self._inner.draft(requests)
        assert isinstance(rows, DraftRows)
        rows.logits.argmax(-1).tolist()
        self._turn += 1
        right = self._lengths[self._turn % len(self._lengths)]
        return [self._forced(request, right) for request in requests]

    def _forced(self, request: DraftRequest, right: int) -> DraftIds:
        answer = self.answers[request.key]
        position = request.context_len - self.prompt_lens[request.key] + 1
        ids = list(answer[position : position + request.width - 1])
        if right < len(ids):
            ids[right] = (ids[right] + 1) % 1000
        return DraftIds(tuple(ids))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a small model, to try the script")
    parser.add_argument("--skip-tests", action="store_true")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not args.small:
        sys.stderr.write("no CUDA device: this checks one (--small tries the script on a CPU)\n")
        return 2
    if not args.skip_tests:
        tests = [sys.executable, "-m", "pytest", "-m", "gpu", str(ROOT / "tests" / "gpu")]
        if subprocess.run(tests, cwd=ROOT, check=False).returncode:
            return 1
    results = measure(SMALL if args.small else QWEN3_8B, device)
    for name, value in results.items():
        sys.stdout.write(f"{name:36} {value}\n")
    sys.stdout.write(json.dumps(results) + "\n")
    return 0


def measure(shape: Shape, device: torch.device) -> dict[str, object]:
    dtype = torch.bfloat16
    model = random_model(shape, device, dtype)
    reference = reference_ms(model, shape)
    target = NativeTarget(model, name="random")
    del model
    drafter = random_drafter(target, shape)
    prompt = tuple(range(100, 228))
    weight_bytes = sum(linear.num_bytes for linear in target.model.weights.linears)
    plain = Plain(target)
    answer = plain.answer(prompt)
    plain_ms = median(plain.step_ms(prompt) for _ in range(REPEATS))
    forced = {
        f"draft and verify {BLOCK}, {right} right, ms": forced_step_ms(
            target, drafter, prompt, answer, (right,)
        )
        for right in (0, 4, 9)
    }
    stream_ms = stream_time_ms(weight_bytes, device)
    step_ms = next(iter(forced.values()))
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "weights, GB": round(weight_bytes / 1e9, 2),
        "reading the weights once, ms": round(stream_ms, 3),
        "plain step, ms": round(plain_ms, 3),
        "plain step / reading": round(plain_ms / stream_ms, 3),
        **{name: round(value, 3) for name, value in forced.items()},
        f"draft and verify {BLOCK} / plain": round(step_ms / plain_ms, 3),
        "reference loop on transformers, ms": round(reference, 3),
        "reference / draft and verify": round(reference / step_ms, 3),
        "plain tok/s by concurrency": concurrency(target, FEW if shape is SMALL else CONCURRENCY),
    }


def random_model(shape: Shape, device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    config = AutoConfig.for_model(
        "qwen3",
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=40_960,
        eos_token_id=shape.vocab - 1,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = cast(PreTrainedModel, AutoModelForCausalLM.from_config(config, dtype=dtype))
    return model.eval().requires_grad_(False)


def random_drafter(target: NativeTarget | HFTarget, shape: Shape) -> DFlashDrafter:
    step = max(1, (shape.layers - 2) // 5)
    config = DrafterConfig(
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_layers=5,
        num_heads=shape.heads,
        num_kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        rms_norm_eps=1e-6,
        vocab_size=shape.vocab,
        block_size=BLOCK,
        mask_token_id=shape.vocab - 2,
        taps=tuple(dict.fromkeys(min(1 + step * k, shape.layers - 2) for k in range(5))),
        layer_types=("full_attention",) * 5,
        max_position_embeddings=40_960,
        num_target_layers=shape.layers,
    )
    torch.manual_seed(1)
    model = BlockDrafter(config).to(device=target.device, dtype=target.dtype)
    return DFlashDrafter(model.eval().requires_grad_(False), target)


class Plain:
    """Plain decoding through the engine."""

    def __init__(self, target: NativeTarget) -> None:
        self._engine = build_engine(target, NoDrafter(), engine_config(1)).engine

    def answer(self, prompt: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(i for ids in self._run(prompt) for i in ids)

    def step_ms(self, prompt: tuple[int, ...]) -> float:
        return time_steps_ms(lambda: self._run(prompt))

    def _run(self, prompt: tuple[int, ...]) -> list[tuple[int, ...]]:
        return run(self._engine, [prompt])[0]


def engine_config(slots: int) -> EngineConfig:
    return EngineConfig(
        slots=slots, max_context=1024, width=parse_width("off"), reuse_prefixes=False
    )


def forced_step_ms(
    target: NativeTarget,
    drafter: DFlashDrafter,
    prompt: tuple[int, ...],
    answer: tuple[int, ...],
    lengths: Sequence[int],
) -> float:
    num_rows = 2048
    side = ForcedDrafts(PackedDrafter(drafter, clock=time.perf_counter), num_rows, lengths)
    engine = Engine(
        EngineParts(
            spec=target.spec,
            target=PooledTarget(target.model, num_rows, side.taps),
            drafts=side,
            scheduler=Scheduler(
                SchedulerConfig(
                    num_slots=1,
                    num_rows=num_rows,
                    max_context=1024,
                    rows_ahead=BLOCK,
                    prefill_rows=64,
                    prefill_rows_alone=512,
                    reuse_prefixes=False,
                )
            ),
            controller=WidthController(parse_width(f"fixed:{BLOCK}"), BLOCK),
            alarm=AcceptanceAlarm(None, BLOCK),
        )
    )

    def prepare(key: int) -> None:
        side.answers[key], side.prompt_lens[key] = answer, len(prompt)

    return median(time_steps_ms(lambda: run(engine, [prompt], prepare)[0]) for _ in range(REPEATS))


def run(
    engine: Engine, prompts: Sequence[tuple[int, ...]], prepare: Callable[[int], None] | None = None
) -> list[list[tuple[int, ...]]]:
    """The ids of every step of each request."""
    params = SamplingParams(max_new_tokens=NEW_TOKENS, ignore_eos=True)
    steps: dict[int, list[tuple[int, ...]]] = {}
    for prompt in prompts:
        key = engine.submit(prompt, params)
        steps[key] = []
        if prepare is not None:
            prepare(key)
    while engine.has_work:
        for event in engine.step():
            if isinstance(event.outcome, Failed):
                raise event.outcome.error
            steps[event.key].append(event.outcome.ids)
    return list(steps.values())


def time_steps_ms(once: Callable[[], list[tuple[int, ...]]]) -> float:
    """Milliseconds a step, the prompt's own pass included as one."""
    once()
    started = time.perf_counter()
    num_steps = len(once())
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - started) / num_steps * 1e3


def reference_ms(model: PreTrainedModel, shape: Shape) -> float:
    """A step of this project's reference loop on transformers, on the same weights."""
    target = HFTarget(model, name="random")
    drafter = random_drafter(target, shape)
    params = SamplingParams(max_new_tokens=32, ignore_eos=True)
    prompt = tuple(range(100, 228))
    collect(prompt, decode(target, drafter, prompt, params))
    done = collect(prompt, decode(target, drafter, prompt, params))
    return (done.stats.seconds - done.stats.prefill_seconds) / done.stats.steps * 1e3


def stream_time_ms(num_bytes: int, device: torch.device) -> float:
    """Reading as many bytes once, by summing a tensor of them."""
    chunk = torch.zeros(min(num_bytes, 1 << 30) // 4, dtype=torch.float32, device=device)
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        chunk.sum().item()
        best = min(best, time.perf_counter() - started)
    return best * num_bytes / (chunk.numel() * 4) * 1e3


def concurrency(target: NativeTarget, levels: Sequence[int]) -> dict[str, float]:
    rates: dict[str, float] = {}
    for slots in levels:
        engine = build_engine(target, NoDrafter(), engine_config(slots)).engine
        prompts = [tuple(range(100 + k, 164 + k)) for k in range(slots)]
        run(engine, prompts)
        started = time.perf_counter()
        done = run(engine, prompts)
        seconds = time.perf_counter() - started
        rates[str(slots)] = round(sum(len(ids) for steps in done for ids in steps) / seconds, 1)
    return rates


if __name__ == "__main__":
    raise SystemExit(main())
