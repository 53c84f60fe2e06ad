"""Text of an XML parameter -> JSON, guided by the JSON schema of the tool's arguments.

It does not validate: a value that does not fit its schema is passed on as a string.
"""

import json
from collections.abc import Mapping, Sequence
from typing import cast

from blockdraft.parsing.json_scanner import is_json

_MAX_SCHEMA_STEPS = 64
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


def json_of(text: str, name: str, parameters: Mapping[str, object]) -> str:
    """The JSON of parameter `name` written as `text`.

    Numbers, objects and the like stay exactly as they were written, when the schema allows their
    type; everything else, and every parameter that the schema does not describe, is a string.
    Python's True, False and None are read too, since templates show past calls that way.
    """
    properties = parameters.get("properties")
    schema: object = None
    if isinstance(properties, Mapping):
        schema = cast(Mapping[str, object], properties).get(name)
    if schema is None:
        schema = parameters.get("additionalProperties")
    kinds = _kinds(schema, parameters)
    bare = text.strip()
    literal = _PYTHON_WORDS.get(bare, bare)
    kind = _kind_of(literal)
    if kind != "string" and kind in kinds and is_json(literal):
        return literal
    return json.dumps(text, ensure_ascii=False)


def _kind_of(text: str) -> str:
    """The type that JSON beginning like `text` would have."""
    match text[:1]:
        case "{":
            return "object"
        case "[":
            return "array"
        case "t" | "f":
            return "boolean"
        case "n":
            return "null"
        case first if first and first in "-0123456789":
            return "number"
        case _:
            return "string"


def _kinds(schema: object, root: Mapping[str, object]) -> set[str]:
    """The types that a schema allows, as far as it says so; "integer" counts as number."""
    kinds: set[str] = set()
    waiting = [schema]
    for _ in range(_MAX_SCHEMA_STEPS):  # references may go in circles
        if not waiting:
            break
        part = waiting.pop()
        if not isinstance(part, Mapping):
            continue
        part = cast(Mapping[str, object], part)
        kinds |= _own_kinds(part)
        for key in ("anyOf", "oneOf", "allOf"):
            options = part.get(key)
            if isinstance(options, list):
                waiting += cast(list[object], options)
        reference = part.get("$ref")
        if isinstance(reference, str):
            waiting.append(_target(reference, root))
    return kinds


def _own_kinds(schema: Mapping[str, object]) -> set[str]:
    kind = schema.get("type")
    names = cast(Sequence[object], kind) if isinstance(kind, list) else [kind]
    kinds = {name for name in names if isinstance(name, str)}
    if "integer" in kinds:
        kinds.add("number")
    if not kinds:
        values = schema.get("enum")
        examples = list(cast(Sequence[object], values)) if isinstance(values, list) else []
        if "const" in schema:
            examples.append(schema["const"])
        kinds |= {_kind_of(json.dumps(example)) for example in examples}
        kinds |= {"object"} if "properties" in schema else set()
        kinds |= {"array"} if "items" in schema else set()
    return kinds


def _target(reference: str, root: Mapping[str, object]) -> object:
    """What a local reference (#/$defs/x) points at; None for others."""
    found: object = root
    if not reference.startswith("#/"):
        return None
    for name in reference[2:].split("/"):
        found = _member(found, name.replace("~1", "/").replace("~0", "~"))
    return found


def _member(value: object, key: str) -> object:
    return cast(Mapping[str, object], value).get(key) if isinstance(value, Mapping) else None
