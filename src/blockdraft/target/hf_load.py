"""Reads models and tokenizers from a checked folder through transformers, safely and silently.

Never runs code from a checkpoint and never fills in weights that are missing. `Any` is tolerated
in this file because transformers is untyped.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    PreTrainedModel,
)
from transformers.models.auto import modeling_auto

from blockdraft.errors import CheckpointError
from blockdraft.target.caches import refuse
from blockdraft.target.folder import is_harmless, read_json
from blockdraft.target.quiet import first_line, quiet
from blockdraft.target.renamed import known_type, read_config
from blockdraft.target.text import TextCodec, Tokenizer

# What transformers is known to raise for files it can't read; no common base class exists.
READ_ERRORS = (
    OSError,
    ValueError,
    KeyError,
    IndexError,
    ArithmeticError,
    AssertionError,
    RuntimeError,
    TypeError,
    AttributeError,
    ImportError,
    SafetensorError,
    StrictDataclassError,
)
TOWERS = ("visual", "vision_tower", "audio_tower")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")


def load_model(folder: Path, dtype: torch.dtype, attn: str | None) -> PreTrainedModel:
    """The model in `folder`, all of its weights read from there; CheckpointError otherwise,
    UnsupportedTarget for an encoder-decoder model.
    """
    config = read_json(folder / "config.json")
    if config.get("is_encoder_decoder") is True:  # its decoder alone would lack weights
        raise refuse(str(folder), "it is an encoder-decoder model")
    model_type = config.get("model_type")
    known = known_type(model_type)
    loader: Any = AutoModelForImageTextToText if is_wrapper(known) else AutoModelForCausalLM
    if isinstance(model_type, str) and known is None:
        raise _unknown_type(folder, model_type)
    try:
        with quiet():
            model, report = loader.from_pretrained(
                folder,
                config=read_config(folder, revision=None, local_only=True),
                dtype=dtype,
                attn_implementation=attn,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
            )
    except READ_ERRORS as error:
        if _asks_for_code(error):
            raise _unknown_type(folder, model_type) from error
        if "ignore_mismatched_sizes" in str(error):  # its advice is for programmers
            raise CheckpointError(
                f"{folder} has weights of another shape than its config.json says: they do not "
                "belong together, fetch both again"
            ) from error
        raise CheckpointError(f"{folder} can't be loaded: {first_line(error)}") from error
    missing = sorted(str(key) for key in report["missing_keys"])
    if missing:
        raise CheckpointError(
            f"{folder} lacks {len(missing)} weights, the first is {missing[0]}: fetch it again"
        )
    mismatched = sorted(str(key) for key in report["mismatched_keys"])
    if mismatched:
        raise CheckpointError(
            f"{folder} has weights of another shape than its config: {mismatched[0]}"
        )
    # Those that the model class itself knows to be superfluous are already left out.
    unexpected = sorted(str(key) for key in report["unexpected_keys"])
    unexpected = [name for name in unexpected if not is_harmless(name)]
    if unexpected:
        raise CheckpointError(
            f"{folder} has {len(unexpected)} weights that {type(model).__name__} does not use, the "
            f"first is {unexpected[0]}: its config.json is of another model, fetch both again"
        )
    drop_towers(model)
    return cast(PreTrainedModel, model)


def drop_towers(model: Any) -> None:
    """Free the weights of a wrapper that look at images and listen: prompts are text."""
    base: Any = model.base_model
    for name in TOWERS if hasattr(base, "language_model") else ():
        if isinstance(getattr(base, name, None), nn.Module):
            setattr(base, name, None)


def is_wrapper(model_type: object) -> bool:
    """Whether transformers has this type as a vision-language model only.

    Types that it also has as a causal language model are loaded as such, without their images.
    """
    names: Any = modeling_auto
    causal, wrapped = (
        cast("Mapping[object, object]", getattr(names, f"MODEL_FOR_{task}_MAPPING_NAMES"))
        for task in ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT")
    )
    return model_type not in causal and model_type in wrapped


def load_text(folder: Path, name: str) -> TextCodec | None:
    """The tokenizer in `folder`, None when there is none; CheckpointError when it is damaged."""
    if not any((folder / file).exists() for file in TOKENIZER_FILES):
        return None
    loader: Any = AutoTokenizer
    try:
        with quiet():
            tokenizer = loader.from_pretrained(
                folder, trust_remote_code=False, local_files_only=True
            )
    except Exception as error:  # the tokenizer library raises bare ones
        if _asks_for_code(error):
            raise CheckpointError(
                f"the tokenizer in {folder} needs code from the checkpoint, which is never run: "
                "use a target with a tokenizer.json of a known class"
            ) from error
        raise CheckpointError(
            f"the tokenizer in {folder} can't be loaded: {first_line(error)}"
        ) from error
    return TextCodec(cast(Tokenizer, tokenizer), name)


def _asks_for_code(error: Exception) -> bool:
    return "trust_remote_code" in str(error)


def _unknown_type(folder: Path, model_type: object) -> CheckpointError:
    return CheckpointError(
        f"{folder}: model type {model_type!r} is unknown to the installed transformers as a causal "
        "language model, and code from a checkpoint is never run: update transformers or use "
        "another target"
    )
