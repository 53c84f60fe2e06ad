"""The live check: a few prompts decoded here by the reference loop, and their acceptance.

What the figures mean is judged in `rules/live.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from blockdraft.api import PromptOptions, encode_prompt, load_drafter, load_target
from blockdraft.check.facts import LiveOutcome, PairFacts
from blockdraft.check.locate import Located
from blockdraft.decoding import SamplingParams
from blockdraft.errors import Error
from blockdraft.evaluation import AnswerCount, measure_acceptance
from blockdraft.target.folder import weight_files

MAX_NEW_TOKENS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOrder:
    """What to decode: user turns, or ready token ids where the target has no tokenizer."""

    prompts: Sequence[str | tuple[int, ...]]
    max_new_tokens: int = MAX_NEW_TOKENS
    dtype: str = "float32"
    progress: Callable[[AnswerCount], None] | None = None


def why_not_live(pair: PairFacts, target: Located) -> str | None:
    """The reason why the pair can't be decoded here, None when it can be tried."""
    if pair.target.format not in ("hf", "gguf"):
        return "there is no target that loads"
    if pair.target.unread is not None or pair.target.faults:
        return "the target's configuration is not readable"
    if pair.drafter.format != "hf":
        return "the drafter is not in the layout that Blockdraft loads"
    if pair.drafter.own_refusal is not None:
        return "Blockdraft does not load the pair"
    if not target.has_weights or not _has_weights(target.folder):
        return "the target's weights are not on this machine"
    if pair.target.weights_problem is not None or pair.target.tokenizer_problem is not None:
        return "the target does not load"
    return None


def run_live(pair: PairFacts, target: Located, drafter: Located, order: LiveOrder) -> LiveOutcome:
    """Decode greedily and count; `skipped` says why where nothing could be measured."""
    reason = why_not_live(pair, target)
    if reason is not None:
        return LiveOutcome(skipped=reason)
    try:
        loaded = load_target(target.folder, dtype=order.dtype)
        options = PromptOptions(template_args=_arguments(pair))
        prompts = [encode_prompt(loaded, prompt, options) for prompt in order.prompts]
        result = measure_acceptance(
            loaded,
            load_drafter(str(drafter.folder), loaded),
            prompts,
            SamplingParams(max_new_tokens=order.max_new_tokens),
            progress=order.progress,
        )
    except Error as error:
        return LiveOutcome(skipped=" ".join(str(error).split()))
    interval = result.tau_interval
    return LiveOutcome(
        tau=result.tau,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        num_prompts=len(prompts),
        num_steps=result.stats.steps,
    )


def _arguments(pair: PairFacts) -> dict[str, object]:
    """The template arguments of use, those of the training where none are given."""
    return dict(pair.template_args or pair.drafter.record.template_args or {})


def _has_weights(folder: Path) -> bool:
    if folder.suffix == ".gguf":
        return True
    try:
        return bool(weight_files(folder))
    except Error:
        return False
