"""A target's config.json: its sizes, and which of its values no engine can read.

It judges nothing but types and ranges; how transformers reads the file is asked of transformers.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from blockdraft.check.attempt import attempt
from blockdraft.check.loose import Loose, shortened
from blockdraft.check.plausible import MOST, sized
from blockdraft.check.rope import rope_faults
from blockdraft.errors import CheckpointError
from blockdraft.json_values import as_object
from blockdraft.native import why_not_native
from blockdraft.target.hf_config import read_model_config

SPECIAL_KEYS = ("bos_token_id", "eos_token_id", "pad_token_id")
_BY_LAYER = ("num_key_value_heads", "head_dim", "intermediate_size")
"""Sizes that some families write as a list, one for each layer."""

_NOT_NULL = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "model_type")
_FLAGS = ("tie_word_embeddings", "use_sliding_window", "attention_bias")


class TargetSizes(NamedTuple):
    """Those that rules compare; `num_heads` only to derive a head's."""

    hidden_size: int | None
    num_layers: int | None
    num_heads: int | None
    head_dim: int | None
    vocab_size: int | None
    position_limit: int | None


class TargetReading(NamedTuple):
    """How transformers reads a configuration: `refusal` is its own, else None.

    `why_not_native` is why our own decoder does not run what it read.
    """

    refusal: str | None
    why_not_native: str | None = None


def read_sizes(keys: Loose) -> TargetSizes:
    """The sizes; what is malformed or impossible is noted in `keys`."""
    return TargetSizes(
        hidden_size=sized(keys, "hidden_size"),
        num_layers=sized(keys, "num_hidden_layers"),
        num_heads=_size_or_list(keys, "num_attention_heads"),
        head_dim=_size_or_list(keys, "head_dim"),
        vocab_size=sized(keys, "vocab_size"),
        position_limit=sized(keys, "max_position_embeddings"),
    )


def find_faults(raw: Mapping[str, object], generation: Mapping[str, object]) -> tuple[str, ...]:
    """Clauses on keys of config.json and generation_config.json that no engine can read."""
    outer = Loose(raw)
    text = outer.section("text_config")
    keys = Loose(text, raw)
    read_sizes(keys)
    for name in _BY_LAYER:
        _size_or_list(keys, name)
    keys.number("rms_norm_eps", above=0)
    outer.texts("architectures")
    outer.text("model_type")
    keys.text("hidden_act")
    for name in _FLAGS:
        keys.flag(name)
    for name in ("quantization_config", "compression_config"):
        outer.section(name)
    faults = list(rope_faults(keys))
    faults += [f"{name} is {shortened(keys.raw(name))}" for name in keys.malformed]
    faults += [f"{name} is {shortened(outer.raw(name))}" for name in outer.malformed]
    faults += [said.replace(" ", " is ", 1) for said in keys.impossible]
    faults += [f"{name} is null" for name in _NOT_NULL if _is_null(name, raw, text)]
    faults += [f"{n} is {shortened(keys.raw(n))}" for n in SPECIAL_KEYS if not _is_ids(keys.raw(n))]
    faults += [
        f"{name} of generation_config.json is {shortened(generation[name])}"
        for name in SPECIAL_KEYS
        if not _is_ids(generation.get(name))
    ]
    return tuple(dict.fromkeys(faults))


def claims_too_much(raw: Mapping[str, object]) -> str | None:
    """A number by which transformers would fill the memory; None when there is none."""
    for level in (raw, as_object(raw.get("text_config"))):
        for name, most in MOST.items():
            value = level.get(name)
            if isinstance(value, int) and value > most:
                return f"{name} is {shortened(value)}, more than any model has"
    return None


def ask_transformers(folder: Path, raw: Mapping[str, object]) -> TargetReading:
    """What transformers makes of the configuration, without running code from the folder."""
    too_much = claims_too_much(raw)
    if too_much is not None:
        return TargetReading(too_much)
    config, refusal = attempt(lambda: _read(folder))
    if config is None:
        return TargetReading(refusal)
    return TargetReading(None, why_not_native(config))


def _read(folder: Path) -> object:
    try:
        return read_model_config(folder, revision=None, from_hub=False)
    except (ArithmeticError, AssertionError) as error:  # of configurations that divide by 0
        raise CheckpointError(
            f"the configuration of {folder} can't be read: {type(error).__name__}"
        ) from error


def _size_or_list(keys: Loose, name: str) -> int | None:
    """None for a list too."""
    if isinstance(keys.raw(name), list):
        keys.integers(name)
        return None
    return keys.integer(name, least=1, most=MOST[name])


def _is_null(name: str, raw: Mapping[str, object], text: Mapping[str, object]) -> bool:
    """Whether the key stands there without a value; families that lack it call it otherwise."""
    levels = [level for level in (text, raw) if name in level]
    return bool(levels) and all(level[name] is None for level in levels)


def _is_ids(value: object) -> bool:
    listed = cast("Sequence[object]", value) if isinstance(value, list) else [value]
    return value is None or all(isinstance(i, int) and not isinstance(i, bool) for i in listed)
