"""A tiny target as a folder, its greedy answers as a folder, and recipes over both.

Shared by the tests of whole trainings; the texts are nonsense that a small drafter can learn.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from blockdraft.data.answer_files import AnswerLog, pack
from blockdraft.data.answer_row import Answer
from blockdraft.testing import TinySize, tiny_model
from blockdraft.training.config import RunConfig, parse_recipe
from blockdraft.training.ranks.distributed import Ranks
from blockdraft.training.run.setup import Training, prepare
from blockdraft.training.run.stopping import StopRequest
from blockdraft.training.run.trainer import RunResult, Trainer
from blockdraft.training.run.watch import EvalReport, StepReport

SIZE = TinySize()
PROMPT_LEN = 6

RECIPE = """
[target]
model = "{target}"
dtype = "float32"
engine = "hf"

[data]
answers = ["{answers}"]
heldout_share = 0.2
heldout_answers = 20

[data.samples]
max_tokens = 64

[drafter]
num_layers = 1
block_size = 4
taps = [0, 1]
mask_token = 1

[packing]
row_tokens = 128
row_anchors = 96
rows_per_step = 2

[optimizer]
name = "adamw"
lr = 2e-3

[run]
precision = "float32"
steps = 6
save_every = 2

[eval]
simulate_every = 0
"""


def weak_attention_model(
    *, seed: int = 3, attention: float = 0.0, size: TinySize = SIZE, dtype: torch.dtype
) -> PreTrainedModel:
    """A random llama with weak attention (0 = none), so that a drafter of its size can learn its
    greedy texts; many end by themselves."""
    model = tiny_model("llama", dtype=dtype, seed=seed, size=size)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "o_proj" in name:
                parameter.mul_(attention)
    return model


def random_prompts(count: int, *, seed: int = 0, vocab: int = 96) -> list[tuple[int, ...]]:
    """Prompts of ordinary tokens (neither special nor the mask)."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, vocab, (count, PROMPT_LEN), generator=generator)
    return [tuple(row) for row in cast("list[list[int]]", ids.tolist())]


@torch.no_grad()
def greedy_answers(
    model: PreTrainedModel, prompts: Sequence[tuple[int, ...]], max_new_tokens: int
) -> list[tuple[int, ...]]:
    """What plain greedy decoding emits, the stop token included; all prompts in one batch."""
    stop_ids = frozenset(cast("list[int]", model.config.eos_token_id))
    rows = torch.tensor(prompts)
    for _ in range(max_new_tokens):
        logits = cast(Tensor, model(rows, use_cache=False).logits)
        rows = torch.cat((rows, logits[:, -1:].argmax(-1)), dim=1)
    answers: list[tuple[int, ...]] = []
    for row in cast("list[list[int]]", rows[:, len(prompts[0]) :].tolist()):
        end = next((i + 1 for i, token in enumerate(row) if token in stop_ids), len(row))
        answers.append(tuple(row[:end]))
    return answers


def answer(
    name: str,
    prompt_ids: Iterable[int],
    answer_ids: Iterable[int],
    *,
    category: str | None = None,
    turn: int = 0,
) -> Answer:
    return Answer(
        id=name,
        turn=turn,
        category=category,
        prompt_ids=tuple(prompt_ids),
        answer_ids=tuple(answer_ids),
        finish_reason="length",
        temperature=0.0,
    )


def save_answers(folder: Path, answers: Iterable[Answer], *, packed: bool = False) -> Path:
    """An answer folder, as a run of `data regenerate` leaves it at its end or (default) before."""
    with AnswerLog(folder) as log:
        for one in answers:
            log.add(one)
    if packed:
        pack(folder, {"licenses": {"mit": 1}, "template": {"template_args": {}}})
    return folder


def save_pair(
    folder: Path,
    *,
    count: int = 40,
    max_new_tokens: int = 24,
    size: TinySize = SIZE,
    packed: bool = False,
    prefix: str = "c",
) -> tuple[Path, Path]:
    """A target and its greedy answers to `count` random prompts, as two folders."""
    model = weak_attention_model(size=size, dtype=torch.float32)
    target = folder / "target"
    model.save_pretrained(target)
    prompts = random_prompts(count, vocab=size.vocab_size)
    texts = greedy_answers(model, prompts, max_new_tokens)
    made = [
        answer(f"{prefix}{i}", prompt, text, category=("math", "chat")[i % 2])
        for i, (prompt, text) in enumerate(zip(prompts, texts, strict=True))
    ]
    return target, save_answers(folder / "answers", made, packed=packed)


def config_of(pair: tuple[Path, Path], *overrides: str) -> RunConfig:
    """The small recipe over `pair`, with overrides."""
    return parse_recipe(recipe_text(pair), "recipe", overrides)


def recipe_text(pair: tuple[Path, Path]) -> str:
    return RECIPE.format(target=pair[0], answers=pair[1])


@dataclass
class Recorder:
    """A Watch that remembers."""

    steps: list[StepReport] = field(default_factory=list[StepReport])
    evaluations: list[EvalReport] = field(default_factory=list[EvalReport])
    said: list[str] = field(default_factory=list[str])
    folders: list[Path] = field(default_factory=list[Path])
    stop_after: int | None = None
    """Raises KeyboardInterrupt after this step, as a killed process would end."""

    def say(self, text: str) -> None:
        self.said.append(text)

    def stepped(self, report: StepReport) -> None:
        self.steps.append(report)
        if report.step == self.stop_after:
            raise KeyboardInterrupt

    def evaluated(self, report: EvalReport) -> None:
        self.evaluations.append(report)

    def saved(self, folder: Path) -> None:
        self.folders.append(folder)

    @property
    def losses(self) -> list[float]:
        return [report.loss for report in self.steps]


def prepared(config: RunConfig) -> Training:
    said: list[str] = []
    return prepare(config, torch.device("cpu"), said.append)


@dataclass(frozen=True)
class Ran:
    """A training that has been through `run`."""

    trainer: Trainer
    watch: Recorder
    result: RunResult

    @property
    def weights(self) -> dict[str, Tensor]:
        return self.trainer.weights()


def run(config: RunConfig, folder: Path, *, training: Training | None = None) -> Ran:
    """Train in this process, from the newest checkpoint in `folder` on."""
    watch = Recorder()
    made = training or prepared(config)
    trainer = Trainer(made, config, folder, ranks=Ranks(), watch=watch)
    trainer.resume()
    return Ran(trainer, watch, trainer.run(StopRequest()))
