"""SGLang: from an order to the command of `sglang.launch_server`.

SGLang counts the block: `--speculative-num-draft-tokens` includes the anchor.
"""

from blockdraft.errors import ConfigError
from blockdraft.launch.arguments import (
    check_heads,
    drafter_splits,
    pair_notes,
    refuse_lone_head,
    refuse_pipeline,
    require_layouts,
    with_extra,
)
from blockdraft.launch.order import LaunchOrder, LaunchPlan, Requirement

NAME = "SGLang"
NEEDS = Requirement(
    program="python",
    module="sglang",
    install="pip install 'sglang>=0.5.23' (DFlash is there since 0.5.11)",
)


def make_plan(order: LaunchOrder) -> LaunchPlan:
    """The command for `order`; ConfigError for what SGLang can't do with the pair."""
    if order.device != "cuda":
        raise ConfigError(
            "SGLang drafts with DFlash on CUDA, NPU or XPU devices only, and refuses --device cpu; "
            "without a GPU use vllm, llamacpp or openvino"
        )
    require_layouts(
        order,
        NAME,
        target=("hf", "remote"),
        drafter=("hf", "remote"),
        do="give the target's own folder, and the drafter by `blockdraft export --format hf`",
    )
    refuse_lone_head(order, NAME)
    check_heads(order)
    if not drafter_splits(order):
        raise ConfigError(
            f"--tensor-parallel {order.tensor_parallel} does not divide the drafter's "
            f"{order.pair.drafter.num_heads} heads, and SGLang gives the drafter the target's size"
        )
    refuse_pipeline(order, ("--pp-size", "--pipeline-parallel-size"), NAME)
    own = ["--model-path", order.pair.target.where]
    own += ["--speculative-algorithm", "DFLASH"]
    own += ["--speculative-draft-model-path", order.pair.drafter.where]
    own += ["--speculative-num-draft-tokens", str(order.block)]
    own += ["--host", order.host, "--port", str(order.port)]
    if order.tensor_parallel > 1:
        own += ["--tp-size", str(order.tensor_parallel)]
    if order.data_parallel > 1:
        own += ["--dp-size", str(order.data_parallel)]
    if order.dtype is not None:
        own += ["--dtype", order.dtype]
    if order.max_model_len is not None:
        own += ["--context-length", str(order.max_model_len)]
    return LaunchPlan(
        engine="sglang",
        program=("python", "-m", "sglang.launch_server"),
        arguments=with_extra(own, order),
        needs=NEEDS,
        host=order.host,
        port=order.port,
        block_size=order.block,
        notes=pair_notes(order),
    )
