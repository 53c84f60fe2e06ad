"""Answers that are known before the soak begins: made offline, one token a step, without a drafter.

What a server says under load is compared with them.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from blockdraft.decoding import Completion, NoDrafter, SamplingParams, collect, decode
from blockdraft.native import TargetOptions, load_engine_target
from blockdraft.serving.answers.settings import derived_seed

LEAST_MARGIN = 1e-3
"""Of the top two log-probabilities: below it two float32 programs may choose differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A request as fields of /v1/completions, and its choices in order."""

    kind: str
    fields: Mapping[str, object]
    answers: tuple[Completion, ...]

    def is_right(self, index: int, ids: Sequence[int], text: str, reason: str | None) -> bool:
        """Whether this is choice `index`; a greedy one may differ from a near tie on."""
        right = self.answers[index]
        if tuple(ids) == right.token_ids:
            return text == right.text and reason == right.finish_reason
        if self.kind != "greedy":
            return False
        place = next(
            (k for k, (a, b) in enumerate(zip(ids, right.token_ids, strict=False)) if a != b), None
        )
        if place is None:
            return False
        top = right.logprobs[place].top
        return top[0][1] - top[1][1] < LEAST_MARGIN


def known_answers(target_folder: Path, count: int, seed: int) -> list[Known]:
    """`count` requests of changing kinds and their answers."""
    target = load_engine_target(str(target_folder), TargetOptions(dtype="float32"))
    codec = target.text
    assert codec is not None
    rng = random.Random(seed)
    made: list[Known] = []
    for place in range(count):
        kind, fields, params, n = _drawn(rng, place)
        length = rng.choice((1, 5, 30, 90, 400))
        ids = [rng.randrange(256) for _ in range(length)]
        answers: list[Completion] = []
        for choice in range(n):
            own = replace(params, seed=derived_seed(params.seed, choice))
            steps = decode(target, NoDrafter(), ids, own, decode_text=codec.decode)
            answers.append(collect(ids, steps))
        made.append(Known(kind=kind, fields={"prompt": ids, **fields}, answers=tuple(answers)))
    return made


def _drawn(rng: random.Random, place: int) -> tuple[str, dict[str, object], SamplingParams, int]:
    """Kind, fields of the request, the same for the engine, and choices."""
    most = rng.randint(1, 48)
    fields: dict[str, object] = {"max_tokens": most, "temperature": 0}
    params = SamplingParams(max_new_tokens=most, temperature=0.0, logprobs=2)
    if place % 4 < 2:
        return "greedy", fields, params, 1
    seed = rng.getrandbits(40)
    if place % 4 == 2:
        fields |= {"temperature": 0.8, "top_p": 0.9, "top_k": 40, "seed": seed}
        return "seeded", fields, replace(params, temperature=0.8, top_p=0.9, top_k=40, seed=seed), 3
    allowed = tuple(sorted(rng.sample(range(256), 3)))
    fields |= {"temperature": 1, "allowed_token_ids": list(allowed), "seed": seed}
    return "few tokens", fields, replace(params, temperature=1.0, allowed_ids=allowed, seed=seed), 1
