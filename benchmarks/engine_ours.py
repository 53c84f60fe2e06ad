"""Blockdraft's side when another engine is compared: the same prompt ids, greedy, one at a time.

It times what it decodes, but which engine is the faster is for `run.py` to say.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

import ours
from blockdraft.api import load_drafter
from blockdraft.native import NativeTarget
from engine_answers import (
    EngineAnswer,
    common_prefixes,
    partings,
    pooled_tau,
    tokens_per_second,
)
from prompts import TokenPrompt, encode, read_set

Record = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class OurDrafts:
    """Our answers with a drafter, whose blocks have `block_size` tokens, the anchor among them."""

    answers: tuple[EngineAnswer, ...]
    block_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OurSide:
    """A loaded target, its prompts, and its plain answers to them."""

    target: NativeTarget
    prompts: tuple[TokenPrompt, ...]
    max_new_tokens: int
    plain: tuple[EngineAnswer, ...]

    @property
    def names(self) -> list[str]:
        return [prompt.id for prompt in self.prompts]

    @property
    def ids(self) -> list[tuple[int, ...]]:
        return [prompt.ids for prompt in self.prompts]

    def drafted(self, drafter: str) -> OurDrafts:
        """Answers with `drafter` (a folder or a built-in name), whole blocks at every step."""
        loaded = load_drafter(drafter, self.target)
        engine = ours.make_engine(self.target, loaded, f"fixed:{loaded.block_size}")
        answers = _answers(engine, self.prompts, self.max_new_tokens)
        return OurDrafts(answers=answers, block_size=loaded.block_size)

    def margin(self, prompt_ids: Sequence[int], answer_ids: Sequence[int]) -> float:
        """The two best next logits' distance after `answer_ids`."""
        state = self.target.open()
        logits = state.prefill(torch.tensor([*prompt_ids, *answer_ids])).logits[-1].float()
        best = logits.topk(2).values
        return float(best[0] - best[1])


def load_ours(target: Path, dtype: str, *, num_prompts: int, max_new_tokens: int) -> OurSide:
    """The target in `dtype`, and its plain answers to the first GSM8K prompts."""
    loaded = ours.load_native(str(target), dtype)
    assert loaded.text is not None
    prompts = encode(read_set("gsm8k", num_prompts), loaded.text)
    plain = _answers(ours.make_engine(loaded, None, "off"), prompts, max_new_tokens)
    plain = tuple(EngineAnswer(token_ids=a.token_ids, seconds=a.seconds) for a in plain)
    return OurSide(target=loaded, prompts=prompts, max_new_tokens=max_new_tokens, plain=plain)


def _answers(
    engine: ours.BuiltEngine, prompts: Sequence[TokenPrompt], max_new_tokens: int
) -> tuple[EngineAnswer, ...]:
    answers: list[EngineAnswer] = []
    for prompt in prompts:
        made = ours.answer(engine, prompt.ids, max_new_tokens)
        answers.append(
            EngineAnswer(token_ids=made.token_ids, seconds=made.seconds, accepted=made.accepted)
        )
    return tuple(answers)


def measured(answers: Sequence[EngineAnswer]) -> Record:
    """The figures of one run over all prompts."""
    steps = [answer.steps for answer in answers if answer.steps is not None]
    return {
        "tokens": sum(len(answer.token_ids) for answer in answers),
        "seconds": sum(answer.seconds for answer in answers),
        "tokens_per_second": tokens_per_second(answers),
        "steps": sum(steps) if steps else None,
        "tau": pooled_tau(answers),
        "accepted": [answer.accepted for answer in answers],
        "token_ids": [answer.token_ids for answer in answers],
    }


def compared(
    side: OurSide,
    theirs: Sequence[EngineAnswer],
    *,
    their_plain: Sequence[EngineAnswer] | None,
    our_drafted: OurDrafts | None,
) -> Record:
    """One run of another engine against its own plain answers, our plain ones, and our drafts."""
    record = measured(theirs)
    against = {"ours_plain": side.plain, "own_plain": their_plain, "ours_drafted": None}
    if our_drafted is not None:
        against["ours_drafted"] = our_drafted.answers
    for name, others in against.items():
        if others is None or others is theirs:
            continue
        found = partings(side.names, side.ids, theirs, others, side.margin)
        record[f"same_as_{name}"] = len(theirs) - len(found)
        record[f"partings_from_{name}"] = [asdict(parting) for parting in found]
    if our_drafted is not None:
        record["our_tau"] = pooled_tau(our_drafted.answers)
        room = side.max_new_tokens - our_drafted.block_size + 1
        both = common_prefixes(theirs, our_drafted.answers, room)
        if both is not None:
            record["common_prefix"] = {
                "theirs": both[0]._asdict(),
                "ours": both[1]._asdict(),
            }
    return record
