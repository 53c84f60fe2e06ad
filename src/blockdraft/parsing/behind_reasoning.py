"""A grammar for the answer alone, when the model may reason before it.

It only rewrites specs, in the shape that xgrammar reads; it compiles nothing.
"""

import json
from collections.abc import Mapping
from typing import cast

from blockdraft.errors import RequestError
from blockdraft.parsing.forced import structural_tag
from blockdraft.parsing.think import THINK_CLOSE, THINK_OPEN
from blockdraft.structured.spec import GrammarSpec


def behind_reasoning(spec: GrammarSpec, *, starts_inside: bool) -> GrammarSpec:
    """`spec` after free reasoning: up to </think>, which has to come when the prompt opened it.

    Otherwise the reasoning as a whole may be left out. Raises RequestError for a spec whose value
    is no JSON although its kind asks for it.
    """
    reasoning: Mapping[str, object] = {
        "type": "tag",
        "begin": "" if starts_inside else THINK_OPEN,
        "content": {"type": "any_text"},
        "end": THINK_CLOSE,
    }
    blanks = {"type": "regex", "pattern": r"\n{0,2}"}
    opening: Mapping[str, object] = {"type": "sequence", "elements": [reasoning, blanks]}
    if not starts_inside:
        opening = {"type": "optional", "content": opening}
    return structural_tag({"type": "sequence", "elements": [opening, _format_of(spec)]})


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
            options = _loaded(spec)
            texts = cast(list[object], options) if isinstance(options, list) else []
            elements = [{"type": "const_string", "value": text} for text in texts]
            return {"type": "or", "elements": elements}
        case "structural_tag":
            tag = _loaded(spec)
            inner = cast(Mapping[str, object], tag).get("format") if isinstance(tag, dict) else None
            if not isinstance(inner, Mapping):
                raise RequestError("a structural tag needs a field format behind reasoning")
            return cast(Mapping[str, object], inner)


def _loaded(spec: GrammarSpec) -> object:
    try:
        return json.loads(spec.value)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{spec.kind} is no JSON that can be read: {error}") from error
