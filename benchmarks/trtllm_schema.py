"""`DFlashDecodingConfig` of TensorRT-LLM: as published, and the class itself out of its source.

The package can't be imported without a GPU's libraries, so its classes are taken out of the text of
`tensorrt_llm/llmapi/llm_args.py` and run alone. Where even that is missing, the table below holds
the published fields. Only the speculative section is looked at.
"""

import ast
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

VERSION = "commit 0004396 of NVIDIA/TensorRT-LLM"
CLASSES = (
    "AdvancedSamplingMode",
    "_MTPDraftCheckpointType",
    "DecodingBaseConfig",
    "DFlashDecodingConfig",
)


class InvalidConfig(Exception):
    """The section is not what the schema wants; the message names the field."""


@dataclass(frozen=True, slots=True)
class Field:
    """What a field may hold. `low` is the least number; `choices` are the only words."""

    kinds: tuple[type, ...]
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] | None = None


FIELDS: Mapping[str, Field] = {
    "decoding_type": Field((str,), choices=("DFlash",)),
    "max_draft_len": Field((int,), low=0),
    "speculative_model": Field((str,)),
    "speculative_model_dir": Field((str,)),
    "mask_token_id": Field((int,)),
    "target_layer_ids": Field((list,)),
    "attention_backend": Field((str,), choices=("VANILLA", "TRTLLM")),
    "max_total_draft_tokens": Field((int,)),
    "max_concurrency": Field((int,), low=1),
    "draft_len_schedule": Field((dict,)),
    "load_format": Field((str,)),
    "acceptance_rate_window_size": Field((int,), low=0),
    "acceptance_rate_threshold": Field((int, float), low=0, high=1),
    "use_rejection_sampling": Field((bool,)),
    "allow_advanced_sampling": Field((bool,)),
    "advanced_sampling_mode": Field(
        (str,), choices=("full", "no_topk", "no_topp", "no_topk_no_topp")
    ),
    "enable_penalty": Field((bool,)),
}
"""The published fields of the class and its base; any other name is refused, as there."""


class Model(Protocol):
    """A pydantic class, as far as it is used."""

    def model_validate(self, values: object) -> object: ...


def check_table(section: Mapping[str, object]) -> None:
    """Raises InvalidConfig for what the table does not allow."""
    for name, value in section.items():
        field = FIELDS.get(name)
        if field is None:
            raise InvalidConfig(f"{name}: no such field")
        if value is None and name != "decoding_type":
            continue
        kinds = field.kinds
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise InvalidConfig(
                f"{name}: {value!r} is not {' or '.join(k.__name__ for k in kinds)}"
            )
        if field.choices is not None and value not in field.choices:
            raise InvalidConfig(f"{name}: {value!r} is not of {', '.join(field.choices)}")
        if isinstance(value, int | float):
            low, high = field.low, field.high
            if (low is not None and value < low) or (high is not None and value > high):
                raise InvalidConfig(f"{name}: {value} is outside {low} to {high}")
    if "decoding_type" not in section:
        raise InvalidConfig("decoding_type: missing, and it is what tells the kinds apart")


def check_class(section: Mapping[str, object], model: Model) -> None:
    """Raises InvalidConfig with what TensorRT-LLM's own class says."""
    try:
        model.model_validate(dict(section))
    except ValueError as error:  # pydantic's ValidationError is one
        raise InvalidConfig(" ".join(str(error).split())) from error


def load_class(source: Path) -> Model:
    """`DFlashDecodingConfig` made from the text of llm_args.py; its base allows no other field."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    kept: list[ast.stmt] = [
        node
        for node in tree.body
        if (isinstance(node, ast.ClassDef) and node.name in CLASSES)
        or (isinstance(node, ast.FunctionDef) and node.name == "Field")
    ]
    missing = set(CLASSES) - {node.name for node in kept if isinstance(node, ast.ClassDef)}
    if missing:
        raise InvalidConfig(f"{source}: no class {', '.join(sorted(missing))} in it")
    names = _names()
    exec(compile(ast.Module(body=kept, type_ignores=[]), str(source), "exec"), names)
    return cast(Model, names["DFlashDecodingConfig"])


def _names() -> dict[str, object]:
    """What the classes refer to: the standard library, pydantic, and TensorRT-LLM's strict base."""
    import functools
    import typing
    from enum import StrEnum

    import pydantic

    class StrictBaseModel(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")

    exported = cast(list[str], typing.__all__)
    names: dict[str, object] = {name: getattr(typing, name) for name in exported}
    names |= {name: getattr(pydantic, name) for name in _PYDANTIC}
    return names | {
        "PydanticField": pydantic.Field,
        "StrictBaseModel": StrictBaseModel,
        "StrEnum": StrEnum,
        "Path": Path,
        "functools": functools,
        "logger": logging.getLogger("tensorrt_llm"),
        "TelemetryField": type("TelemetryField", (), {}),
        "__name__": __name__,
    }


_PYDANTIC: Sequence[str] = (
    "AliasChoices",
    "NonNegativeInt",
    "PositiveInt",
    "PrivateAttr",
    "field_validator",
    "model_validator",
)
