"""The exact target law: chi-square tests of joint continuations with a deliberately bad drafter.

Continuations of 3 tokens over 5 are compared with products of the target's processed
probabilities. The acceptance functions run vectorized over trials; three settings also run
through the reference loop. Deliberately wrong rules must fail the same test (S04, S06).
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar, cast, get_args

import pytest
import torch
from torch import Tensor

from blockdraft.decoding import Law, SamplingParams, decode
from blockdraft.decoding.accept import draw, verify_point_mass, verify_sampled
from blockdraft.decoding.chain import build_chain
from blockdraft.decoding.interfaces import DraftLattice, DraftLogits
from blockdraft.decoding.lattice import row_after
from blockdraft.testing import ScriptedTarget, hashed_logits

VOCAB, LENGTH = 5, 3
PROMPT = (1, 3)
STOP = 4
# Half as many of either show each of the wrong rules, at temperature 1, by p < 1e-10.
NUM_TRIALS = 20_000
NUM_LOOP_TRIALS = 10_000
ALPHA = 1e-4
TARGET_LOGITS = cache(hashed_logits(VOCAB, seed=3, scale=1.5))
PATH_RULES = ("sampled path", "wrong: the law of another path")
Path = tuple[int, ...]
Key = TypeVar("Key", bound=Hashable)
Simulation = Callable[[SamplingParams, int], list[Path]]

SETTINGS = {
    "temperature 1": SamplingParams(temperature=1.0),
    "temperature 0.3": SamplingParams(temperature=0.3),
    "temperature 1.5": SamplingParams(temperature=1.5),
    "top-k": SamplingParams(temperature=1.0, top_k=3),
    "top-p": SamplingParams(temperature=1.0, top_p=0.8),
    "min-p": SamplingParams(temperature=1.0, min_p=0.2),
    "repetition": SamplingParams(temperature=1.0, repetition_penalty=1.7),
    "presence": SamplingParams(temperature=1.0, presence_penalty=1.5),
    "frequency": SamplingParams(temperature=1.0, frequency_penalty=1.5),
    "bias": SamplingParams(temperature=1.0, logit_bias={0: 1.5, 2: -1.0}),
    "allowed": SamplingParams(temperature=1.0, allowed_ids=(0, 1, 3)),
    "banned": SamplingParams(temperature=1.0, banned_ids=(2,)),
    "bad words": SamplingParams(temperature=1.0, bad_words=((0,), (1, 2), (3, 1, 4))),
    "min tokens": SamplingParams(temperature=1.0, min_tokens=2),
    "all at once": SamplingParams(
        temperature=0.9,
        top_k=4,
        top_p=0.95,
        min_p=0.02,
        repetition_penalty=1.2,
        presence_penalty=0.4,
        frequency_penalty=0.3,
        logit_bias={1: 0.7},
        bad_words=((2, 2),),
    ),
}


def drafter_logits(anchor_path: Path, slot: int) -> Tensor:
    """A bad drafter: it prefers what the target avoids, and knows only the anchor's path."""
    return -TARGET_LOGITS((*PROMPT, *anchor_path)) * 0.7 + 0.3 * slot


def drafter_lattice(anchor_path: Path, num_slots: int) -> DraftLattice:
    """A bad drafter whose slots depend on the token before: three candidates, liked the more the
    less the target likes them, with a twist for each that may stand before."""
    rows = [drafter_logits(anchor_path, slot) for slot in range(num_slots)]
    candidates = torch.stack([(row + 0.9 * torch.arange(VOCAB)).topk(3).indices for row in rows])
    twist = torch.tensor([[0.0, 1.0, -1.0], [1.5, 0.0, -0.5], [-1.0, 0.5, 1.0]])
    scores = torch.stack([row[ids] for row, ids in zip(rows, candidates, strict=True)])
    return DraftLattice(candidates, scores[0], scores[1:, None] + twist)


def processed(params: SamplingParams, path: Path, logits: Tensor, committed: Path) -> Tensor:
    chain = build_chain(params, PROMPT, (STOP,))
    chain.advance(committed)
    return chain.mask(logits, path[len(committed) :]).softmax(-1)


@cache
def lattice_row(anchor: Path, slot: int, previous_id: int | None) -> Tensor:
    row = row_after(drafter_lattice(anchor, LENGTH - 1), slot, previous_id, VOCAB)
    assert row is not None
    return row


def lattice_law(params: SamplingParams, anchor: Path, slot: int, path: Path) -> Tensor:
    """What a draft for `slot` is drawn from, after `path`."""
    row = lattice_row(anchor, slot, path[-1] if slot else None)
    return processed(params, path, row, anchor)


def target_probs(params: SamplingParams, path: Path) -> Tensor:
    return processed(params, path, TARGET_LOGITS((*PROMPT, *path)), path)


def floats(values: Tensor) -> list[float]:
    return cast(list[float], values.tolist())


def joint_law(params: SamplingParams) -> dict[Path, float]:
    """Probability of every continuation; one that meets the stop token ends there."""
    law: dict[Path, float] = {}

    def extend(path: Path, mass: float) -> None:
        if len(path) == LENGTH or path[-1:] == (STOP,):
            law[path] = law.get(path, 0.0) + mass
            return
        for token_id, p in enumerate(floats(target_probs(params, path))):
            if p > 0:
                extend((*path, token_id), mass * p)

    extend((), 1.0)
    return law


def p_value(counts: Counter[Path], law: dict[Path, float]) -> float:
    """Chi-square p-value, cells expected under 5 times merged; 0 for an impossible outcome."""
    if not set(counts) <= set(law):
        return 0.0
    num_trials = sum(counts.values())
    cells, rest_seen, rest_expected = list[tuple[int, float]](), 0, 0.0
    for path, p in law.items():
        if p * num_trials >= 5:
            cells.append((counts[path], p * num_trials))
        else:
            rest_seen, rest_expected = rest_seen + counts[path], rest_expected + p * num_trials
    if rest_expected > 0:
        cells.append((rest_seen, max(rest_expected, 1.0)))
    statistic = sum(abs(seen - expected) ** 2 / expected for seen, expected in cells)
    shape = torch.tensor((len(cells) - 1) / 2, dtype=torch.float64)
    scale = torch.tensor(statistic / 2, dtype=torch.float64)
    return float(cast(Tensor, torch.special.gammaincc(shape, scale)))


class Uniforms:
    """Independent uniforms for a whole batch of trials at once."""

    def __init__(self, seed: int, num_trials: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._num_trials = num_trials

    def next(self) -> Tensor:
        return torch.rand(self._num_trials, generator=self._generator, dtype=torch.float64)


def lookup(table: Callable[[Key], Tensor], keys: Sequence[Key]) -> Tensor:
    """A row a trial; trials at the same point share the one that was computed."""
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    return torch.stack([table(key) for key in places])[[places[key] for key in keys]]


def extended(paths: list[Path], ids: Tensor) -> list[Path]:
    new_ids = cast(list[int], ids.tolist())
    return [(*path, token_id) for path, token_id in zip(paths, new_ids, strict=True)]


def simulate(params: SamplingParams, num_trials: int, rule: str, seed: int = 0) -> list[Path]:
    """Trials side by side: one prefill token, then blocks of two drafts, slot by slot.

    `rule` is "argmax", "sampled", "sampled path" (the drafts are a lattice's), or one of the
    deliberately wrong ones.
    """
    uniforms = Uniforms(seed, num_trials)
    paths: list[Path] = [()] * num_trials
    ids = draw(lookup(lambda path: target_probs(params, path), paths), uniforms.next())
    paths = extended(paths, ids)
    anchors = list(paths)
    for _ in range(LENGTH - 1):
        slots = [len(path) - len(anchor) for path, anchor in zip(paths, anchors, strict=True)]
        keys = list(zip(anchors, paths, slots, strict=True))

        def draft_law(key: tuple[Path, Path, int]) -> Tensor:
            anchor, path, slot = key
            if rule in PATH_RULES:
                return lattice_law(params, anchor, slot, path)
            return processed(params, path, drafter_logits(anchor, slot), anchor)

        draft_probs = lookup(draft_law, keys)
        p = lookup(lambda path: target_probs(params, path), paths)
        token_u, draft_u, residual_u = uniforms.next(), uniforms.next(), uniforms.next()
        best, drawn = draft_probs.argmax(-1), draw(draft_probs, draft_u)
        if rule == "argmax":
            verdict = verify_point_mass(best, p, token_u)
        elif rule in ("sampled", "sampled path"):
            verdict = verify_sampled(drawn, draft_probs, p, token_u, residual_u)
        elif rule == "wrong: softmax q for argmax drafts":
            verdict = verify_sampled(best, draft_probs, p, token_u, residual_u)
        elif rule == "wrong: the law of another path":
            first = lookup(lambda anchor: lattice_law(params, anchor, 0, anchor), anchors)
            verdict = verify_sampled(drawn, first, p, token_u, residual_u)
        elif rule == "wrong: shared random numbers":
            verdict = verify_sampled(drawn, draft_probs, p, draft_u, residual_u)
        else:
            assert rule == "wrong: processors on the bonus token only"
            raw = lookup(lambda path: TARGET_LOGITS((*PROMPT, *path)).softmax(-1), paths)
            verdict = verify_point_mass(best, raw, token_u)
        paths = extended(paths, verdict.ids)
        anchors = [
            anchor if accepted else path
            for anchor, path, accepted in zip(anchors, paths, floats(verdict.accepted), strict=True)
        ]
    return paths


def until_stop(paths: Sequence[Path]) -> Counter[Path]:
    cut = [path[: path.index(STOP) + 1] if STOP in path else path for path in paths]
    return Counter(cut)


@pytest.mark.parametrize("rule", ["argmax", "sampled", "sampled path"])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_joint_law_is_the_target_s(name: str, rule: str) -> None:
    """S01, S06, S08, S09, S18: every processor in turn, at every position of a block."""
    params = SETTINGS[name]
    counts = until_stop(simulate(params, NUM_TRIALS, rule))
    assert p_value(counts, joint_law(params)) > ALPHA


@pytest.mark.parametrize(
    "rule",
    [
        "wrong: softmax q for argmax drafts",
        "wrong: shared random numbers",
        "wrong: the law of another path",
    ],
)
def test_a_wrong_rule_fails_the_same_test(rule: str) -> None:
    """S04, S06."""
    params = SETTINGS["temperature 1"]
    counts = until_stop(simulate(params, NUM_TRIALS, rule))
    assert p_value(counts, joint_law(params)) < ALPHA


def test_processors_on_the_bonus_token_only_fail_the_same_test() -> None:
    """S08: the fault that several engines had."""
    params = SETTINGS["top-k"]
    counts = until_stop(simulate(params, NUM_TRIALS, "wrong: processors on the bonus token only"))
    assert p_value(counts, joint_law(params)) < ALPHA


class BadDrafter:
    """`drafter_logits`, or `drafter_lattice`, behind the Drafter Protocol."""

    block_size = 3
    taps: tuple[int, ...] = ()

    def __init__(self, *, paths: bool) -> None:
        self._paths = paths

    def open(self) -> "BadState":
        return BadState(self._paths)


class BadState:
    def __init__(self, paths: bool) -> None:
        self._paths = paths
        self._ids: Path = ()

    @property
    def context_len(self) -> int:
        return len(self._ids)

    def extend(self, ids: Sequence[int], features: Tensor | None) -> None:
        self._ids += tuple(ids)

    def propose(self, anchor: int, width: int) -> DraftLogits | DraftLattice:
        path = (*self._ids, anchor)[len(PROMPT) :]
        if self._paths:
            return drafter_lattice(path, width - 1)
        return DraftLogits(torch.stack([drafter_logits(path, slot) for slot in range(width - 1)]))


def loop_outputs(name: str, law: Law, seeds: range, *, paths: bool) -> list[Path]:
    """What `decode` itself emits, every trial with its own seed."""
    target = ScriptedTarget(TARGET_LOGITS, VOCAB, stop_ids=(STOP,))
    outputs: list[Path] = []
    for seed in seeds:
        params = replace(SETTINGS[name], max_new_tokens=LENGTH, law=law, seed=seed)
        commits = decode(target, BadDrafter(paths=paths), PROMPT, params)
        outputs.append(tuple(token_id for commit in commits for token_id in commit.ids))
    return outputs


@pytest.mark.acceptance
@pytest.mark.parametrize(
    ("name", "law", "kind"),
    [
        ("temperature 1", "argmax", "logits"),
        ("all at once", "argmax", "logits"),
        ("temperature 1", "sampled", "logits"),
        ("temperature 1", "sampled", "paths"),
        ("all at once", "sampled", "paths"),
    ],
)
def test_the_reference_loop_follows_the_joint_law(name: str, law: str, kind: str) -> None:
    """S06 through the loop: this file as a script, which runs without the slow shape checks."""
    half = NUM_LOOP_TRIALS // 2
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, name, law, kind, str(start), str(start + half)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for start in (0, half)
    ]
    outputs: list[Path] = []
    for worker in workers:
        text, _ = worker.communicate()
        outputs += [tuple(ids) for ids in cast(list[list[int]], json.loads(text))]
    assert len(outputs) == NUM_LOOP_TRIALS
    assert p_value(Counter(outputs), joint_law(SETTINGS[name])) > ALPHA


if __name__ == "__main__":
    torch.set_num_threads(1)
    chosen_name, chosen_law, chosen_kind, first, last = sys.argv[1:]
    assert chosen_law in get_args(Law)
    chosen_seeds, with_paths = range(int(first), int(last)), chosen_kind == "paths"
    sys.stdout.write(
        json.dumps(loop_outputs(chosen_name, cast(Law, chosen_law), chosen_seeds, paths=with_paths))
    )
