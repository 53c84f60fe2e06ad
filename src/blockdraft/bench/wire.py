"""What a request says to each engine, as values.

It opens no connection; replies are `chunks.py` and `response_fields.py`.
"""

from typing import Literal

from blockdraft.bench.config import RequestSettings
from blockdraft.bench.prompt import Chat
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
    prompt = job.prompt
    is_completion = prompt.raw or settings.raw or isinstance(prompt.content, tuple)
    return "completions" if is_completion else "chat/completions"


def request_body(
    job: Job, settings: RequestSettings, model: str, engine: EngineName
) -> dict[str, object]:
    """The JSON of one request: streamed, with usage at the end; a row's own settings in it."""
    asks = job.prompt.asks
    merged = settings.of(asks)
    body: dict[str, object] = {"model": model, **asks.fields, **_content(job, settings, merged)}
    body["max_tokens"] = merged.max_tokens
    body["temperature"] = merged.temperature
    if merged.temperature > 0:
        body["seed"] = settings.seed_of(asks, job.number)
    if merged.ignore_eos:
        body["ignore_eos"] = True
    body["stream"] = True
    body["stream_options"] = {"include_usage": True}
    return body | ASKS.get(engine, {})


def _content(job: Job, settings: RequestSettings, merged: RequestSettings) -> dict[str, object]:
    content = job.prompt.content
    if request_path(job, settings) == "completions":
        assert not isinstance(content, Chat), "a chat was let through with --raw"
        return {"prompt": content if isinstance(content, str) else list(content)}
    asked: dict[str, object]
    if isinstance(content, Chat):
        asked = {"messages": [dict(message) for message in content.messages]}
        if content.tools is not None:
            asked["tools"] = [dict(tool) for tool in content.tools]
    else:
        system = job.prompt.system
        head = [] if system is None else [{"role": "system", "content": system}]
        asked = {"messages": [*head, {"role": "user", "content": content}]}
    if merged.template_args:
        asked["chat_template_kwargs"] = dict(merged.template_args)
    return asked
