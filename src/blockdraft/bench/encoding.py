"""Token ids of a workload's prompt, for a model that is loaded here.

An endpoint encodes by itself; what it is sent is `wire.py`.
"""

from blockdraft.api import PromptOptions, TextTarget, encode_prompt
from blockdraft.bench.config import RequestSettings
from blockdraft.bench.documents import as_list, as_object, text_in
from blockdraft.bench.prompt import BenchPrompt, Chat, JsonObject
from blockdraft.errors import RequestError
from blockdraft.target import Message
from blockdraft.target.text import ChatOptions


def encode_bench_prompt(
    target: TextTarget, prompt: BenchPrompt, settings: RequestSettings
) -> tuple[int, ...]:
    """The ids that `prompt` makes, its row's template arguments included.

    Raises RequestError that names the row which can't be encoded.
    """
    merged = settings.of(prompt.asks)
    options = PromptOptions(raw=prompt.raw or settings.raw, template_args=merged.template_args)
    content = prompt.content
    if target.text is None and isinstance(content, str | Chat):
        raise RequestError(
            f"{prompt.where}: {target.spec.name} has no tokenizer, so a prompt must be token ids, "
            'like {"prompt_ids": [12, 7]}'
        )
    try:
        if isinstance(content, Chat):
            return _chat_ids(target, content, options)
        if isinstance(content, str) and prompt.system is not None:
            messages = [
                Message(role="system", content=prompt.system),
                Message(role="user", content=content),
            ]
            return encode_prompt(target, messages, options)
        return encode_prompt(target, content, options)
    except RequestError as error:
        raise RequestError(f"{prompt.where}: {error}") from error


def _chat_ids(target: TextTarget, chat: Chat, options: PromptOptions) -> tuple[int, ...]:
    codec = target.text
    assert codec is not None, "the caller has looked"
    rendered = codec.render(
        [_flat(message) for message in chat.messages],
        ChatOptions(template_args=options.template_args, tools=chat.tools),
    )
    return tuple(codec.encode_rendered(rendered))


def _flat(message: JsonObject) -> JsonObject:
    """With one text in place of text parts, as templates want it."""
    parts = as_list(message.get("content"))
    if not parts:
        return message
    texts = [text_in(as_object(part), "text") or "" for part in parts]
    return {**message, "content": "".join(texts)}
