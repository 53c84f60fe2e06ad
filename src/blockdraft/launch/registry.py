"""The one table of engines: name, what it is called, and who makes its plan."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from blockdraft.launch import llamacpp, openvino, sglang, trtllm, vllm
from blockdraft.launch.order import LaunchOrder, LaunchPlan


class Engine(NamedTuple):
    """An engine that can be launched.

    `gpu`: whether DFlash in it runs nowhere else, is started differently, or does not care.
    """

    title: str
    make_plan: Callable[[LaunchOrder], LaunchPlan]
    gpu: Literal["needed", "differs", "same"]


ENGINES: dict[str, Engine] = {
    "vllm": Engine("vLLM", vllm.make_plan, gpu="differs"),
    "sglang": Engine("SGLang", sglang.make_plan, gpu="needed"),
    "trtllm": Engine("TensorRT-LLM", trtllm.make_plan, gpu="needed"),
    "llamacpp": Engine("llama.cpp", llamacpp.make_plan, gpu="same"),
    "openvino": Engine("OpenVINO GenAI", openvino.make_plan, gpu="same"),
}
