"""The algorithm: ids and logits in, ids out. No models, no caches, no files.

Its contract: `decode` (the reference loop) over the `TargetModel` and `Drafter` Protocols,
`SamplingParams` in, `Commit`s and a `Completion` with `AcceptanceStats` out.
"""

from blockdraft.decoding.baselines import NoDrafter, PromptLookupDrafter
from blockdraft.decoding.completion import Commit, Completion, TokenLogprobs, collect
from blockdraft.decoding.interfaces import (
    Draft,
    Drafter,
    DraftIds,
    DraftLattice,
    DraftLogits,
    DraftState,
    LMHead,
    TargetModel,
    TargetOutput,
    TargetSpec,
    TargetState,
)
from blockdraft.decoding.loop import decode
from blockdraft.decoding.params import Law, SamplingParams
from blockdraft.decoding.rows import RowProcessor
from blockdraft.decoding.stats import AcceptanceStats

__all__ = [
    "AcceptanceStats",
    "Commit",
    "Completion",
    "Draft",
    "DraftIds",
    "DraftLattice",
    "DraftLogits",
    "DraftState",
    "Drafter",
    "LMHead",
    "Law",
    "NoDrafter",
    "PromptLookupDrafter",
    "RowProcessor",
    "SamplingParams",
    "TargetModel",
    "TargetOutput",
    "TargetSpec",
    "TargetState",
    "TokenLogprobs",
    "collect",
    "decode",
]
