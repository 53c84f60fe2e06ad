"""A drafter as the HF folder that vLLM, SGLang, TensorRT-LLM, OpenVINO and MLX read.

A reduced vocabulary is left out: the target's whole head takes its place, of which it is a subset.
"""

from dataclasses import replace
from pathlib import Path

from blockdraft.checkpoint.contents import D2T_NAME, HEAD_NAME, DrafterCheckpoint
from blockdraft.checkpoint.format import render_config
from blockdraft.checkpoint.mask_embedding import write_mask_embedding
from blockdraft.checkpoint.store import CONFIG_FILE
from blockdraft.errors import CheckpointError
from blockdraft.interop.new_folder import write_json, write_weights


def for_engines(checkpoint: DrafterCheckpoint) -> DrafterCheckpoint:
    """The same drafter with the target's whole vocabulary.

    Raises CheckpointError for a head of the drafter's own over a reduced vocabulary: those rows
    exist for the drafted ids only.
    """
    drafted = checkpoint.config.draft_vocab_size
    if drafted is None:
        return checkpoint
    if checkpoint.lm_head is not None:
        raise CheckpointError(
            f"{checkpoint.source}: the drafter has a head of its own over {drafted} ids, which the"
            " HF folder can't carry for other engines; use --format speculators (vLLM), or"
            " --keep-draft-vocabulary for a folder that Blockdraft reads"
        )
    config = replace(checkpoint.config, draft_vocab_size=None)
    return replace(checkpoint, config=config, d2t=None)


def write_hf(folder: Path, checkpoint: DrafterCheckpoint) -> None:
    """Config, weights and mask embedding into the existing, empty `folder`.

    A reduced vocabulary is written where there is one: `for_engines` takes it away.
    """
    dtype = str(checkpoint.dtype).removeprefix("torch.")
    write_json(folder / CONFIG_FILE, render_config(checkpoint.config, dtype))
    tensors = dict(checkpoint.state)
    if checkpoint.lm_head is not None:
        tensors[HEAD_NAME] = checkpoint.lm_head
    if checkpoint.d2t is not None:
        tensors[D2T_NAME] = checkpoint.d2t
    write_weights(folder, tensors)
    write_mask_embedding(folder, checkpoint.mask_embedding, checkpoint.config.mask_token_id)
