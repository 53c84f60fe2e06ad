"""Prompts of a request as token ids: chat through the template, text, or ids as they are.

Blocking (template and tokenizer work): call it on a thread of its own.
"""

from dataclasses import dataclass, replace

from blockdraft.serving.answers.conversation import (
    message_text,
    template_messages,
    template_tools,
)
from blockdraft.serving.answers.serving import Serving
from blockdraft.serving.errors import ApiError
from blockdraft.serving.protocol.chat import ChatPromptFields
from blockdraft.serving.protocol.completions import CompletionRequest
from blockdraft.serving.protocol.messages import Tool
from blockdraft.target.text import ChatOptions

_NOT_VARIABLES = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "documents",
        "max_length",
        "messages",
        "padding",
        "processor_kwargs",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTokens:
    """One prompt. `text` is its text (rendered, for chat), or None when it came as ids."""

    ids: tuple[int, ...]
    text: str | None = None


def chat_prompt(
    serving: Serving, request: ChatPromptFields, tools: list[Tool] | None
) -> PromptTokens:
    """The rendered conversation. Raises ApiError or RequestError 400 when it can't be."""
    codec = serving.codec
    template = request.chat_template
    if template is not None and not serving.config.trust_request_chat_template:
        raise ApiError(
            "chat_template is code, and this server does not run its clients' code; leave it out, "
            "or start the server with --trust-request-chat-template",
            param="chat_template",
        )
    source = template or codec.chat_template or ""
    if tools and "tools" not in source:
        raise ApiError(
            "tools are not supported: this model's chat template would not show them to the model",
            param="tools",
            code="unsupported_parameter",
        )
    if request.continue_final_message and request.add_generation_prompt:
        raise ApiError(
            "continue_final_message and add_generation_prompt exclude each other",
            param="continue_final_message",
        )
    options = ChatOptions(
        template_args=_template_args(request, source),
        tools=template_tools(tools) if tools else None,
        add_generation_prompt=request.add_generation_prompt is not False,
        continue_final=bool(request.continue_final_message),
        template=template,
    )
    try:
        text = codec.render(template_messages(request.messages, source), options)
    except (ArithmeticError, AttributeError, LookupError, RecursionError) as error:
        # The template is the model's own, so what trips it is what the client put in.
        raise ApiError(
            f"the chat template failed on these messages ({type(error).__name__}: {error})",
            param="messages",
        ) from error
    if request.add_special_tokens:
        return PromptTokens(ids=tuple(codec.encode(text, add_special_tokens=True)), text=text)
    return PromptTokens(ids=tuple(codec.encode_rendered(text)), text=text)


def _template_args(request: ChatPromptFields, source: str) -> dict[str, object]:
    args = dict(request.chat_template_kwargs or {})
    if wrong := _NOT_VARIABLES.intersection(args):
        raise ApiError(
            f"chat_template_kwargs.{min(wrong)} is no variable of a template; leave it out",
            param="chat_template_kwargs",
        )
    for name in ("documents", "reasoning_effort"):
        value = getattr(request, name)
        if value is None:
            continue
        if name not in source:
            raise ApiError(
                f"{name} is not supported: this model's chat template does not read it",
                param=name,
                code="unsupported_parameter",
            )
        args[name] = value
    return args


def last_assistant_text(request: ChatPromptFields) -> str:
    """What `echo` puts before a chat answer: the last message, where the assistant said it."""
    last = request.messages[-1]
    return message_text(last.content) if last.role == "assistant" else ""


def completion_prompts(serving: Serving, request: CompletionRequest) -> list[PromptTokens]:
    """One entry for each prompt, in order."""
    add_special = request.add_special_tokens is not False
    prompt = request.prompt
    if isinstance(prompt, str):
        return [_text_prompt(serving, prompt, add_special=add_special)]
    made: list[PromptTokens] = []
    plain_ids: list[int] = []
    for part in prompt:
        if isinstance(part, int):
            plain_ids.append(part)
        elif isinstance(part, str):
            made.append(_text_prompt(serving, part, add_special=add_special))
        else:
            made.append(_id_prompt(serving, part))
    return [_id_prompt(serving, plain_ids)] if plain_ids else made


def _text_prompt(serving: Serving, text: str, *, add_special: bool) -> PromptTokens:
    ids = serving.codec.encode(text, add_special_tokens=add_special)
    return PromptTokens(ids=tuple(ids), text=text)


def _id_prompt(serving: Serving, ids: list[int]) -> PromptTokens:
    vocab_size = serving.service.vocab_size
    for token_id in ids:
        if token_id >= vocab_size:
            raise ApiError(
                f"prompt: token id {token_id} is outside the vocabulary [0, {vocab_size})",
                param="prompt",
            )
    return PromptTokens(ids=tuple(ids))


def fitted(serving: Serving, prompt: PromptTokens, keep: int | None, *, name: str) -> PromptTokens:
    """The prompt cut to its last `keep` tokens (-1: what leaves room for one more).

    Raises ApiError 400 for one that is empty, or leaves no room for an answer; `name` is the
    request field it came from.
    """
    most = serving.service.max_model_len - 1
    if keep is not None:
        if keep == 0:
            raise ApiError(
                "truncate_prompt_tokens is 0, which leaves no prompt; keep at least one token",
                param="truncate_prompt_tokens",
            )
        keep = most if keep == -1 else keep
        if keep > most:
            raise ApiError(
                f"truncate_prompt_tokens is {keep}; at most {most} leave room for an answer",
                param="truncate_prompt_tokens",
            )
        if len(prompt.ids) > keep:
            prompt = replace(prompt, ids=prompt.ids[len(prompt.ids) - keep :], text=None)
    if not prompt.ids:
        raise ApiError("the prompt has no tokens; give at least one", param=name)
    if len(prompt.ids) > most:
        raise ApiError(
            f"the prompt has {len(prompt.ids)} tokens, and at most {most} leave room for an answer "
            f"in the context of {most + 1}; shorten it, or set truncate_prompt_tokens",
            param=name,
            code="context_length_exceeded",
        )
    return prompt
