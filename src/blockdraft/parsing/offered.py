"""`OfferedTool`: what a parser and a grammar need of a tool definition in the OpenAI shape.

It checks names and shapes; that the parameters are a usable JSON schema is found out elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from blockdraft.errors import RequestError

_TYPE_KEYS = frozenset({"type", "$ref", "anyOf", "oneOf", "allOf"})


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A function that may be called, and the JSON schema of its arguments.

    `is_strict`: a call of it has to have such arguments, also where the model chooses to call.
    """

    name: str
    parameters: Mapping[str, object]
    is_strict: bool = False


def offered_tools(tools: Sequence[Mapping[str, object]]) -> dict[str, OfferedTool]:
    """The tools by name. Raises RequestError for a definition without a usable name or schema."""
    result: dict[str, OfferedTool] = {}
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        function = tool.get("function", tool)
        if not isinstance(function, Mapping):
            raise RequestError(f"{where}.function is no object: give {{name, parameters}}")
        function = cast(Mapping[str, object], function)
        name = function.get("name")
        if not isinstance(name, str) or not name:
            raise RequestError(f"{where} has no name: give function.name as text")
        if name in result:
            raise RequestError(f"{where} is a second tool named {name!r}: names must differ")
        parameters = _parameters(function.get("parameters"), where)
        result[name] = OfferedTool(name, parameters, is_strict=function.get("strict") is True)
    return result


def _parameters(parameters: object, where: str) -> Mapping[str, object]:
    if parameters is None or parameters == {}:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    if not isinstance(parameters, Mapping):
        raise RequestError(f"{where}.function.parameters is no object: give a JSON schema")
    schema = cast(Mapping[str, object], parameters)
    # Arguments are an object whatever the schema leaves open, and a grammar has to know.
    return schema if _TYPE_KEYS & schema.keys() else {"type": "object", **schema}
