"""EAGLE-3 checkpoints: find out that a folder is one, read and check it, build its drafter.

They are read only, for measuring them beside a block drafter. Files: `config.json` and safetensors
weights; pickled ones are refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from blockdraft.checkpoint.contents import (
    D2T_NAME,
    T2D_NAME,
    StoredTensor,
    check_finite,
    check_float,
    check_target_ids,
)
from blockdraft.checkpoint.eagle3_format import NUM_TAPS, Eagle3Facts, is_eagle3, parse_eagle3
from blockdraft.checkpoint.resolve import resolve
from blockdraft.checkpoint.tensors import list_tensors, read_json, read_tensors
from blockdraft.decoding.interfaces import TargetModel
from blockdraft.drafter.eagle3 import Eagle3Drafter
from blockdraft.drafter.eagle3_config import public_taps
from blockdraft.drafter.eagle3_model import Kernels, eagle3_shapes
from blockdraft.errors import CheckpointError

CONFIG_FILE = "config.json"
EMBEDDING_NAME = "embed_tokens.weight"
_LAYER_NAMES = ("layers.0.", "midlayer.")
"""speculators' prefix of the layer, and the public code's, which is used here."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Eagle3Checkpoint:
    """An EAGLE-3 drafter in memory, complete and checked.

    `state` has the tensors of `eagle3_shapes(facts.config)` in their stored types. `embedding` is
    the checkpoint's own table, where it brings one.
    """

    facts: Eagle3Facts
    state: Mapping[str, Tensor]
    source: str
    d2t: Tensor | None
    embedding: Tensor | None


def load_eagle3(
    where: str | Path,
    *,
    revision: str | None = None,
    taps: Sequence[int] | None = None,
) -> Eagle3Checkpoint | None:
    """The EAGLE-3 checkpoint in a folder or hub repository; None where it is another model.

    `taps` (zero-based layers whose outputs are fused) wins over the file. Raises CheckpointError,
    in one line, for anything missing, unexpected, damaged or unsupported, FetchError when the hub
    can't or won't give it.
    """
    folder, source = resolve(where, revision)
    if not (folder / CONFIG_FILE).is_file():
        return None
    raw = read_json(folder / CONFIG_FILE, source)
    if not is_eagle3(raw):
        return None
    facts = parse_eagle3(raw, f"{source}/{CONFIG_FILE}", taps=taps)
    listed = {_public_name(name): tensor for name, tensor in list_tensors(folder, source).items()}
    _check_names_and_shapes(facts, listed, source)
    stored = read_tensors(folder, list_tensors(folder, source), source)
    tensors = {_public_name(name): tensor for name, tensor in stored.items()}
    d2t, t2d = tensors.pop(D2T_NAME, None), tensors.pop(T2D_NAME, None)
    if d2t is not None:
        check_target_ids(facts.config.vocab_size, d2t, t2d, source)
    for name, tensor in tensors.items():
        check_float(name, tensor, source)
        check_finite(name, tensor, source)
    return Eagle3Checkpoint(
        facts=facts,
        source=source,
        d2t=d2t,
        embedding=tensors.pop(EMBEDDING_NAME, None),
        state=tensors,
    )


def build_eagle3(
    checkpoint: Eagle3Checkpoint, target: TargetModel, *, kernels: Kernels | None = None
) -> Eagle3Drafter:
    """The drafter beside `target`, in the dtype and on the device of its embedding.

    Raises CheckpointError where the two do not fit: another hidden size, a tap that the target
    lacks, target ids that it lacks.
    """
    config, taps = checkpoint.facts
    spec = target.spec
    if config.target_hidden_size != spec.hidden_size:
        raise CheckpointError(
            f"the EAGLE-3 drafter is for targets of hidden size {config.target_hidden_size}, but"
            f" target {spec.name} has {spec.hidden_size}; use the target it was trained for"
        )
    if taps is None:
        taps = public_taps(spec.num_layers)
    if len(taps) != len(config.taps) or max(taps) >= spec.num_layers - 1:
        raise CheckpointError(
            f"the EAGLE-3 drafter taps the layers {', '.join(map(str, taps))} and its fc takes"
            f" {len(config.taps)}, but target {spec.name} can give layers 0 to"
            f" {spec.num_layers - 2}; use the target it was trained for, or correct --taps"
        )
    like = target.embed(torch.zeros(1, dtype=torch.long))
    table = checkpoint.embedding
    return Eagle3Drafter(
        replace(config, taps=taps),
        {name: tensor.to(like) for name, tensor in checkpoint.state.items()},
        target,
        d2t=checkpoint.d2t,
        embedding=None if table is None else table.to(like),
        kernels=kernels,
    )


def _public_name(name: str) -> str:
    """speculators' names as the public code has them."""
    ours, public = _LAYER_NAMES
    return public + name.removeprefix(ours) if name.startswith(ours) else name


def _check_names_and_shapes(
    facts: Eagle3Facts, stored: Mapping[str, StoredTensor], source: str
) -> None:
    config = facts.config
    required = eagle3_shapes(config)
    if config.draft_vocab_size < config.vocab_size:
        required[D2T_NAME] = (config.draft_vocab_size,)
    known = required | {
        D2T_NAME: (config.draft_vocab_size,),
        T2D_NAME: (config.vocab_size,),
        EMBEDDING_NAME: (config.vocab_size, config.hidden_size),
    }
    if config.hidden_size != config.target_hidden_size:
        required[EMBEDDING_NAME] = known[EMBEDDING_NAME]
    for name, shape in required.items():
        if name not in stored:
            raise CheckpointError(
                f"{source}: tensor {name} {list(shape)} is missing; the checkpoint is incomplete or"
                " no EAGLE-3 drafter of one layer: fetch it again"
            )
    for name, tensor in stored.items():
        if name not in known:
            raise CheckpointError(
                f"{source}: {tensor.file} has an unexpected tensor {name} {list(tensor.shape)};"
                " every tensor must be used: this is no plain EAGLE-3 drafter of one layer"
            )
        if tensor.shape != known[name]:
            raise CheckpointError(
                f"{source}: tensor {name} in {tensor.file} has shape {list(tensor.shape)}, expected"
                f" {list(known[name])} {_why_shape(name, facts)}"
            )


def _why_shape(name: str, facts: Eagle3Facts) -> str:
    if name != "fc.weight":
        return f"(from {CONFIG_FILE}); config.json and weights do not belong together"
    layers = f"{NUM_TAPS} layers, as the file names none"
    if facts.taps is not None:
        layers = f"the layers {', '.join(map(str, facts.taps))}"
    return f"({layers}, of hidden size {facts.config.target_hidden_size}); correct --taps"
