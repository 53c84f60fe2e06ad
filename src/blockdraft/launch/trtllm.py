"""TensorRT-LLM: from an order to the command of `trtllm-serve` and its YAML.

TensorRT-LLM counts drafts: `max_draft_len` is the block size less the anchor.
"""

import json
from collections.abc import Mapping
from typing import cast

from blockdraft.errors import ConfigError
from blockdraft.launch.arguments import (
    check_heads,
    drafter_splits,
    pair_notes,
    refuse_lone_head,
    refuse_parallel,
    refuse_pipeline,
    require_layouts,
    with_extra,
)
from blockdraft.launch.order import LaunchOrder, LaunchPlan, PlannedFile, Requirement

NAME = "TensorRT-LLM"
CONFIG_NAME = "trtllm.yaml"
NEEDS = Requirement(
    program="trtllm-serve",
    module=None,
    install="install tensorrt-llm 1.3.0rc27 or newer as TensorRT-LLM's installation guide says, or "
    "use NVIDIA's release container; 1.2.1 and older have no DFlash",
)


def make_plan(order: LaunchOrder) -> LaunchPlan:
    """The command and YAML for `order`; ConfigError for what TensorRT-LLM can't do with it."""
    if order.device != "cuda":
        raise ConfigError(
            "TensorRT-LLM needs an NVIDIA GPU; without one use vllm, llamacpp or openvino"
        )
    require_layouts(
        order,
        NAME,
        target=("hf", "remote"),
        drafter=("hf",),  # it opens the drafter's config.json itself
        do="give the target's own folder, and the drafter by `blockdraft export --format hf`",
    )
    refuse_lone_head(order, NAME)
    check_heads(order)
    refuse_parallel(
        order,
        NAME,
        tensor=True,
        data=False,
        do="its replicas are separate servers behind a load balancer (docs/scaling.md)",
    )
    if not drafter_splits(order):
        raise ConfigError(
            f"--tensor-parallel {order.tensor_parallel} does not divide the drafter's "
            f"{order.pair.drafter.num_heads} heads, and TensorRT-LLM splits it like the target"
        )
    refuse_pipeline(order, ("--pp-size",), NAME)
    own = ["--config", CONFIG_NAME, "--host", order.host, "--port", str(order.port)]
    if order.tensor_parallel > 1:
        own += ["--tp_size", str(order.tensor_parallel)]
    if order.max_model_len is not None:
        own += ["--max_seq_len", str(order.max_model_len)]
    return LaunchPlan(
        engine="trtllm",
        program=("trtllm-serve", order.pair.target.where),
        arguments=with_extra(own, order),
        needs=NEEDS,
        host=order.host,
        port=order.port,
        block_size=order.block,
        files=(PlannedFile(name=CONFIG_NAME, text=render_yaml(_config(order))),),
        notes=pair_notes(order),
    )


def _config(order: LaunchOrder) -> dict[str, object]:
    config: dict[str, object] = {} if order.dtype is None else {"dtype": order.dtype}
    config["speculative_config"] = {
        "decoding_type": "DFlash",
        "max_draft_len": order.num_drafts,
        "speculative_model": order.pair.drafter.where,
    }
    return config


def render_yaml(values: Mapping[str, object], indent: str = "") -> str:
    """`values`, nested mappings of scalars, as YAML."""
    lines: list[str] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            nested = cast("Mapping[str, object]", value)
            lines.append(f"{indent}{key}:\n{render_yaml(nested, indent + '  ')}")
        else:
            lines.append(f"{indent}{key}: {_scalar(value)}\n")
    return "".join(lines)


def _scalar(value: object) -> str:
    """JSON, which YAML includes but for the surrogate pairs that JSON makes of rare characters."""
    if not isinstance(value, str):
        return json.dumps(value)
    written = (json.dumps(c)[1:-1] if ord(c) < 0x10000 else f"\\U{ord(c):08x}" for c in value)
    return f'"{"".join(written)}"'
