"""Drafter checkpoints in the published layout: load, check, describe, save, build.

It decodes nothing and knows no concrete target.
"""

from blockdraft.checkpoint.build import build_drafter, load_dflash, load_drafter_model
from blockdraft.checkpoint.contents import DrafterCheckpoint
from blockdraft.checkpoint.inspect import CheckpointSummary, describe, render_text
from blockdraft.checkpoint.pairing import check_pair
from blockdraft.checkpoint.store import load_checkpoint, save_checkpoint

__all__ = [
    "CheckpointSummary",
    "DrafterCheckpoint",
    "build_drafter",
    "check_pair",
    "describe",
    "load_checkpoint",
    "load_dflash",
    "load_drafter_model",
    "render_text",
    "save_checkpoint",
]
