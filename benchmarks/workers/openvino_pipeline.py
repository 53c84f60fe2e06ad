"""Worker of OpenVINO GenAI on a CPU: modes `plain`, `dflash`, on folders from `optimum-cli`.

Greedy, one request at a time, without prefix caching, which DFlash asks for there.
"""

import importlib
import importlib.metadata
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

import numpy as np

from workers.protocol import Answer, Loaded, Request, Settings, Stopwatch, serve, through_stop

PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}
CACHE_GIB = 1


class SchedulerConfig(Protocol):
    enable_prefix_caching: bool
    max_num_batched_tokens: int
    cache_size: int


class GenerationConfig(Protocol):
    max_new_tokens: int
    do_sample: bool
    stop_token_ids: set[int]
    ignore_eos: bool
    num_assistant_tokens: int


class DraftMetrics(Protocol):
    def get_num_accepted_tokens(self) -> int: ...


class Encoded(Protocol):
    tokens: Sequence[Sequence[int]]
    extended_perf_metrics: DraftMetrics | None


class Pipeline(Protocol):
    def generate(self, inputs: object, generation_config: GenerationConfig, /) -> Encoded: ...


class GenAi(Protocol):
    """The part of `openvino_genai` that is used here."""

    def SchedulerConfig(self) -> SchedulerConfig: ...

    def GenerationConfig(self) -> GenerationConfig: ...

    def draft_model(self, path: str, device: str, /, **properties: object) -> object: ...

    def LLMPipeline(self, path: str, device: str, /, **properties: object) -> Pipeline: ...


class OpenVino(Protocol):
    def Tensor(self, array: np.ndarray[tuple[int, int], np.dtype[np.int64]], /) -> object: ...


def load(settings: Settings) -> Loaded:
    """Raises ValueError for a mode that this worker does not have."""
    if (settings.mode, settings.drafter is not None) not in (("plain", False), ("dflash", True)):
        raise ValueError("this worker has plain without and dflash with a drafter folder")
    genai = cast(GenAi, importlib.import_module("openvino_genai"))
    runtime = cast(OpenVino, importlib.import_module("openvino"))
    scheduler = genai.SchedulerConfig()
    scheduler.enable_prefix_caching = False
    scheduler.max_num_batched_tokens = settings.context_len
    scheduler.cache_size = CACHE_GIB
    compute: dict[str, object] = {
        "INFERENCE_PRECISION_HINT": PRECISIONS[settings.dtype],
        "INFERENCE_NUM_THREADS": settings.threads,
    }
    if settings.dtype == "float32":
        # The hint leaves keys and values narrower, which parts texts at margins above rounding.
        compute["KV_CACHE_PRECISION"] = "f32"
    properties: dict[str, object] = {"scheduler_config": scheduler, **compute}
    drafts = None
    if settings.drafter is not None:
        drafts = settings.draft_len or own_draft_len(Path(settings.drafter))
        properties["draft_model"] = genai.draft_model(settings.drafter, "CPU", **compute)
    pipeline = genai.LLMPipeline(settings.model, "CPU", **properties)
    return Loaded(
        versions={
            name: importlib.metadata.version(name)
            for name in ("openvino-genai", "openvino", "optimum-intel")
        },
        notes=(f"{settings.dtype}, {settings.threads} threads, num_assistant_tokens={drafts}",),
        answer=lambda request: _answer(genai, runtime, pipeline, request, drafts),
    )


def own_draft_len(drafter: Path) -> int:
    """A block is the anchor and its drafts; OpenVINO counts the drafts."""
    config = json.loads((drafter / "config.json").read_text(encoding="utf-8"))
    return int(config["block_size"]) - 1


def _answer(
    genai: GenAi, runtime: OpenVino, pipeline: Pipeline, request: Request, drafts: int | None
) -> Answer:
    config = genai.GenerationConfig()
    config.max_new_tokens = request.max_new_tokens
    config.do_sample = False
    config.stop_token_ids = set(request.stop_ids)
    if drafts is not None:
        config.num_assistant_tokens = drafts
    prompt = runtime.Tensor(np.array([request.prompt_ids], dtype=np.int64))
    watch = Stopwatch()
    made = pipeline.generate(prompt, config)
    seconds = watch.seconds()
    token_ids = through_stop(made.tokens[0], request.stop_ids)
    steps = len(token_ids) - 1
    if drafts is not None:
        # It counts accepted drafts, not verifications; each of those adds one token of its own.
        assert made.extended_perf_metrics is not None
        steps -= made.extended_perf_metrics.get_num_accepted_tokens()
    return Answer(token_ids=token_ids, seconds=seconds, steps=steps)


if __name__ == "__main__":
    serve(load)
