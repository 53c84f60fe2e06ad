"""`mask_embedding.pt`: a learned row instead of the mask token's, the one pickle of the format.

It is read without running anything, and written in the form that vLLM and SGLang read too.
"""

import warnings
from pathlib import Path
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from blockdraft.drafter.config import DrafterConfig
from blockdraft.errors import CheckpointError

MASK_FILE = "mask_embedding.pt"
_KEYS = ("embedding", "mask_embedding", "weight")
_ID_KEY = "mask_token_id"


def write_mask_embedding(
    folder: Path, row: Float[Tensor, " hidden"] | None, mask_token_id: int
) -> None:
    """Write the row of a drafter, if it has one."""
    if row is not None:
        entry = {"embedding": row.detach().cpu().clone(), _ID_KEY: mask_token_id}
        torch.save(entry, folder / MASK_FILE)


def read_mask_embedding(
    folder: Path, config: DrafterConfig, source: str
) -> Float[Tensor, " hidden"] | None:
    """The row, by itself or under a known key; None without the file.

    Raises CheckpointError for a file that is damaged, of another mask token or another width.
    """
    path = folder / MASK_FILE
    if not path.exists():
        return None
    tensor = _only_value(load_mask_file(path, source), config, source)
    if isinstance(tensor, Tensor) and not tensor.is_meta and tensor.layout == torch.strided:
        if tuple(tensor.shape) in ((config.hidden_size,), (1, config.hidden_size)):
            return tensor.detach().flatten()
        found = str(list(tensor.shape))
    else:
        found = _kind(tensor)
    raise CheckpointError(
        f"{source}: {path.name} holds {found}, expected one tensor [{config.hidden_size}], by"
        f" itself or under the key {' or '.join(_KEYS)}; fetch the checkpoint again"
    )


def load_mask_file(path: Path, source: str) -> object:
    """What is pickled in the file. Raises CheckpointError for anything that would run code."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on pickles that no torch wrote; refused below
            # weights_only: a file that would run code on loading is refused by the unpickler.
            return cast("object", torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # damaged bytes make the unpickler raise whatever they lead to
        raise CheckpointError(
            f"{source}: {path.name} is damaged or holds more than tensors ({type(error).__name__});"
            " do not use it unless you trust it"
        ) from error


def _only_value(loaded: object, config: DrafterConfig, source: str) -> object:
    """The value of a dict whose one key, beside the mask token's id, is a known name; anything
    else as it is. Raises CheckpointError for a row that was made for another mask token."""
    if not isinstance(loaded, dict):
        return loaded
    entries = dict(cast("dict[object, object]", loaded))
    made_for = entries.pop(_ID_KEY, config.mask_token_id)
    if made_for != config.mask_token_id:
        raise CheckpointError(
            f"{source}: {MASK_FILE} was made for mask token {made_for}, but the configuration has"
            f" {config.mask_token_id}; files of two checkpoints are mixed: fetch it again"
        )
    known = [value for key, value in entries.items() if key in _KEYS]
    return known[0] if len(known) == len(entries) == 1 else entries


def _kind(value: object) -> str:
    if not isinstance(value, dict):
        return f"a {type(value).__name__} without plain values"
    keys = [str(key) for key in cast("dict[object, object]", value)]
    shown = ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "")
    return f"a dict with the keys {shown[:80]!r}"
