"""A grammar for the answer alone, when the model may reason before it.

It only rewrites specs, in the shape that xgrammar reads; it compiles nothing.
"""

import json
from collections.abc import Mapping
from typing import cast

from blockdraft.errors import RequestError
from blockdraft.json_values import as_list, as_object
from blockdraft.parsing.forced import structural_tag
from blockdraft.parsing.think import THINK_CLOSE, THINK_OPEN
from blockdraft.structured.spec import GrammarSpec


def behind_reasoning(
    spec: GrammarSpec, *, starts_inside: bool, is_free: bool = False
) -> GrammarSpec:
    """`spec` after free reasoning: up to </think>, which has to come when the prompt opened it.

    Otherwise the reasoning as a whole may be left out. `is_free`, for a spec that allows any text
    as well: the reasoning need not end, and white space may stand before it. Raises RequestError
    for a spec whose value is no JSON although its kind asks for it.
    """
    blanks = {"type": "regex", "pattern": r"\n{0,2}"}
    reasoning: Mapping[str, object] = {
        "type": "tag",
        "begin": "" if starts_inside else THINK_OPEN,
        "content": {"type": "any_text"},
        "end": THINK_CLOSE,
    }
    elements = [reasoning, blanks]
    if is_free and not starts_inside:
        elements.insert(0, blanks)
    opening: Mapping[str, object] = {"type": "sequence", "elements": elements}
    if not starts_inside:
        opening = {"type": "optional", "content": opening}
    output: Mapping[str, object] = {"type": "sequence", "elements": [opening, _format_of(spec)]}
    if is_free and starts_inside:
        unfinished = {"type": "any_text", "excludes": [THINK_CLOSE]}
        output = {"type": "or", "elements": [output, unfinished]}
    return structural_tag(output, asked=spec)


def _format_of(spec: GrammarSpec) -> Mapping[str, object]:
    match spec.kind:
        case "json_object":
            return {"type": "json_schema", "json_schema": {"type": "object"}}
        case "json_schema":
            return {"type": "json_schema", "json_schema": _loaded(spec)}
        case "regex":
            return {"type": "regex", "pattern": spec.value}
        case "grammar":
            return {"type": "grammar", "grammar": spec.value}
        case "choice":
            texts = as_list(_loaded(spec))
            elements = [{"type": "const_string", "value": text} for text in texts]
            return {"type": "or", "elements": elements}
        case "structural_tag":
            inner = as_object(_loaded(spec)).get("format")
            if not isinstance(inner, Mapping):
                raise RequestError("a structural tag needs a field format behind reasoning")
            return cast(Mapping[str, object], inner)


def _loaded(spec: GrammarSpec) -> object:
    try:
        return json.loads(spec.value)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{spec.kind} is no JSON that can be read: {error}") from error
