"""OpenVINO GenAI: from an order to a small server script and its settings.

OpenVINO counts drafts: `num_assistant_tokens` is the block size less the anchor. Its own model
server does not serve DFlash yet, hence the script, `openvino_server.py` of this package.
"""

import json
from importlib.resources import files

from blockdraft.errors import ConfigError
from blockdraft.launch.arguments import pair_notes, refuse_parallel, require_layouts
from blockdraft.launch.order import LaunchOrder, LaunchPlan, PlannedFile, Requirement

NAME = "OpenVINO GenAI"
SCRIPT_NAME = "openvino_server.py"
SETTINGS_NAME = "openvino_server.json"
PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
NEEDS = Requirement(
    program="python",
    module="openvino_genai",
    install="pip install openvino-genai==2026.4.1.0 (older ones have no DFlash)",
)
LIMITS = (
    "OpenVINO GenAI 2026.4 drafts greedily for one request at a time: others wait, and a request "
    "with temperature above 0 is refused"
)


def make_plan(order: LaunchOrder) -> LaunchPlan:
    """The script and settings for `order`; ConfigError for what OpenVINO can't do with it."""
    require_layouts(
        order,
        NAME,
        target=("openvino",),
        drafter=("openvino",),
        do="convert both with optimum-intel 2.2.0: `optimum-cli export openvino --model T --task "
        "text-generation-with-past T_ov`, and for the HF folder of the drafter the same with "
        "--trust-remote-code --disable-convert-tokenizer",
    )
    refuse_parallel(
        order, NAME, tensor=False, data=False, do="a pair is served by one process on one device"
    )
    if order.dtype is not None and order.dtype not in PRECISIONS:
        raise ConfigError(
            f"--dtype {order.dtype} is unknown to OpenVINO; choose one of {', '.join(PRECISIONS)}"
        )
    if order.extra:
        raise ConfigError(
            f"{order.extra[0]} after --: the OpenVINO script takes no further flags; write it out "
            "with --print and change it"
        )
    settings: dict[str, object] = {
        "target": order.pair.target.where,
        "drafter": order.pair.drafter.where,
        "device": "CPU",  # of OpenVINO's devices the one that is everywhere
        "num_assistant_tokens": order.num_drafts,
        "precision": None if order.dtype is None else PRECISIONS[order.dtype],
        "max_context": order.max_model_len,
        "host": order.host,
        "port": order.port,
    }
    return LaunchPlan(
        engine="openvino",
        program=("python", SCRIPT_NAME),
        arguments=(SETTINGS_NAME,),
        needs=NEEDS,
        host=order.host,
        port=order.port,
        block_size=order.block,
        files=(
            PlannedFile(name=SCRIPT_NAME, text=script_text()),
            PlannedFile(name=SETTINGS_NAME, text=json.dumps(settings, indent=2) + "\n"),
        ),
        notes=(*pair_notes(order), LIMITS),
    )


def script_text() -> str:
    """The source of the server script, which is part of this package."""
    return (files(__package__ or "blockdraft.launch") / SCRIPT_NAME).read_text(encoding="utf-8")
