"""Which models are accepted: a check of the family, then a trial on a throw-away state.

Both run once, when a model is loaded. It changes nothing in the model and holds no cache code.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from blockdraft.decoding.interfaces import TargetState
from blockdraft.errors import CheckpointError, UnsupportedTarget

# Root mean square of the difference, relative to that of the logits. A leaked or lost token moves
# logits by the order of the logits themselves; rounding in another order moves them by far less.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.05}


def refuse(name: str, reason: str) -> UnsupportedTarget:
    """The error for a model that can't be decoded losslessly here."""
    return UnsupportedTarget(
        f"{name} can't be decoded losslessly here: {reason}. Use a decoder-only attention model "
        "whose key/value cache can be cut back"
    )


def trial_ids(vocab_size: int) -> tuple[int, ...]:
    """The trial's five tokens and the wrong one, spread over any vocabulary.

    The lowest ids are avoided: they are often special tokens, on which real models can be so
    ill-conditioned that bfloat16 logits are meaningless (seen on SmolLM2).
    """
    return tuple(step * vocab_size // 7 for step in range(1, 7))


def try_rollback(name: str, state: TargetState, reference: Float[Tensor, "5 vocab"]) -> None:
    """Prefill three tokens, verify two wrong ones, roll back, verify the right two.

    `reference` holds the logits of the five right tokens in one pass without a cache. Raises
    UnsupportedTarget when the state's differ: some part of the model's memory was not rolled
    back, or the cache changes what the model computes.
    """
    if not bool(torch.isfinite(reference).all()):
        raise CheckpointError(
            f"{name} gives logits that are not finite in {reference.dtype}: "
            "load it in a wider dtype, or check its weights"
        )
    *ids, wrong = trial_ids(reference.shape[-1])
    prefilled = state.prefill(torch.tensor(ids[:3])).logits
    if not _close(prefilled, reference[2:3]):
        raise refuse(name, "its logits with a cache differ from those without")
    state.verify(torch.tensor([wrong, wrong]))
    state.commit([])
    verified = state.verify(torch.tensor(ids[3:])).logits
    state.commit([])
    if not _close(verified, reference[3:]):
        raise refuse(name, "rejected tokens leave traces in its state after a roll back")


def try_tree(state: TargetState, reference: Float[Tensor, "5 vocab"]) -> bool:
    """Whether two branches in one pass are kept apart; `state` holds the first three tokens.

    The pass is [wrong, right, right]: the second and third row must not see the first.
    """
    *ids, wrong = trial_ids(reference.shape[-1])
    logits = state.verify(torch.tensor([wrong, *ids[3:]]), parents=(-1, -1, 1)).logits
    state.commit([])
    return _close(logits[1:], reference[3:])


def try_attention(
    name: str, found: Float[Tensor, "rows vocab"], expected: Float[Tensor, "rows vocab"]
) -> None:
    """Check that the batch-invariant attention computes what the model's own attention does.

    The median row decides, because a single row of a real model can be ill-conditioned. Raises
    UnsupportedTarget when they differ (attention with terms that it does not know).
    """
    if float(_row_errors(found, expected).median()) > TOLERANCE.get(expected.dtype, 0.1):
        raise UnsupportedTarget(
            f"the attention of {name} is not plain softmax attention, so it can't be made "
            "batch-invariant: load it without batch_invariant"
        )


def try_invariance(name: str, open_state: Callable[[], TargetState], width: int) -> None:
    """Check that a row's logits are the same bits wherever it stands in a pass of `width` rows.

    Raises UnsupportedTarget when they are not, with this model on this machine.
    """
    whole = _logits_by_cuts(open_state(), [width])
    for cuts in ([1] * width, [width - 1, 1]):
        if not torch.equal(whole, _logits_by_cuts(open_state(), cuts)):
            raise UnsupportedTarget(
                f"the kernels of this machine do not give {name} batch-invariant logits "
                f"at {width} rows a pass: load it without batch_invariant, in float32"
            )


def _logits_by_cuts(state: TargetState, cuts: Sequence[int]) -> Float[Tensor, "rows vocab"]:
    """Logits of the same ids, fed in passes of `cuts` rows each."""
    vocab_size = state.prefill(torch.tensor([0])).logits.shape[-1]
    logits: list[Tensor] = []
    start = 0
    for cut in cuts:
        ids = [(7 * position + 1) % vocab_size for position in range(start, start + cut)]
        logits.append(state.verify(torch.tensor(ids)).logits)
        state.commit(range(cut))
        start += cut
    return torch.cat(logits)


def _close(left: Float[Tensor, "rows vocab"], right: Float[Tensor, "rows vocab"]) -> bool:
    return bool((_row_errors(left, right) <= TOLERANCE.get(right.dtype, 0.1)).all())


def _row_errors(
    left: Float[Tensor, "rows vocab"], right: Float[Tensor, "rows vocab"]
) -> Float[Tensor, " rows"]:
    difference = (left.double() - right.double()).pow(2).mean(-1).sqrt()
    scale = right.double().pow(2).mean(-1).sqrt()
    return difference / scale.clamp_min(1e-9)
