"""llama.cpp: from an order to the command of `llama-server`.

llama.cpp counts drafts: `--spec-draft-n-max` is the block size less the anchor. Left out it is 3,
whatever the drafter was trained for, so it is always written.
"""

from blockdraft.errors import ConfigError
from blockdraft.launch.arguments import (
    extra_value,
    pair_notes,
    refuse_parallel,
    require_layouts,
    with_extra,
)
from blockdraft.launch.order import LaunchOrder, LaunchPlan, Requirement

NAME = "llama.cpp"
NEEDS = Requirement(
    program="llama-server",
    module=None,
    install="install llama.cpp b11434 or newer (brew install llama.cpp, or build it: "
    "cmake -B build && cmake --build build --target llama-server)",
)


def make_plan(order: LaunchOrder) -> LaunchPlan:
    """The command for `order`; ConfigError for what llama.cpp can't do with the pair."""
    require_layouts(
        order,
        NAME,
        target=("gguf",),
        drafter=("gguf",),
        do="write both with `blockdraft export --format gguf --target T --drafter D --out DIR`, "
        "then give --target DIR --drafter DIR",
    )
    refuse_parallel(
        order,
        NAME,
        tensor=False,
        data=False,
        do="a pair is served by one process; run one a machine behind a load balancer",
    )
    if order.dtype is not None:
        raise ConfigError(
            f"--dtype {order.dtype} is not llama.cpp's to choose: a GGUF file holds its own; write "
            "another with `blockdraft export --format gguf --outtype f32|bf16|f16|q8_0`"
        )
    own = ["-m", order.pair.target.where, "-md", order.pair.drafter.where]
    own += ["--spec-type", "draft-dflash", "--spec-draft-n-max", str(order.num_drafts)]
    own += ["--host", order.host, "--port", str(order.port)]
    if extra_value(order, ("-fa", "--flash-attn")) is None:
        own += ["-fa", "on"]  # it rounds keys and values to float16: off to compare float32
    own += ["--jinja", "--metrics"]  # counts of drafts and accepted ones are off by default
    if order.max_model_len is not None:
        own += ["-c", str(order.max_model_len)]
    return LaunchPlan(
        engine="llamacpp",
        program=("llama-server",),
        arguments=with_extra(own, order),
        needs=NEEDS,
        host=order.host,
        port=order.port,
        block_size=order.block,
        notes=pair_notes(order),
    )
