"""Measure what rolling back costs on random hybrid models: copies of states, replays, whole steps.

It prints one JSON object a model; docs/losslessness.md cites its numbers. No weights are needed.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import cast

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from blockdraft.target.hf import HFTarget
from blockdraft.target.hf_state import HFState

SHAPE: dict[str, object] = {
    "vocab_size": 32_000,
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 128,
    "max_position_embeddings": 32_768,
}
MODELS: dict[str, tuple[str, dict[str, object]]] = {
    "delta net (Qwen3.5-like)": (
        "qwen3_5_text",
        {
            "layer_types": [*["linear_attention"] * 3, "full_attention"] * 2,
            "linear_num_key_heads": 4,
            "linear_num_value_heads": 8,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
        },
    ),
    "Mamba-2 (Granite-4-like)": (
        "granitemoehybrid",
        {
            "layer_types": [*["mamba"] * 3, "attention"] * 2,
            "num_local_experts": 0,
            "num_experts_per_tok": 0,
            "shared_intermediate_size": 1536,
            "mamba_n_heads": 16,
            "mamba_d_head": 64,
            "mamba_d_state": 128,
            "mamba_n_groups": 1,
        },
    ),
}
BLOCK_SIZE, CONTEXT_LEN, REPEATS = 16, 512, 9


def make_target(model_type: str, extra: Mapping[str, object]) -> HFTarget:
    """A random float32 target of 8 layers, six of them recurrent."""
    make = cast("Mapping[str, Callable[..., PreTrainedConfig]]", CONFIG_MAPPING)[model_type]
    torch.manual_seed(0)
    model = cast(PreTrainedModel, AutoModelForCausalLM.from_config(make(**SHAPE, **extra)))
    return HFTarget(model)


def median_ms(work: Callable[[], object]) -> float:
    """The median time of one call in milliseconds."""
    times: list[float] = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return round(1000 * statistics.median(times), 2)


def step_ms(state: HFState, block: torch.Tensor, num_kept: int) -> dict[str, float]:
    """A verify pass of the whole block, and the commit of its first `num_kept` rows."""
    verifies: list[float] = []
    commits: list[float] = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        state.verify(block)
        middle = time.perf_counter()
        state.commit(range(num_kept))
        verifies.append(middle - start)
        commits.append(time.perf_counter() - middle)
    verify, commit = (1000 * statistics.median(times) for times in (verifies, commits))
    return {
        "verify": round(verify, 2),
        "commit": round(commit, 2),
        "share": round(commit / (verify + commit), 3),
    }


def measure(target: HFTarget) -> dict[str, object]:
    """Costs of a block of 16 after a prompt of 512 tokens."""
    state = target.open()
    state.prefill(torch.arange(CONTEXT_LEN) % 30_000)
    block = torch.arange(100, 100 + BLOCK_SIZE)
    state.verify(block)
    state.commit([])
    blank = torch.empty(state.recurrent_bytes, dtype=torch.uint8)
    return {
        "state_megabytes": round(state.recurrent_bytes / 1e6, 2),
        "copy_ms": median_ms(blank.clone),
        "steps_by_kept_rows": {kept: step_ms(state, block, kept) for kept in (0, 1, 4, 8, 16)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default: 1)")
    torch.set_num_threads(parser.parse_args().threads)
    for name, (model_type, extra) in MODELS.items():
        found = {"model": name, **measure(make_target(model_type, extra))}
        sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
