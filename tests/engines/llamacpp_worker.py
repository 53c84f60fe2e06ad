"""The other process: a llama.cpp server in it, until standard input ends.

It prints one JSON line with its HTTP address once the models are loaded. The engine ends its
process on a failed assertion, which is why it runs in one of its own.
"""

import http.client
import importlib
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Protocol, cast
from urllib.parse import urlsplit

LOADING = 503


class CpuParams(Protocol):
    n_threads: int


class ModelParams(Protocol):
    path: str


class DraftParams(Protocol):
    mparams: ModelParams
    cpuparams: CpuParams
    cpuparams_batch: CpuParams
    cache_type_k: object
    cache_type_v: object
    n_max: int
    p_min: float


class SpeculativeParams(Protocol):
    types: list[object]
    draft: DraftParams


class Params(Protocol):
    model: ModelParams
    cpuparams: CpuParams
    cpuparams_batch: CpuParams
    speculative: SpeculativeParams
    cache_type_k: object
    cache_type_v: object
    flash_attn_type: object
    n_ctx: int
    n_parallel: int
    verbosity: int
    endpoint_metrics: bool
    fit_params: bool
    warmup: bool
    cache_prompt: bool
    cache_ram_mib: int


class LlamaServer(Protocol):
    listening_address: str


class SpeculativeTypes(Protocol):
    COMMON_SPECULATIVE_TYPE_DRAFT_DFLASH: object


class TensorTypes(Protocol):
    GGML_TYPE_F32: object


class FlashTypes(Protocol):
    LLAMA_FLASH_ATTN_TYPE_DISABLED: object


class LlamaModule(Protocol):
    """The part of `xllamacpp` that is used here."""

    common_speculative_type: SpeculativeTypes
    ggml_type: TensorTypes
    llama_flash_attn_type: FlashTypes

    def CommonParams(self) -> Params: ...

    def Server(self, params: Params) -> LlamaServer: ...


def params_of(llama: LlamaModule, settings: Mapping[str, object]) -> Params:
    """Everything in float32, one request at a time, nothing remembered between requests."""
    params = llama.CommonParams()
    draft = params.speculative.draft
    params.model.path = str(settings["target"])
    params.n_ctx = cast(int, settings["context_len"])
    params.n_parallel = 1
    params.verbosity = 3
    params.endpoint_metrics = True
    params.fit_params = params.warmup = params.cache_prompt = False
    params.cache_ram_mib = 0
    for cache in (params, draft):
        cache.cache_type_k = cache.cache_type_v = llama.ggml_type.GGML_TYPE_F32
    # Its fused attention rounds keys and values to float16, also those of a float32 cache.
    params.flash_attn_type = llama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    for cpu in (params.cpuparams, params.cpuparams_batch, draft.cpuparams, draft.cpuparams_batch):
        cpu.n_threads = cast(int, settings["threads"])
    if settings["drafter"] is not None:
        kinds = llama.common_speculative_type
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_DFLASH]
        draft.mparams.path = str(settings["drafter"])
        draft.n_max = cast(int, settings["n_max"])
        draft.p_min = 0.0
    return params


def wait_until_loaded(address: str) -> None:
    for _ in range(1200):
        connection = http.client.HTTPConnection(urlsplit(address).netloc)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status != LOADING:
                return
        finally:
            connection.close()
        time.sleep(0.05)
    raise TimeoutError("llama.cpp did not finish loading within a minute")


def main() -> None:
    os.environ["GGML_NO_BACKTRACE"] = "1"  # on a failed assertion it would start a debugger
    llama = cast(LlamaModule, importlib.import_module("xllamacpp"))
    server = llama.Server(params_of(llama, json.loads(sys.argv[1])))
    wait_until_loaded(server.listening_address)
    sys.stdout.write(json.dumps({"address": server.listening_address}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)  # its own shutdown can take seconds, and there is nothing to save


if __name__ == "__main__":
    main()
