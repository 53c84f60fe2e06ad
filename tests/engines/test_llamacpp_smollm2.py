"""The built-in pair in llama.cpp, in float32: real texts, real acceptance, a real tokenizer.

A Llama target (rope-permuted rows, tied head) and a drafter with a reduced vocabulary. It measures
no time; what it measures goes to standard output (-s).
"""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
import torch
from llamacpp_counting import FullWidth, llamacpp_steps
from llamacpp_process import LlamaAnswer, LlamaOptions, LlamaProcess, LlamaStep, llamacpp

from blockdraft.api import encode_prompt
from blockdraft.builtin import builtin_drafter_path
from blockdraft.builtin.smollm2 import smollm2_folder
from blockdraft.checkpoint import build_drafter, load_checkpoint
from blockdraft.cli.comparison import NEAR_TIE
from blockdraft.decoding import Completion, SamplingParams, collect, decode
from blockdraft.interop.gguf import read_tokenizer, write_drafter, write_target
from blockdraft.interop.target_facts import read_rows, read_target
from blockdraft.native import NativeTarget, TargetOptions, load_engine_target

pytest.importorskip("xllamacpp", reason="llama.cpp is not installed (pip install xllamacpp)")
pytestmark = [pytest.mark.engines, pytest.mark.slow]

BLOCK_SIZE = 8
NUM_PROMPTS = 8
MAX_NEW_TOKENS = 64
MOST_COUNT_DIFFERENCE = 0.03


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def gsm8k(data_dir: Path) -> list[str]:
    lines = (data_dir / "eval" / "gsm8k.jsonl").read_text(encoding="utf-8").splitlines()
    return [str(json.loads(line)["turns"][0]) for line in lines[:NUM_PROMPTS]]


@dataclass(frozen=True, slots=True)
class Answered:
    """One prompt here and there: ids, and steps as llama.cpp counts them."""

    ours: Completion
    our_steps: tuple[LlamaStep, ...]
    theirs: LlamaAnswer

    @property
    def num_common(self) -> int:
        """Tokens before the first difference."""
        pairs = zip(self.ours.token_ids, self.theirs.token_ids, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), len(self.theirs.token_ids))


@pytest.fixture(scope="module")
def target() -> NativeTarget:
    loaded = load_engine_target("smollm2", TargetOptions(dtype="float32", engine="native"))
    assert isinstance(loaded, NativeTarget)
    return loaded


@pytest.fixture(scope="module")
def options(
    target: NativeTarget, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LlamaOptions]:
    """The pair as two files of 0.6 GB, removed at the end."""
    folder = tmp_path_factory.mktemp("smollm2")
    write_target(smollm2_folder(), folder / "target.gguf", dtype="f32")
    where = builtin_drafter_path("smollm2")
    assert where is not None
    drafter = load_checkpoint(where, dtype=torch.float32)
    assert drafter.d2t is not None
    write_drafter(
        drafter,
        read_tokenizer(smollm2_folder()),
        folder / "drafter.gguf",
        dtype="f32",
        provenance={},
        rows=read_rows(read_target("smollm2")),
    )
    yield LlamaOptions(
        target=str(folder / "target.gguf"),
        drafter=str(folder / "drafter.gguf"),
        n_max=BLOCK_SIZE - 1,
        context_len=1024,
    )
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def answered(target: NativeTarget, options: LlamaOptions) -> Iterator[list[Answered]]:
    data_dir = Path(__file__).parents[1] / "data"
    where = builtin_drafter_path("smollm2")
    assert where is not None and target.text is not None
    checkpoint = load_checkpoint(where, dtype=torch.float32)
    drafter = FullWidth(build_drafter(checkpoint, target, block_size=BLOCK_SIZE))
    params = SamplingParams(max_new_tokens=MAX_NEW_TOKENS)
    found: list[Answered] = []
    with llamacpp(options) as engine:
        for text in gsm8k(data_dir):
            ids = encode_prompt(target, text)
            check_tokenized(engine, target, text, ids)
            commits = tuple(decode(target, drafter, ids, params, decode_text=target.text.decode))
            steps = llamacpp_steps(commits, BLOCK_SIZE, MAX_NEW_TOKENS)
            theirs = engine.complete(ids, MAX_NEW_TOKENS)
            found.append(Answered(collect(ids, commits), steps, theirs))
    yield found


def check_tokenized(
    engine: LlamaProcess, target: NativeTarget, text: str, chat_ids: Sequence[int]
) -> None:
    """The question and its whole chat form, special tokens included."""
    assert target.text is not None
    rendered = target.text.decode(list(chat_ids), skip_special_tokens=False)
    assert engine.tokenize(rendered) == tuple(chat_ids)
    assert text in rendered


def margin(target: NativeTarget, ids: Sequence[int]) -> float:
    """Between the two best logits of the token after `ids`."""
    logits = target.open().prefill(torch.tensor(ids)).logits[-1]
    best = cast("list[float]", logits.topk(2).values.tolist())
    return best[0] - best[1]


def test_the_text_is_ours_up_to_a_near_tie(target: NativeTarget, answered: list[Answered]) -> None:
    for number, one in enumerate(answered):
        same = one.theirs.token_ids == one.ours.token_ids
        if same:
            assert one.theirs.text == one.ours.text
            say(f"prompt {number}: {len(one.ours.token_ids)} tokens, the same text")
            continue
        prefix = [*one.ours.prompt_ids, *one.ours.token_ids[: one.num_common]]
        gap = margin(target, prefix)
        say(f"prompt {number}: first difference at token {one.num_common}, margin {gap:.2g}")
        assert gap < NEAR_TIE["float32"]


def within(steps: Sequence[LlamaStep], num_common: int) -> list[LlamaStep]:
    """The steps that only emitted tokens of the common prefix."""
    kept: list[LlamaStep] = []
    emitted = 1
    for step in steps:
        emitted += step.num_accepted + 1
        if emitted > num_common:
            break
        kept.append(step)
    return kept


def test_accepted_counts_are_ours_over_the_common_text(answered: list[Answered]) -> None:
    ours = [step for one in answered for step in within(one.our_steps, one.num_common)]
    theirs = [step for one in answered for step in within(one.theirs.steps, one.num_common)]
    our_count, their_count = (sum(s.num_accepted for s in steps) for steps in (ours, theirs))
    equal = sum(one.our_steps == one.theirs.steps for one in answered)
    say(
        f"accepted drafts: {our_count} here in {len(ours)} steps, {their_count} in llama.cpp in"
        f" {len(theirs)}; every step equal in {equal} of {len(answered)} answers"
    )
    assert our_count > 0.2 * len(ours), "the drafter is wired up"
    assert abs(our_count - their_count) <= MOST_COUNT_DIFFERENCE * our_count
    assert abs(len(ours) - len(theirs)) <= MOST_COUNT_DIFFERENCE * len(ours)
