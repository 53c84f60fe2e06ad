"""What a request constrains its output to: one grammar, or none, from six ways of asking.

Compiling is the grammar compiler's business, and its limits.
"""

import json

from blockdraft.errors import RequestError
from blockdraft.serving.answers.conversation import template_tools
from blockdraft.serving.answers.serving import Serving
from blockdraft.serving.answers.settings import MakeProcessor
from blockdraft.serving.errors import ApiError
from blockdraft.serving.protocol.chat import ChatRequest
from blockdraft.serving.protocol.messages import NamedTool, Tool
from blockdraft.serving.protocol.sampling import AnswerFields
from blockdraft.serving.protocol.structured import (
    JsonObjectFormat,
    ResponseFormat,
    SchemaFormat,
    StructuralTagFormat,
    StructuredOutputs,
    TextFormat,
)
from blockdraft.structured.spec import GrammarSpec


def requested_grammar(request: AnswerFields) -> GrammarSpec | None:
    """The grammar of response_format or structured_outputs; ApiError 400 for both at once."""
    by_format = _of_format(request.response_format)
    by_outputs = _of_outputs(request.structured_outputs)
    if by_format is not None and by_outputs is not None:
        raise ApiError(
            "response_format and structured_outputs both constrain the answer; give one",
            param="structured_outputs",
        )
    return by_format or by_outputs


def needs_grammar(request: AnswerFields) -> bool:
    """Whether a grammar has to be compiled, which may take long and wait for others."""
    if isinstance(request, ChatRequest) and (_is_forced(request) or _is_held(request)):
        return True
    is_free = request.response_format is None or isinstance(request.response_format, TextFormat)
    return request.structured_outputs is not None or not is_free


def chat_grammar(
    serving: Serving, request: ChatRequest, tools: list[Tool] | None, *, starts_inside: bool
) -> GrammarSpec | None:
    """The grammar of a chat answer, reasoning included, which begins `starts_inside` it.

    `tools` are those that the prompt tells of. Raises ApiError 400 for what can't be met.
    """
    asked = requested_grammar(request)
    if asked is not None and tools:
        raise ApiError(
            "response_format and structured_outputs can't be combined with tools the model may "
            "call; set tool_choice to none",
            param="response_format",
            code="unsupported_parameter",
        )
    reasoning = serving.service.reasoning_format
    try:
        held = _held_tools(serving, request)
        spec = _forced_tools(serving, request) or held or asked
        if spec is None or reasoning is None:
            return spec
        return reasoning.behind(spec, starts_inside=starts_inside, is_free=spec is held)
    except RequestError as error:
        raise ApiError(str(error), param=_asked_by(request), code="invalid_request") from error


def _forced_tools(serving: Serving, request: ChatRequest) -> GrammarSpec | None:
    """The grammar of a tool choice that must be met. Raises ApiError 400 where that can't be."""
    if not _is_forced(request):
        return None
    choice, tools = request.tool_choice, request.tools or []
    name = choice.function.name if isinstance(choice, NamedTool) else None
    if name is not None and name not in [tool.function.name for tool in tools]:
        raise ApiError(f"tool_choice names {name!r}, which is not in tools", param="tool_choice")
    assert serving.service.tool_format is not None, "checked with the tools themselves"
    return serving.service.tool_format.forced(
        template_tools(tools), name=name, parallel=request.parallel_tool_calls is not False
    )


def _held_tools(serving: Serving, request: ChatRequest) -> GrammarSpec | None:
    """The grammar of an answer in which the model may call, and a tool is strict."""
    if not _is_held(request):
        return None
    assert serving.service.tool_format is not None, "checked with the tools themselves"
    return serving.service.tool_format.held(
        template_tools(request.tools or []), parallel=request.parallel_tool_calls is not False
    )


def _is_forced(request: ChatRequest) -> bool:
    return request.tool_choice not in (None, "none", "auto")


def _is_held(request: ChatRequest) -> bool:
    is_strict = any(tool.function.strict for tool in request.tools or [])
    return is_strict and request.tool_choice in (None, "auto")


def compiled(serving: Serving, request: AnswerFields, spec: GrammarSpec) -> MakeProcessor:
    """The processor of `spec`; blocking. Raises ApiError 400 when it can't be."""
    grammars = serving.service.grammar
    if grammars is None:
        raise ApiError(
            "constrained output (response_format, structured_outputs, forced or strict tools) "
            "is not available on this server",
            param=_asked_by(request),
            code="unsupported_parameter",
        )
    if request.ignore_eos or request.min_tokens:
        raise ApiError(
            "ignore_eos and min_tokens can't be combined with constrained output, which must be "
            "able to end where its grammar does",
            param="ignore_eos" if request.ignore_eos else "min_tokens",
        )
    try:
        return grammars.compile(spec)
    except RequestError as error:
        raise ApiError(str(error), param=_asked_by(request), code="invalid_request") from error


def _asked_by(request: AnswerFields) -> str:
    """The parameter that constrains the answer."""
    if request.structured_outputs is not None:
        return "structured_outputs"
    return "tools" if _of_format(request.response_format) is None else "response_format"


def _of_format(asked: ResponseFormat | None) -> GrammarSpec | None:
    if isinstance(asked, JsonObjectFormat):
        return GrammarSpec(kind="json_object")
    if isinstance(asked, SchemaFormat):
        if asked.json_schema.json_schema is None:
            raise ApiError("response_format.json_schema.schema is missing", param="response_format")
        return GrammarSpec(kind="json_schema", value=json.dumps(asked.json_schema.json_schema))
    if isinstance(asked, StructuralTagFormat):
        if (asked.format is None) == (asked.structures is None or asked.triggers is None):
            raise ApiError(
                "response_format: a structural_tag has either format, or structures and triggers",
                param="response_format",
            )
        return GrammarSpec(
            kind="structural_tag", value=json.dumps(asked.model_dump(exclude_none=True))
        )
    return None


def _of_outputs(asked: StructuredOutputs | None) -> GrammarSpec | None:
    if asked is None:
        return None
    given = asked.model_dump(exclude_none=True, by_alias=True)
    if asked.json_object is False:
        del given["json_object"]
    if len(given) != 1:
        raise ApiError(
            "structured_outputs needs exactly one of json, regex, choice, grammar, json_object, "
            f"structural_tag; {len(given)} are given",
            param="structured_outputs",
        )
    if asked.json_value is not None:
        schema = asked.json_value
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return GrammarSpec(kind="json_schema", value=text)
    if asked.choice is not None:
        return GrammarSpec(kind="choice", value=json.dumps(asked.choice))
    if asked.regex is not None:
        return GrammarSpec(kind="regex", value=asked.regex)
    if asked.grammar is not None:
        return GrammarSpec(kind="grammar", value=asked.grammar)
    if asked.structural_tag is not None:
        return GrammarSpec(kind="structural_tag", value=asked.structural_tag)
    return GrammarSpec(kind="json_object")
