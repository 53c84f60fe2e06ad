"""What is wrong with the rotary parameters of a config.json, as transformers 4 or 5 spell them.

Only what no engine can compute is named; what some engines lack is left to their rules.
"""

from collections.abc import Mapping

from blockdraft.check.loose import Loose, shortened
from blockdraft.json_values import as_object

SECTIONS = ("rope_parameters", "rope_scaling")
KNOWN_TYPES = frozenset(
    {
        "default", "linear", "dynamic", "yarn", "longrope", "su", "llama3", "ntk", "mrope",
        "proportional", "deepseek_yarn", "deepseek_llama_scaling", "mllama4", "openpangu", "fone",
        "xdrope", "none",
    }
)  # fmt: skip
"""Those of transformers 5, vLLM, SGLang and llama.cpp together."""

_NEED_FACTOR = ("linear", "dynamic", "yarn", "llama3", "deepseek_yarn")
_NUMBERS = (
    "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "low_freq_factor",
    "high_freq_factor", "partial_rotary_factor",
)  # fmt: skip


def rope_faults(keys: Loose) -> tuple[str, ...]:
    """Clauses, each naming a key; wrong types at the top level are noted in `keys` instead."""
    keys.number("rope_theta", above=0)
    faults: list[str] = []
    for name in SECTIONS:
        for label, section in _by_layer_type(name, keys.section(name)):
            faults += _section_faults(label, section)
    return tuple(faults)


def _by_layer_type(
    name: str, section: Mapping[str, object]
) -> list[tuple[str, Mapping[str, object]]]:
    """The section itself, or its parts where it is written for each type of layer."""
    nested = [key for key, value in section.items() if isinstance(value, dict)]
    if not nested:
        return [(name, section)]
    return [(f"{name}.{key}", as_object(section[key])) for key in nested]


def _section_faults(label: str, section: Mapping[str, object]) -> list[str]:
    keys = Loose(section)
    rope_type = keys.text("rope_type") or keys.text("type") or "default"
    keys.number("rope_theta", above=0)
    keys.number("factor", above=0)
    keys.integer("original_max_position_embeddings", least=1)
    for name in _NUMBERS:
        keys.number(name)
    faults = [f"{label}.{name} is {shortened(keys.raw(name))}" for name in keys.malformed]
    faults += [f"{label} has {said}" for said in keys.impossible]
    if rope_type not in KNOWN_TYPES:
        faults.append(f"{label}.rope_type is {shortened(rope_type)}, which is unknown")
    if rope_type in _NEED_FACTOR and keys.raw("factor") is None:
        faults.append(f"{label} is {rope_type} without a factor")
    return faults
