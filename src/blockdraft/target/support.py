"""Which models are accepted: a trial on a throw-away state, when a model is loaded.

It changes nothing in the model and holds no cache code; what is known of a family without running
it is in `families.py`.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from blockdraft.decoding.interfaces import TargetState
from blockdraft.errors import CheckpointError, UnsupportedTarget
from blockdraft.target.caches import refuse

# Root mean square of the difference, relative to that of the logits. A leaked or lost token moves
# logits by the order of the logits themselves; rounding in another order moves them by far less.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.05}

LEAST_TRIAL_LEN = 8
MOST_TRIAL_WINDOW = 64
"""Windows up to this wide are crossed in the trial; wider ones would cost too much at load."""


def trial_len(window: int | None, max_context_len: int | None) -> int:
    """The tokens of the trial: beyond the window where that is cheap, never beyond the context."""
    crossing = 0 if window is None or window > MOST_TRIAL_WINDOW else window + 5
    length = max(LEAST_TRIAL_LEN, crossing)
    return length if max_context_len is None else min(length, max_context_len)


def trial_words(vocab_size: int) -> tuple[int, ...]:
    """The trial's five tokens and the wrong one, spread over any vocabulary.

    The lowest ids are avoided: they are often special tokens, on which real models can be so
    ill-conditioned that bfloat16 logits are meaningless (seen on SmolLM2).
    """
    return tuple(step * vocab_size // 7 for step in range(1, 7))


def trial_ids(vocab_size: int, length: int = LEAST_TRIAL_LEN) -> tuple[int, ...]:
    """The right tokens of the trial, in an order that repeats only after 25."""
    *words, _ = trial_words(vocab_size)
    return tuple(words[(place + place // 5 * (place + 1)) % 5] for place in range(length))


def try_rollback(name: str, state: TargetState, reference: Float[Tensor, "tokens vocab"]) -> None:
    """Feed the trial's tokens in several passes among wrong ones, and compare with `reference`.

    `reference` holds the logits of `trial_ids` in one pass without a cache. The passes are: all
    but five tokens; two right rows and a wrong one; one wrong row; the last three, of which one is
    kept, so that the state is left two tokens before the end (three rows at most, which every
    fixed pass width allows). A state that keeps more than its
    rows (a window, a convolution, a recurrent state) passes only if each of them is rolled back.
    Raises UnsupportedTarget when logits differ: some part of the model's memory was not rolled
    back, or the cache changes what the model computes.
    """
    if not bool(torch.isfinite(reference).all()):
        raise CheckpointError(
            f"{name} gives logits that are not finite in {reference.dtype}: "
            "load it in a wider dtype, or check its weights"
        )
    vocab_size, prompt_len = reference.shape[-1], len(reference) - 5
    ids = trial_ids(vocab_size, len(reference))
    wrong = trial_words(vocab_size)[-1]
    prefilled = state.prefill(torch.tensor(ids[:prompt_len])).logits
    first = state.verify(torch.tensor([*ids[prompt_len:-3], wrong])).logits
    if not close_enough(torch.cat([prefilled, first[:2]]), reference[prompt_len - 1 : -3]):
        raise refuse(name, "its logits with a cache differ from those without")
    state.commit([0, 1])
    state.verify(torch.tensor([wrong]))
    state.commit([])
    last = state.verify(torch.tensor(ids[-3:])).logits
    if not close_enough(last, reference[-3:]):
        raise refuse(name, "rejected tokens leave traces in its state after a roll back")
    state.commit([0])


def try_tree(state: TargetState, reference: Float[Tensor, "tokens vocab"]) -> bool:
    """Whether two branches in one pass are kept apart; `state` is as `try_rollback` leaves it.

    The pass is [wrong, right, right]: the second and third row must not see the first.
    """
    vocab_size = reference.shape[-1]
    right, wrong = trial_ids(vocab_size, len(reference))[-2:], trial_words(vocab_size)[-1]
    logits = state.verify(torch.tensor([wrong, *right]), parents=(-1, -1, 1)).logits
    state.commit([])
    return close_enough(logits[1:], reference[-2:])


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


def close_enough(left: Float[Tensor, "rows vocab"], right: Float[Tensor, "rows vocab"]) -> bool:
    """All rows in 32 bits or more. In 16 bits more than half of them: a leak reaches every row,
    while a near tie of experts or an ill-conditioned token moves single ones.
    """
    errors = _row_errors(left, right)
    tolerance = TOLERANCE.get(right.dtype, 0.1)
    if right.dtype in (torch.float32, torch.float64):
        return bool((errors <= tolerance).all())
    return float(errors.quantile(0.5, interpolation="higher")) <= tolerance


def _row_errors(
    left: Float[Tensor, "rows vocab"], right: Float[Tensor, "rows vocab"]
) -> Float[Tensor, " rows"]:
    difference = (left.double() - right.double()).pow(2).mean(-1).sqrt()
    scale = right.double().pow(2).mean(-1).sqrt()
    return difference / scale.clamp_min(1e-9)
