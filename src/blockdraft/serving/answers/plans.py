"""From a request model to a `Plan`: prompts, settings, constraints and how answers are read.

Blocking (templates, tokenizers, grammars): call it on a thread of its own.
"""

from collections.abc import Callable, Sequence

from blockdraft.decoding.text import DecodeText
from blockdraft.parsing.combined import combine
from blockdraft.parsing.parts import OutputParser
from blockdraft.parsing.registry import MARKERS
from blockdraft.serving.answers.constraints import chat_grammar, compiled, requested_grammar
from blockdraft.serving.answers.conversation import template_tools
from blockdraft.serving.answers.options import ReadingOptions
from blockdraft.serving.answers.prompts import (
    PromptTokens,
    chat_prompt,
    completion_prompts,
    fitted,
    last_assistant_text,
)
from blockdraft.serving.answers.running import Plan, PlannedPrompt
from blockdraft.serving.answers.serving import Serving
from blockdraft.serving.answers.settings import sampling_params, stop_strings
from blockdraft.serving.errors import ApiError
from blockdraft.serving.protocol.chat import ChatPromptFields, ChatRequest
from blockdraft.serving.protocol.completions import CompletionRequest
from blockdraft.serving.protocol.messages import Tool
from blockdraft.serving.protocol.sampling import AnswerFields

COMPLETION_TOKENS = 16
"""How many tokens a completion gets that does not say; OpenAI's number."""


def plan_chat(serving: Serving, request: ChatRequest) -> Plan:
    """Raises ApiError or RequestError 400 for what can't be served as asked."""
    _check_stream(request)
    _check_num_choices(serving, 1, request.choices)
    tools = offered_tools(serving, request.tools, is_none=request.tool_choice == "none")
    _check_tools(request)
    prompt = chat_prompt(serving, request, tools)
    reasoning = serving.service.reasoning_format
    is_inside = reasoning is not None and reasoning.starts_inside(prompt.text or "")
    prompt = fitted(serving, prompt, request.truncate_prompt_tokens, name="messages")
    _check_min_tokens(serving, request, [prompt])
    spec = chat_grammar(serving, request, tools, starts_inside=is_inside)
    params = sampling_params(
        serving,
        request,
        max_tokens=_max_tokens(request),
        logprobs=_num_logprobs(serving, request),
        grammar=None if spec is None else compiled(serving, request, spec),
    )
    reading = _reading(
        serving,
        request,
        is_constrained=spec is not None,
        make_parser=_chat_parser(serving, tools, is_inside=is_inside),
        include_reasoning=request.include_reasoning is not False,
        max_tool_calls=1 if request.parallel_tool_calls is False else None,
        echo=last_assistant_text(request) if request.echo else "",
    )
    return Plan(prompts=(PlannedPrompt(prompt, reading),), params=params, n=request.choices)


def plan_completion(serving: Serving, request: CompletionRequest) -> Plan:
    """Raises ApiError or RequestError 400 for what can't be served as asked."""
    _check_stream(request)
    if request.echo and request.logprobs is not None:
        raise ApiError(
            "echo with logprobs is not supported: log-probabilities of the prompt are not computed",
            param="logprobs",
            code="unsupported_parameter",
        )
    most = serving.config.max_logprobs
    if request.logprobs is not None and request.logprobs > most:
        raise ApiError(f"logprobs is {request.logprobs}; at most {most} here", param="logprobs")
    prompts = [
        fitted(serving, prompt, request.truncate_prompt_tokens, name="prompt")
        for prompt in completion_prompts(serving, request)
    ]
    _check_min_tokens(serving, request, prompts)
    _check_num_choices(serving, len(prompts), request.choices)
    spec = requested_grammar(request)
    params = sampling_params(
        serving,
        request,
        max_tokens=COMPLETION_TOKENS if request.max_tokens is None else request.max_tokens,
        logprobs=request.logprobs,
        grammar=None if spec is None else compiled(serving, request, spec),
    )
    planned = tuple(
        PlannedPrompt(
            prompt,
            _reading(
                serving,
                request,
                is_constrained=spec is not None,
                echo=_echo(serving, prompt) if request.echo else "",
            ),
        )
        for prompt in prompts
    )
    return Plan(prompts=planned, params=params, n=request.choices)


def offered_tools(
    serving: Serving, tools: list[Tool] | None, *, is_none: bool = False
) -> list[Tool] | None:
    """The tools that the prompt tells of; ApiError 400 where the model has no format for them."""
    if not tools or is_none:
        return None
    if serving.service.tool_format is None:
        raise ApiError(
            "tools are not supported: this model's chat template has no tool format that is known "
            "here; start the server with --tool-parser to name one",
            param="tools",
            code="unsupported_parameter",
        )
    return tools


def _check_stream(request: AnswerFields) -> None:
    if request.stream_options is not None and not request.stream:
        raise ApiError("stream_options needs stream: true", param="stream_options")


def _check_min_tokens(
    serving: Serving, request: AnswerFields, prompts: Sequence[PromptTokens]
) -> None:
    """The room left in the context cuts max_tokens; it must not cut what was asked for at least."""
    room = serving.service.max_model_len - max(len(prompt.ids) for prompt in prompts)
    if request.min_tokens is not None and request.min_tokens > room:
        raise ApiError(
            f"min_tokens is {request.min_tokens}, and the prompt leaves room for {room} tokens in "
            f"the context of {serving.service.max_model_len}; ask for fewer, or shorten the prompt",
            param="min_tokens",
        )


def _check_tools(request: ChatRequest) -> None:
    if request.tool_choice not in (None, "none") and not request.tools:
        raise ApiError("tool_choice is given without tools", param="tool_choice")
    names = [tool.function.name for tool in request.tools or []]
    if doubles := {name for name in names if names.count(name) > 1}:
        raise ApiError(f"tools: {min(doubles)!r} is defined twice", param="tools")


def _max_tokens(request: ChatRequest) -> int | None:
    old, new = request.max_tokens, request.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise ApiError(
            "max_tokens and max_completion_tokens differ; give one", param="max_completion_tokens"
        )
    return new if old is None else old


def _num_logprobs(serving: Serving, request: ChatRequest) -> int | None:
    num_top, most = request.top_logprobs, serving.config.max_logprobs
    if not request.logprobs:
        if num_top:
            raise ApiError("top_logprobs needs logprobs: true", param="top_logprobs")
        return None
    if num_top is not None and num_top > most:
        raise ApiError(f"top_logprobs is {num_top}; at most {most} here", param="top_logprobs")
    return num_top or 0


def _check_num_choices(serving: Serving, num_prompts: int, n: int) -> None:
    most = serving.config.max_choices
    if num_prompts * n <= most:
        return
    if num_prompts == 1:
        raise ApiError(f"n is {n}; this server makes at most {most}", param="n")
    raise ApiError(
        f"{num_prompts} prompts times n = {n} are {num_prompts * n} answers; "
        f"at most {most} in one request",
        param="prompt" if n == 1 else "n",
    )


def _chat_parser(
    serving: Serving, tools: Sequence[Tool] | None, *, is_inside: bool
) -> Callable[[], OutputParser] | None:
    """Makes the parser of one choice; None where all text is content."""
    reasoning = serving.service.reasoning_format
    tool_format = serving.service.tool_format if tools else None
    if reasoning is None and tool_format is None:
        return None
    definitions = template_tools(tools or [])

    def make() -> OutputParser:
        return combine(
            None if reasoning is None else reasoning.parser(starts_inside=is_inside),
            None if tool_format is None else tool_format.parser(definitions),
        )

    return make


def _reading(
    serving: Serving,
    request: AnswerFields,
    *,
    is_constrained: bool,
    make_parser: Callable[[], OutputParser] | None = None,
    include_reasoning: bool = True,
    max_tool_calls: int | None = None,
    echo: str = "",
) -> ReadingOptions:
    return ReadingOptions(
        decode=_decode(serving, request, shows_markers=is_constrained or make_parser is not None),
        make_parser=make_parser,
        model_stop_ids=frozenset(() if request.ignore_eos else serving.service.stop_ids),
        stop_ids=frozenset(request.stop_token_ids or ()),
        stop=stop_strings(request),
        include_stop=bool(request.include_stop_str_in_output),
        include_reasoning=include_reasoning,
        max_tool_calls=max_tool_calls,
        echo=echo,
    )


def _decode(serving: Serving, request: AnswerFields, *, shows_markers: bool) -> DecodeText | None:
    """Ids to text. Markers are shown, special tokens or not, to a parser that needs them and where
    a grammar has counted them as text."""
    codec, tokens = serving.service.codec, serving.tokens
    if codec is None:
        return None
    skips = request.skip_special_tokens is not False
    if not (shows_markers and skips):
        return lambda ids: codec.decode(ids, skip_special_tokens=skips)
    stop_ids = serving.service.stop_ids

    def is_shown(token_id: int) -> bool:
        if token_id in stop_ids:
            return False
        return not tokens.is_special(token_id) or tokens.text(token_id) in MARKERS

    return lambda ids: codec.decode(
        [token_id for token_id in ids if is_shown(token_id)], skip_special_tokens=False
    )


def _echo(serving: Serving, prompt: PromptTokens) -> str:
    if prompt.text is not None:
        return prompt.text
    codec = serving.service.codec
    return "" if codec is None else codec.decode(prompt.ids)


def render_only(serving: Serving, request: ChatPromptFields) -> PromptTokens:
    """The prompt of a conversation, as /tokenize wants it."""
    return chat_prompt(serving, request, offered_tools(serving, request.tools))
