"""From the bytes of a body to a request model; whatever is wrong becomes one ApiError 400.

It never shows values in its messages, since they may be prompts.
"""

import difflib
import json
from collections.abc import Sequence
from typing import NoReturn, TypeVar, cast

from pydantic import BaseModel, ValidationError

from blockdraft.serving.errors import ApiError
from blockdraft.serving.protocol.other_fields import IGNORED, REFUSED

Model = TypeVar("Model", bound=BaseModel)


def parse_object(body: bytes) -> dict[str, object]:
    """The JSON object in `body`. Raises ApiError 400 for anything else."""
    try:
        text = body.decode("utf-8")
        value = cast(object, json.loads(text, parse_constant=_refuse_constant))
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # lone surrogates are no text
    except UnicodeError as error:
        raise _no_json(f"it is not UTF-8 text ({type(error).__name__})") from error
    except json.JSONDecodeError as error:
        where = f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise _no_json(where) from error
    except RecursionError as error:
        raise _no_json("it is nested too deeply") from error
    except ValueError as error:
        raise _no_json("it holds a number that is not finite, or too long") from error
    if not isinstance(value, dict):
        raise _no_json("it must be one object")
    return cast(dict[str, object], value)


def parse_request(model: type[Model], fields: dict[str, object]) -> Model:
    """`fields` as `model`. Raises ApiError 400 that names the parameter."""
    known = field_names(model)
    kept = {name: value for name, value in fields.items() if _is_taken(name, value, known)}
    try:
        return model.model_validate(kept)
    except ValidationError as error:
        raise _invalid(error) from error
    except RecursionError as error:
        raise _no_json("it is nested too deeply") from error


def field_names(model: type[BaseModel]) -> tuple[str, ...]:
    """The names that a body of this model may hold."""
    return tuple(field.alias or name for name, field in model.model_fields.items())


def _is_taken(name: str, value: object, known: Sequence[str]) -> bool:
    """Whether the model gets this field; False for one that says nothing or is ignored."""
    if name in known:
        return True
    if name in IGNORED:
        return False
    if name in REFUSED:
        refused = REFUSED[name]
        if value is None or any(_same(value, neutral) for neutral in refused.neutral):
            return False
        raise ApiError(
            f"{name} is not supported: {refused.reason}; leave it out",
            param=name,
            code="unsupported_parameter",
        )
    shown = name if len(name) <= 80 else f"{name[:80]}..."
    near = difflib.get_close_matches(name[:80], [*known, *REFUSED], n=1)
    hint = f"did you mean {near[0]}?" if near else "leave it out"
    raise ApiError(f"unknown parameter {shown!r}: {hint}", param=shown, code="unknown_parameter")


def _same(value: object, neutral: object) -> bool:
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)


def _invalid(error: ValidationError) -> ApiError:
    """The first complaint, with the path to the field and without its value."""
    # Of a union's complaints, the one furthest in is about the kind that was meant; of several, one
    # that does not speak of another type.
    first = max(
        error.errors(include_url=False, include_input=False),
        key=lambda e: (len(e["loc"]), not e["type"].endswith("_type")),
    )
    place = ".".join(str(part) for part in first["loc"] if not _is_branch(part))
    name = str(first["loc"][0]) if first["loc"] else None
    code = "unknown_parameter" if first["type"] == "extra_forbidden" else "invalid_value"
    return ApiError(f"{place[:200]}: {first['msg'][:300]}", param=name, code=code)


def _is_branch(part: int | str) -> bool:
    """Whether pydantic put it in a path to name one kind of a union, like list[str]."""
    return isinstance(part, str) and (
        part == "str" or "[" in part or part.startswith("constrained-")
    )


def _no_json(why: str) -> ApiError:
    return ApiError(f"the body is not a JSON object: {why}", code="invalid_json")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
