"""Trying out a transformers model when it is loaded: what it needs, and that it can be rolled back.

The checks themselves are in `support.py`; nothing of the model is changed but, for batch-invariant
targets, its attention. `Any` is tolerated in this file because transformers is untyped.
"""

from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from blockdraft.decoding.interfaces import TargetSpec
from blockdraft.errors import ConfigError, UnsupportedTarget
from blockdraft.target.capture import capture, find_decoder_layers
from blockdraft.target.families import FamilyTraits, read_attribute, text_config, why_no_trees
from blockdraft.target.hf_attention import register_chunked_attention
from blockdraft.target.hf_call import ModelCall
from blockdraft.target.hf_state import HFParts, HFState
from blockdraft.target.mixing import Mixers
from blockdraft.target.recurrent import watch_mixers
from blockdraft.target.spec import embedding_weight
from blockdraft.target.support import (
    close_enough,
    trial_ids,
    trial_len,
    try_attention,
    try_invariance,
    try_rollback,
    try_tree,
)


def try_out(
    model: Any, spec: TargetSpec, traits: FamilyTraits, batch_invariant: int | None
) -> HFParts:
    """What states of `model` share; UnsupportedTarget when a trial of a few tokens fails."""
    weight = embedding_weight(model)
    call = ModelCall(model, traits)
    layers = find_decoder_layers(model.base_model, spec.num_layers)
    mixers = find_mixers(call, layers, spec, weight.device) if traits.recurrent else None
    length = trial_len(read_attribute(text_config(model), "sliding_window"), spec.max_context_len)
    ids = torch.tensor(trial_ids(spec.vocab_size, length), device=weight.device)

    no_taps: str | None = None

    def parts(no_trees: str | None) -> HFParts:
        return HFParts(
            call=call,
            layers=layers,
            mixers=mixers,
            spec=spec,
            dtype=weight.dtype,
            device=weight.device,
            pass_width=batch_invariant,
            why_no_trees=no_trees,
            why_no_taps=no_taps,
        )

    # Throughout, so that the pass without a cache computes what the others do.
    with nullcontext() if mixers is None else mixers.unlimited():
        reference, no_taps = _tapped(call, ids, layers)
        if batch_invariant is not None:
            expected = reference
            use_chunked_attention(spec.name, model)
            reference = call(ids, cache=None)
            try_attention(spec.name, reference, expected)
        trial = HFState(parts(None), taps=())
        try_rollback(spec.name, trial, reference)
    if batch_invariant is not None:
        try_invariance(spec.name, lambda: HFState(parts(None), taps=()), batch_invariant)
    no_trees = why_no_trees(traits, model)
    if no_trees is None and not (call.takes_positions and try_tree(trial, reference)):
        no_trees = "it does not follow a given attention mask"
    return parts(no_trees)


def _tapped(
    call: ModelCall, ids: Int[Tensor, " tokens"], layers: nn.ModuleList
) -> tuple[Float[Tensor, "tokens vocab"], str | None]:
    """The logits of `ids` without a cache, and why the first and last layer can't be tapped."""
    try:
        with capture(layers, (0, len(layers) - 1)):
            return call(ids, cache=None), None
    except UnsupportedTarget as error:
        return call(ids, cache=None), str(error)


def find_mixers(
    call: ModelCall, layers: nn.ModuleList, spec: TargetSpec, device: torch.device
) -> Mixers:
    """The mixers of a recurrent model, and whether they must be fed row by row.

    Two tokens are fed, then two more: some families forget the state in the second pass.
    """
    ids = torch.tensor(trial_ids(spec.vocab_size, 4), device=device)
    cache = call.new_cache()
    with watch_mixers(layers, cache) as found:
        call(ids[:2], cache, position_ids=_positions(call, 0, 2, device))
    mixers = Mixers(tuple(found))
    with mixers.unlimited():
        reference = call(ids, cache=None)[2:]
        continued = call(ids[2:], cache, position_ids=_positions(call, 2, 4, device))
    return mixers if close_enough(continued, reference) else mixers.feeding_rows()


def use_chunked_attention(name: str, model: Any) -> None:
    """Switch `model` to `hf_attention.chunked_attention`; ConfigError where it has no such seam."""
    if not getattr(model, "_supports_attention_backend", False):
        raise ConfigError(
            f"{type(model).__name__} has its own attention code, so {name} can't be made "
            "batch-invariant: leave batch_invariant out"
        )
    model.set_attn_implementation(register_chunked_attention())


def _positions(
    call: ModelCall, start: int, end: int, device: torch.device
) -> Int[Tensor, " rows"] | None:
    return torch.arange(start, end, device=device) if call.needs_positions else None
