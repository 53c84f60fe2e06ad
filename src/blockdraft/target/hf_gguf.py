"""Turns a GGUF file into a safetensors folder that loads fast and without the GGUF libraries.

It dequantizes through transformers and does not compute on quantized weights. `Any` is tolerated
in this file because transformers is untyped.
"""

import json
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]: bare PathLike
from transformers import AutoModelForCausalLM, AutoTokenizer

from blockdraft.errors import CheckpointError
from blockdraft.target.folder import WEIGHTS_NAME
from blockdraft.target.quiet import first_line, quiet


def dequantize_gguf(gguf: Path, folder: Path) -> None:
    """Write model, generation configuration and tokenizer of `gguf` into the existing `folder`.

    Weights are stored in float32. A quantized weight is a float16 scale times a small integer
    (plus a float16 offset), which float32 holds to its last bit or two while bfloat16 (8 bits of
    precision) and float16 would round again; so the copy loads into any dtype as the file itself
    would. Raises CheckpointError for a file that transformers can't read.
    """
    model_loader: Any = AutoModelForCausalLM
    tokenizer_loader: Any = AutoTokenizer
    try:
        # Its progress bar writes to stderr whatever the libraries' own settings say.
        with quiet(), redirect_stderr(StringIO()):
            source = {"gguf_file": gguf.name, "local_files_only": True}
            model = model_loader.from_pretrained(gguf.parent, dtype=torch.float32, **source)
            tokenizer = tokenizer_loader.from_pretrained(gguf.parent, **source)
            # `save_pretrained` refuses dequantized models, so each part is written by itself.
            save_file(_stored(model), folder / WEIGHTS_NAME, metadata={"format": "pt"})
            model.generation_config.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    except Exception as error:  # the tokenizer library raises bare ones
        raise CheckpointError(f"{gguf} can't be dequantized: {first_line(error)}") from error
    config: dict[str, Any] = model.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        config.pop(key, None)
    config["architectures"] = [type(model).__name__]
    (folder / "config.json").write_text(
        json.dumps(config, indent=2, default=str) + "\n", encoding="utf-8"
    )


def _stored(model: Any) -> dict[str, torch.Tensor]:
    """Every tensor once; a tied head goes by the embedding's name, which other engines look for."""
    state: dict[str, torch.Tensor] = model.state_dict()
    embedding: torch.Tensor = model.get_input_embeddings().weight
    return {
        name: tensor.contiguous()
        for name, tensor in state.items()
        if not (name == "lm_head.weight" and tensor.data_ptr() == embedding.data_ptr())
    }
