"""Worker of llama.cpp through `xllamacpp`: a GGUF target, mode `plain` or `dflash`.

Token ids go to its own HTTP server on the loopback interface, the one door that gives ids back.
"""

import http.client
import importlib
import json
import os
import time
from dataclasses import dataclass
from typing import Protocol, cast
from urllib.parse import urlsplit

from workers.protocol import Answer, Loaded, Request, Settings, Stopwatch, serve

LOADING = 503


class CpuParams(Protocol):
    n_threads: int


class ModelParams(Protocol):
    path: str


class DraftParams(Protocol):
    mparams: ModelParams
    cpuparams: CpuParams
    cpuparams_batch: CpuParams
    n_max: int


class SpeculativeParams(Protocol):
    types: list[object]
    draft: DraftParams


class Params(Protocol):
    model: ModelParams
    cpuparams: CpuParams
    cpuparams_batch: CpuParams
    speculative: SpeculativeParams
    n_ctx: int
    n_parallel: int
    verbosity: int
    fit_params: bool
    cache_prompt: bool
    cache_ram_mib: int


class LlamaServer(Protocol):
    listening_address: str


class SpeculativeTypes(Protocol):
    COMMON_SPECULATIVE_TYPE_DRAFT_DFLASH: object


class LlamaModule(Protocol):
    """The part of `xllamacpp` that is used here."""

    __version__: str
    common_speculative_type: SpeculativeTypes

    def CommonParams(self) -> Params: ...

    def Server(self, params: Params) -> LlamaServer: ...

    def get_system_info(self) -> str: ...


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server in this process; it stops when the object goes. `address` is its HTTP address."""

    server: LlamaServer
    address: str


def load(settings: Settings) -> Loaded:
    """Raises ValueError for a mode that this worker does not have."""
    if (settings.mode == "dflash") != (settings.drafter is not None):
        raise ValueError("mode dflash needs a drafter, mode plain takes none")
    if settings.mode not in ("plain", "dflash"):
        raise ValueError(f"mode {settings.mode!r}: this worker has plain and dflash")
    os.environ["GGML_NO_BACKTRACE"] = "1"  # on a failed assertion it would start a debugger
    llama = cast(LlamaModule, importlib.import_module("xllamacpp"))
    server = llama.Server(_params(llama, settings))
    running = RunningServer(server, server.listening_address)
    _wait_until_loaded(running.address)
    return Loaded(
        versions={"xllamacpp": llama.__version__},
        notes=(
            "dtype is what the GGUF file holds",
            f"{settings.threads} threads, {llama.get_system_info().strip(' |')}",
            "answers also end at every end token that the GGUF file declares",
        ),
        answer=lambda request: _answer(running, request),
    )


def _params(llama: LlamaModule, settings: Settings) -> Params:
    params = llama.CommonParams()
    params.model.path = settings.model
    params.n_ctx = settings.context_len
    params.n_parallel = 1
    params.fit_params = False
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.verbosity = 1
    draft = params.speculative.draft
    for cpu in (params.cpuparams, params.cpuparams_batch, draft.cpuparams, draft.cpuparams_batch):
        cpu.n_threads = settings.threads
    if settings.drafter is not None:
        kinds = llama.common_speculative_type
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_DFLASH]
        draft.mparams.path = settings.drafter
        if settings.draft_len is not None:
            draft.n_max = settings.draft_len
    return params


def _answer(running: RunningServer, request: Request) -> Answer:
    body = {
        "prompt": list(request.prompt_ids),
        "n_predict": request.max_new_tokens,
        "temperature": 0.0,
        "return_tokens": True,
        "cache_prompt": False,
        "ignore_eos": not request.stop_ids,
    }
    watch = Stopwatch()
    reply = _call(running.address, "POST", "/completion", body)
    seconds = watch.seconds()
    if reply["tokens_evaluated"] != len(request.prompt_ids) or reply["truncated"]:
        raise RuntimeError(
            f"llama.cpp read {reply['tokens_evaluated']} of {len(request.prompt_ids)} prompt ids"
        )
    token_ids = cast(list[int], reply["tokens"])
    timings = cast(dict[str, int], reply["timings"])
    return Answer(
        token_ids=_with_stop(token_ids, str(reply["stop_type"]), request),
        seconds=seconds,
        # Every accepted draft saves one pass; without drafting there is one a token.
        steps=timings["predicted_n"] - 1 - timings.get("draft_n_accepted", 0),
    )


def _with_stop(token_ids: list[int], stop_type: str, request: Request) -> tuple[int, ...]:
    """The server leaves out the end token; like every peer we give it, and it is counted."""
    ended_early = stop_type == "eos" and not set(token_ids[-1:]) & set(request.stop_ids)
    return (*token_ids, *(request.stop_ids[:1] if ended_early else ()))


def _wait_until_loaded(address: str) -> None:
    for _ in range(600):
        status, _ = _exchange(address, "GET", "/health", None)
        if status != LOADING:
            return
        time.sleep(0.1)
    raise TimeoutError("llama.cpp did not finish loading within a minute")


def _call(address: str, method: str, path: str, body: object) -> dict[str, object]:
    status, text = _exchange(address, method, path, body)
    if status != http.client.OK:
        raise RuntimeError(f"llama.cpp answered {status}: {text[:300]}")
    return cast(dict[str, object], json.loads(text))


def _exchange(address: str, method: str, path: str, body: object) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(address).netloc)
    try:
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read().decode("utf-8")
    finally:
        connection.close()


if __name__ == "__main__":
    serve(load)
