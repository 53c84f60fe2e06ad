"""Turns a GGUF file into a safetensors folder that loads fast and without the GGUF libraries.

It dequantizes through transformers and does not compute on quantized weights; what transformers
reads wrong is set right in `gguf_config.py`. `Any` is tolerated
in this file because transformers is untyped.
"""

import json
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]: bare PathLike
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from blockdraft.errors import CheckpointError
from blockdraft.target.folder import WEIGHTS_NAME
from blockdraft.target.gguf_config import corrected_config, stop_ids
from blockdraft.target.gguf_keys import GgufKeys
from blockdraft.target.quiet import first_line, quiet

MISSHAPEN = "its tensors have other shapes than its keys say"


def dequantize_gguf(gguf: Path, folder: Path) -> None:
    """Write model, generation configuration and tokenizer of `gguf` into the existing `folder`.

    Weights are stored in float32. A quantized weight is a float16 scale times a small integer
    (plus a float16 offset), which float32 holds to its last bit or two while bfloat16 (8 bits of
    precision) and float16 would round again; so the copy loads into any dtype as the file itself
    would. Raises CheckpointError for a file that transformers can't read, or not truly.
    """
    keys = GgufKeys(gguf)
    tokenizer_loader: Any = AutoTokenizer
    try:
        # Its progress bar writes to stderr whatever the libraries' own settings say.
        with quiet(), redirect_stderr(StringIO()):
            source = {"gguf_file": gguf.name, "local_files_only": True}
            model = _load_model(gguf, keys, source)
            tokenizer = tokenizer_loader.from_pretrained(gguf.parent, **source)
            # `save_pretrained` refuses dequantized models, so each part is written by itself.
            save_file(_stored(model), folder / WEIGHTS_NAME, metadata={"format": "pt"})
            model.generation_config.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    except CheckpointError:
        raise
    except Exception as error:  # the tokenizer library raises bare ones
        if "ignore_mismatched_sizes" in str(error):  # its advice is for programmers
            raise keys.refusal(MISSHAPEN) from error
        raise CheckpointError(f"{gguf} can't be dequantized: {first_line(error)}") from error
    config: dict[str, Any] = model.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        config.pop(key, None)
    config["architectures"] = [type(model).__name__]
    (folder / "config.json").write_text(
        json.dumps(config, indent=2, default=str) + "\n", encoding="utf-8"
    )


def _load_model(gguf: Path, keys: GgufKeys, source: dict[str, Any]) -> Any:
    """The model in float32 with all its weights, configured and ended as the file says."""
    config_loader: Any = AutoConfig
    model_loader: Any = AutoModelForCausalLM
    config = corrected_config(config_loader.from_pretrained(gguf.parent, **source), keys)
    model, report = model_loader.from_pretrained(
        gguf.parent, config=config, dtype=torch.float32, output_loading_info=True, **source
    )
    missing = sorted(str(name) for name in report["missing_keys"])
    if missing:  # which would be numbers at random
        raise keys.refusal(f"it lacks {len(missing)} weights, the first is {missing[0]}")
    with torch.device("meta"):
        expected: dict[str, torch.Tensor] = model_loader.from_config(config).state_dict()
    found: dict[str, torch.Tensor] = model.state_dict()
    if any(found[name].shape != tensor.shape for name, tensor in expected.items()):
        raise keys.refusal(MISSHAPEN)  # older versions of transformers would not notice
    ids = model.generation_config.eos_token_id
    stops = stop_ids(keys, config.eos_token_id if ids is None else ids)
    if len(stops) > 1:
        model.generation_config.eos_token_id = stops
    return model


def _stored(model: Any) -> dict[str, torch.Tensor]:
    """Every tensor once; a tied head goes by the embedding's name, which other engines look for."""
    state: dict[str, torch.Tensor] = model.state_dict()
    embedding: torch.Tensor = model.get_input_embeddings().weight
    return {
        name: tensor.contiguous()
        for name, tensor in state.items()
        if not (name == "lm_head.weight" and tensor.data_ptr() == embedding.data_ptr())
    }
