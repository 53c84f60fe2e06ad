"""Shows our HF export to SGLang's own draft-config parser and weight loader, and some broken ones.

python benchmarks/engine_sglang.py --out DIR [--hf DIR] [--wheel FILE]

SGLang itself can't run here (it refuses DFLASH without a GPU): its two modules are taken out of the
wheel, whose other parts are stand-ins (sglang_parts.py). Nothing is decoded.
"""

import argparse
import copy
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]: bare PathLike
from torch import Tensor
from transformers import Qwen3Config

from engine_export import export_drafter
from engine_record import Recorder
from model_copy import builtin_model
from sglang_parts import Parts, open_parts

VERSION = "0.5.23"
FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}

Config = dict[str, object]
Tensors = dict[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A drafter's folder as SGLang gets it; `target_layers` is the target's number of layers."""

    config: Config
    tensors: Tensors
    target_layers: int


@dataclass(frozen=True, slots=True)
class Break:
    """A way to spoil a folder."""

    name: str
    spoil: Callable[[Config, Tensors], None]


def read_folder(folder: Path, target_layers: int) -> Folder:
    """Config and weights of an export."""
    config = cast(Config, json.loads((folder / "config.json").read_text(encoding="utf-8")))
    return Folder(
        config=config,
        tensors=load_file(folder / "model.safetensors"),
        target_layers=target_layers,
    )


def accept(parts: Parts, folder: Folder) -> Mapping[str, object]:
    """What SGLang makes of `folder`: raises as SGLang does, or tells what it read.

    `not_loaded` are parameters of its model that no tensor filled, `ignored` tensors of ours that
    changed nothing, `equal` whether all that it holds are our tensors, bit for bit.
    """
    hf_config = Qwen3Config.from_dict(copy.deepcopy(folder.config))
    parsed = parts.parse(hf_config)
    layer_ids = parsed.resolve_target_layer_ids(target_num_layers=folder.target_layers)
    model = parts.build(hf_config)
    model.load_weights(folder.tensors.items())
    held = {name: parameter.detach() for name, parameter in model.named_parameters()}
    wanted = {name: fused(name, folder.tensors) for name in held}
    used = {source for name in held for source in sources(name)}
    return {
        "block_size": parsed.block_size,
        "mask_token_id": parsed.mask_token_id,
        "target_layer_ids": layer_ids,
        "parameters": len(held),
        "not_loaded": sorted(name for name, weight in held.items() if bool(weight.isnan().any())),
        "ignored": sorted(set(folder.tensors) - used),
        "equal": all(
            tensor is not None and torch.equal(held[name], tensor.to(held[name].dtype))
            for name, tensor in wanted.items()
        ),
    }


def sources(name: str) -> tuple[str, ...]:
    """The published names that a parameter of SGLang's is filled from."""
    for whole, parts in FUSED.items():
        if f".{whole}." in name:
            return tuple(name.replace(whole, part) for part in parts)
    return (name,)


def fused(name: str, tensors: Tensors) -> Tensor | None:
    """Our tensors as SGLang holds them; None where one is missing."""
    found = [tensors.get(source) for source in sources(name)]
    whole = [tensor for tensor in found if tensor is not None]
    return torch.cat(whole) if len(whole) == len(found) else None


def _set(key: str, value: object) -> Callable[[Config, Tensors], None]:
    """Sets a key, one of `dflash_config` where the name says so."""

    def spoil(config: Config, tensors: Tensors) -> None:
        section, _, name = key.rpartition(".")
        place = cast(Config, config[section]) if section else config
        place[name] = value

    return spoil


def _drop(name: str) -> Callable[[Config, Tensors], None]:
    def spoil(config: Config, tensors: Tensors) -> None:
        del tensors[name]

    return spoil


def _add(name: str, *size: int) -> Callable[[Config, Tensors], None]:
    def spoil(config: Config, tensors: Tensors) -> None:
        tensors[name] = torch.zeros(size)

    return spoil


def _one_id_less(config: Config, tensors: Tensors) -> None:
    section = cast(dict[str, list[int]], config["dflash_config"])
    section["target_layer_ids"] = section["target_layer_ids"][:-1]


BREAKS = (
    Break(
        "layer ids + 1 (out of range)", _set("dflash_config.target_layer_ids", [2, 9, 15, 21, 30])
    ),
    Break("last layer tapped", _set("dflash_config.target_layer_ids", [1, 8, 14, 20, 29])),
    Break("layer ids as a string", _set("dflash_config.target_layer_ids", "1,8,14")),
    Break("no layer ids", _set("dflash_config.target_layer_ids", [])),
    Break("one layer id less than fc has", _one_id_less),
    Break("negative mask token", _set("dflash_config.mask_token_id", -1)),
    Break("mask token as a string", _set("dflash_config.mask_token_id", "16")),
    Break("block size 0", _set("dflash_config.block_size", 0)),
    Break("unknown layer type", _set("layer_types", ["chunked_attention"] * 4)),
    Break("sliding without a window", _set("layer_types", ["sliding_attention"] * 4)),
    Break("own head", _add("lm_head.weight", 8, 576)),
    Break("reduced vocabulary", _add("d2t", 8)),
    Break("a layer's weight missing", _drop("layers.1.mlp.up_proj.weight")),
)


def try_breaks(parts: Parts, folder: Folder) -> list[Mapping[str, object]]:
    """What SGLang says to each broken folder: its error, or what it did in silence."""
    said: list[Mapping[str, object]] = []
    for broken in BREAKS:
        config, tensors = copy.deepcopy(folder.config), dict(folder.tensors)
        broken.spoil(config, tensors)
        spoiled = Folder(config=config, tensors=tensors, target_layers=folder.target_layers)
        try:
            made = accept(parts, spoiled)
        except Exception as error:  # noqa: BLE001  whatever SGLang raises is the result
            said.append({"break": broken.name, "error": f"{type(error).__name__}: {error}"})
            continue
        silent = {key: made[key] for key in ("not_loaded", "ignored") if made[key]}
        said.append({"break": broken.name, "accepted": True, **silent})
    return said


def get_wheel(out: Path) -> Path:
    """The wheel of SGLang alone, without what it needs."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--dest", str(out), f"sglang=={VERSION}"], check=True)
    return next(out.glob(f"sglang-{VERSION}-*.whl"))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for results and parts")
    parser.add_argument("--hf", type=Path, help="the export (default: of the built-in drafter)")
    parser.add_argument("--wheel", type=Path, help="sglang's wheel (default: downloaded)")
    parser.add_argument("--target-layers", type=int, default=30)
    args = parser.parse_args(argv)
    out: Path = args.out.absolute()
    record = Recorder(out)
    hf: Path | None = args.hf
    if hf is None:
        hf = export_drafter("hf", builtin_model(out, torch.bfloat16), out / "hf")
    wheel: Path = args.wheel or get_wheel(out)
    record.keep("sglang", {"wheel": wheel.name})
    with open_parts(wheel, out / "parts") as parts:
        folder = read_folder(hf, args.target_layers)
        made = accept(parts, folder)
        record.keep("sglang export", made)
        broken = try_breaks(parts, folder)
        record.keep("sglang broken folders", {"said": broken})
    for line in broken:
        record.say(f"  {line['break']}: {line.get('error') or line}")
    fit = made["equal"] and not made["not_loaded"] and not made["ignored"]
    return 0 if fit else 1


if __name__ == "__main__":
    raise SystemExit(main())
