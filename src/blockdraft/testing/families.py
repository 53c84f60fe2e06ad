"""The grid of target families: tiny random models, one for each family that DFlash meets.

They are made from the families' own transformers configurations and cover every kind of layer;
what is tested with them is in tests/families.
"""

from collections.abc import Callable, Mapping
from typing import cast

import torch
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
    PreTrainedModel,
)

from blockdraft.testing.family_attention import DENSE_FAMILIES
from blockdraft.testing.family_entry import DENSE, TinyFamily
from blockdraft.testing.family_experts import EXPERT_FAMILIES
from blockdraft.testing.family_recurrent import (
    CONVOLUTION_FAMILIES,
    DELTA_NET_FAMILIES,
    STATE_SPACE_FAMILIES,
)
from blockdraft.testing.family_wrappers import WRAPPER_FAMILIES

MakeConfig = Callable[..., PreTrainedConfig]

__all__ = ["GRID", "TinyFamily", "family_config", "family_model", "family_named", "is_installed"]

GRID: tuple[TinyFamily, ...] = (
    *DENSE_FAMILIES,
    *EXPERT_FAMILIES,
    *DELTA_NET_FAMILIES,
    *CONVOLUTION_FAMILIES,
    *STATE_SPACE_FAMILIES,
    *WRAPPER_FAMILIES,
)


def family_named(key: str) -> TinyFamily:
    """The family with this key; KeyError names the key otherwise."""
    return {family.key: family for family in GRID}[key]


def is_installed(family: TinyFamily) -> bool:
    """Whether the installed transformers has the family at all."""
    return family.model_type in CONFIG_MAPPING


def family_config(family: TinyFamily) -> PreTrainedConfig:
    """The tiny configuration: the wrapper's where there is a vision part."""
    shape = DENSE | dict(family.shape)
    make = cast("Mapping[str, MakeConfig]", CONFIG_MAPPING)[family.model_type]
    if family.vision is None:
        return make(**shape)
    shared = (
        "bos_token_id",
        "pad_token_id",
        "eos_token_id",
        "tie_word_embeddings",
        "initializer_range",
    )
    settings = {name: shape[name] for name in shared} | dict(family.wrapper)
    return make(text_config=shape, vision_config=dict(family.vision), **settings)


def family_model(
    family: TinyFamily, *, dtype: torch.dtype = torch.float32, seed: int | None = None
) -> PreTrainedModel:
    """A random model of the family, the same each time; global random numbers are untouched."""
    config = family_config(family)
    attn = family.attn or "sdpa"
    auto = AutoModelForCausalLM if family.vision is None else AutoModelForImageTextToText
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(family.seed if seed is None else seed)
        model = cast(PreTrainedModel, auto.from_config(config, attn_implementation=attn))
    # The weights only: rotary tables stay float32, as in every model that is loaded from a file.
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    return model.eval()
