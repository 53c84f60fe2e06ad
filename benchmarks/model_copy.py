"""Writes a Hugging Face folder again for peers: usual tensor names, one dtype.

Some engines know a tied matrix only as the embedding; from a folder that holds it as the output
head alone they compute with an empty embedding, without an error. A copy in the dtype that is
benchmarked keeps a conversion out of the peers' peak memory. It changes no value otherwise.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import (
    load_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
    save_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
)

from blockdraft.builtin.model_cache import make_once
from blockdraft.builtin.smollm2 import ensure_smollm2
from blockdraft.target.hf_gguf import dequantize_gguf

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
WEIGHTS_NAME = "model.safetensors"
CONFIG_NAME = "config.json"
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def copy_model(source: Path, folder: Path, dtype: torch.dtype) -> None:
    """Fill the existing, empty `folder` with the model in `source`, which has one weights file."""
    for path in sorted(source.iterdir()):
        if path.name not in (WEIGHTS_NAME, CONFIG_NAME):
            shutil.copy(path, folder)
    tensors = load_file(source / WEIGHTS_NAME)
    if EMBEDDING not in tensors:
        tensors[EMBEDDING] = tensors.pop(HEAD)
    converted = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    save_file(converted, folder / WEIGHTS_NAME, metadata={"format": "pt"})
    config = json.loads((source / CONFIG_NAME).read_text(encoding="utf-8"))
    config["dtype"] = str(dtype).removeprefix("torch.")
    (folder / CONFIG_NAME).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def builtin_model(folder: Path, dtype: torch.dtype) -> Path:
    """The built-in target in `folder`, in `dtype`, written once; its own copy is made if missing.

    Raises FetchError when that has to be fetched and can't be.
    """
    source = ensure_smollm2(dequantize_gguf)
    name = str(dtype).removeprefix("torch.")
    return make_once(folder / f"hf-{name}", lambda empty: copy_model(source, empty, dtype))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="a model folder")
    parser.add_argument("folder", type=Path, help="the folder to make")
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="bfloat16")
    args = parser.parse_args()
    folder: Path = args.folder
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        sys.exit(f"{folder} exists: name another folder")
    copy_model(args.source, folder, DTYPES[args.dtype])


if __name__ == "__main__":
    main()
