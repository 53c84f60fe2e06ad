"""Whether a drafter and a target belong together, as far as their numbers tell.

It compares no tokenizers (a drafter has none) and measures no acceptance.
"""

import logging

from blockdraft.decoding.interfaces import TargetSpec
from blockdraft.drafter.config import DrafterConfig
from blockdraft.errors import CheckpointError

_MOST_PADDING = 512
_LOG = logging.getLogger("blockdraft")


def check_pair(config: DrafterConfig, target: TargetSpec) -> None:
    """Raise CheckpointError when `config` can't be a drafter for `target`.

    Refused: another hidden size or depth, a tap beyond the target or on its last layer, a mask id
    that the target has no row for, another vocabulary. Vocabulary widths may differ by padding:
    at most 512 rows and at most 1 % of the smaller one. The drafted logits are the target's rows
    either way, so padding can't change them; a difference is logged as one warning.
    """
    if config.hidden_size != target.hidden_size:
        raise _mismatch(target, "hidden size", config.hidden_size, target.hidden_size)
    depth = config.num_target_layers
    if depth is not None and depth != target.num_layers:
        raise _mismatch(target, "number of target layers", depth, target.num_layers)
    _check_taps(config, target)
    if config.mask_token_id >= target.vocab_size:
        raise CheckpointError(
            f"the drafter's mask token id {config.mask_token_id} is outside the vocabulary of"
            f" {target.vocab_size} of target {target.name}; use the target it was trained for"
        )
    smaller = min(config.vocab_size, target.vocab_size)
    if abs(config.vocab_size - target.vocab_size) > min(_MOST_PADDING, smaller // 100):
        raise _mismatch(target, "vocabulary size", config.vocab_size, target.vocab_size)
    if config.vocab_size != target.vocab_size:
        _LOG.warning(
            "the drafter's vocabulary has %d rows and that of target %s has %d; the difference is"
            " taken as padding",
            config.vocab_size,
            target.name,
            target.vocab_size,
        )


def _check_taps(config: DrafterConfig, target: TargetSpec) -> None:
    last = target.num_layers - 1
    for tap in config.taps:
        if tap > last:
            raise CheckpointError(
                f"the drafter taps layer {tap}, but target {target.name} has layers 0 to {last};"
                " use the target it was trained for, or correct --taps"
            )
        if tap == last:
            raise CheckpointError(
                f"the drafter taps layer {tap}, the last one of target {target.name}, which models"
                " give out only after the final norm; correct target_layer_ids or --taps"
            )


def _mismatch(target: TargetSpec, what: str, drafter: int, expected: int) -> CheckpointError:
    return CheckpointError(
        f"the drafter's {what} is {drafter}, but target {target.name} has {expected}; use the"
        " target that the drafter was trained for"
    )
