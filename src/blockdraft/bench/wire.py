"""What a request says to each engine, as values.

It opens no connection; replies are `chunks.py` and `response_fields.py`.
"""

from typing import Literal

from blockdraft.bench.config import RequestSettings
from blockdraft.bench.workload import Job

EngineName = Literal["blockdraft", "vllm", "sglang", "llamacpp", "trtllm", "unknown"]

OWNERS: dict[str, EngineName] = {
    "blockdraft": "blockdraft",
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llamacpp",
    "tensorrt_llm": "trtllm",
}
"""`owned_by` of a listed model to the engine that says so."""

ASKS: dict[EngineName, dict[str, object]] = {
    "blockdraft": {"blockdraft": {"metrics": "summary"}},
    "sglang": {"return_meta_info": True},
}
"""Fields that make an engine tell each answer's acceptance. Others refuse what they don't know, or
need none: vLLM tells with --per-request-spec-decode-metrics, llama.cpp always.
"""


def request_path(job: Job, settings: RequestSettings) -> str:
    is_chat = isinstance(job.prompt.content, str) and not settings.raw
    return "chat/completions" if is_chat else "completions"


def request_body(
    job: Job, settings: RequestSettings, model: str, engine: EngineName
) -> dict[str, object]:
    """The JSON of one request: streamed, with usage at the end."""
    body: dict[str, object] = {"model": model}
    content = job.prompt.content
    if request_path(job, settings) == "chat/completions":
        system = job.prompt.system
        head = [] if system is None else [{"role": "system", "content": system}]
        body["messages"] = [*head, {"role": "user", "content": content}]
        if settings.template_args:
            body["chat_template_kwargs"] = dict(settings.template_args)
    else:
        body["prompt"] = content if isinstance(content, str) else list(content)
    body["max_tokens"] = settings.max_tokens
    body["temperature"] = settings.temperature
    if settings.temperature > 0:
        body["seed"] = settings.seed + job.number
    if settings.ignore_eos:
        body["ignore_eos"] = True
    body["stream"] = True
    body["stream_options"] = {"include_usage": True}
    return body | ASKS.get(engine, {})
