"""Refuses JSON schemas that ask for what the grammar would silently leave out.

A keyword that is ignored gives output that breaks the schema, so each one is either compiled
exactly, known to say nothing about the value, or refused by name. Pure; it compiles nothing.
"""

from collections.abc import Iterator, Mapping
from typing import cast

from blockdraft.errors import RequestError

_NOTES = frozenset(
    {
        "$anchor",
        "$comment",
        "$defs",
        "$id",
        "$schema",
        "contentEncoding",
        "contentMediaType",
        "default",
        "definitions",
        "deprecated",
        "description",
        "discriminator",
        "example",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    }
)
"""Keywords that say nothing about the value itself."""

_BY_TYPE: Mapping[str, frozenset[str]] = {
    "integer": frozenset(
        {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    ),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems", "unevaluatedItems"}),
    "object": frozenset(
        {
            "properties",
            "required",
            "additionalProperties",
            "patternProperties",
            "propertyNames",
            "minProperties",
            "maxProperties",
            "unevaluatedProperties",
        }
    ),
    "boolean": frozenset(),
    "null": frozenset(),
}
"""What is compiled for each type (measured, see the tests)."""

_ALONE = ("$ref", "anyOf", "oneOf", "allOf", "enum", "const")
"""Keywords beside which others are not looked at."""

_FORMATS = frozenset(
    {
        "date",
        "date-time",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "json-pointer",
        "time",
        "uri",
        "uuid",
    }
)

_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
    "boolean": (bool,),
    "null": (type(None),),
}


def check_schema(schema: object) -> None:
    """Raises RequestError naming the place (a JSON pointer) and the keyword."""
    if not isinstance(schema, bool | dict):
        raise RequestError(f"the JSON schema is {schema!r}; it must be an object")
    for where, node in schema_nodes(cast(object, schema)):
        _check_node(where, node)


def schema_nodes(schema: object) -> Iterator[tuple[str, dict[str, object]]]:
    """Every schema inside a schema, itself first, with its place. Raises RequestError for a part
    that is none."""
    left: list[tuple[str, object]] = [("#", schema)]
    while left:
        where, part = left.pop()
        if isinstance(part, bool):
            continue
        if not isinstance(part, dict):
            raise RequestError(f"the JSON schema's {where} is {part!r}; it must be a schema")
        node = cast(dict[str, object], part)
        yield where, node
        left += _schemas_in(where, node)


def _schemas_in(where: str, node: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for keyword in ("properties", "patternProperties", "$defs", "definitions"):
        parts = node.get(keyword)
        if isinstance(parts, dict):
            for name, part in cast(dict[str, object], parts).items():
                yield f"{where}/{keyword}/{_pointer(name)}", part
    for keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
        parts = node.get(keyword)
        if isinstance(parts, list):
            for index, part in enumerate(cast(list[object], parts)):
                yield f"{where}/{keyword}/{index}", part
    for keyword in ("items", "additionalProperties", "propertyNames", "unevaluatedItems"):
        if keyword in node:
            yield f"{where}/{keyword}", node[keyword]


def _pointer(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _check_node(where: str, node: Mapping[str, object]) -> None:
    said = {key for key in node if key not in _NOTES and not key.startswith("x-")}
    alone = [keyword for keyword in _ALONE if keyword in said]
    if alone:
        if beside := said - {alone[0], "type"}:
            raise _refused(where, min(beside), f"beside {alone[0]} it would be ignored")
        if "type" in said:
            _check_typed_values(where, node, alone[0])
        return
    _check_keywords(where, node, said - {"type"})


def _check_keywords(where: str, node: Mapping[str, object], said: set[str]) -> None:
    types = _types(where, node)
    known = frozenset[str]().union(*_BY_TYPE.values())
    if unknown := said - known:
        raise _refused(where, min(unknown), "such a rule can't be kept token by token")
    fitting = frozenset[str]().union(*(_BY_TYPE[name] for name in types))
    if homeless := said - fitting:
        expected = next(name for name, words in _BY_TYPE.items() if min(homeless) in words)
        raise _refused(where, min(homeless), f'it needs "type": "{expected}" beside it')
    if "multipleOf" in said and "number" in types:
        raise _refused(where, "multipleOf", 'it is kept for "type": "integer" only')
    if "pattern" in said and said & {"minLength", "maxLength"}:
        raise _refused(where, "minLength/maxLength", "beside pattern; write {m,n} in the pattern")
    if "format" in said and said & {"pattern", "minLength", "maxLength"}:
        raise _refused(where, "format", "beside pattern or a length; use one of them")
    if "format" in said and node["format"] not in _FORMATS:
        raise _refused(where, f"format {node['format']!r}", f"known are {', '.join(_FORMAT_LIST)}")
    for name in said & {"minLength", "maxLength"}:
        length = node[name]
        if isinstance(length, bool) or not isinstance(length, int) or length < 0:
            raise RequestError(f"the JSON schema's {where}/{name} is {length!r}; use a count")
    _check_required(where, node)


_FORMAT_LIST = sorted(_FORMATS)


def _types(where: str, node: Mapping[str, object]) -> list[str]:
    given = node.get("type")
    if given is None:
        # Without a type only these two groups of keywords say which one is meant.
        if where.endswith("/propertyNames"):
            return ["string"]
        implied = [name for name in ("object", "array") if _BY_TYPE[name] & node.keys()]
        return implied[:1]
    names = cast(list[object], given) if isinstance(given, list) else [given]
    for name in names:
        if name not in _BY_TYPE:
            raise RequestError(
                f"the JSON schema's {where} has type {name!r}; use {', '.join(_BY_TYPE)}"
            )
    return cast(list[str], names)


def _check_required(where: str, node: Mapping[str, object]) -> None:
    required, properties = node.get("required"), node.get("properties", {})
    if not isinstance(required, list) or not isinstance(properties, dict):
        return
    for name in cast(list[object], required):
        if name not in cast(dict[str, object], properties):
            raise RequestError(
                f"the JSON schema's {where} requires {name!r}, which is not among its properties; "
                "add it there"
            )


def _check_typed_values(where: str, node: Mapping[str, object], keyword: str) -> None:
    if keyword not in ("enum", "const"):
        raise _refused(where, "type", f"beside {keyword} it would be ignored; repeat it inside")
    fitting = tuple(t for name in _types(where, node) for t in _PYTHON_TYPES[name])
    given = node[keyword]
    values = cast(list[object], given) if keyword == "enum" and isinstance(given, list) else [given]
    for value in values:
        if not isinstance(value, fitting) or (isinstance(value, bool) and bool not in fitting):
            raise RequestError(
                f"the JSON schema's {where}/{keyword} holds {value!r}, which its type "
                f"{node['type']!r} rules out; leave it out"
            )


def _refused(where: str, keyword: str, why: str) -> RequestError:
    return RequestError(
        f"the JSON schema's {where} uses {keyword}, which is not supported there ({why})"
    )
