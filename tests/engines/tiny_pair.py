"""A tiny Qwen3 target that was taught to count, and a drafter that our trainer taught to guess it.

Nothing here knows another engine. Both are trained for seconds only, so that the target's texts go
wrong in ways that the drafter guesses now and then.
"""

import importlib
import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, cast

import torch
from tiny_tokenizer import END_OF_TEXT, IM_END, MASK, VOCAB_SIZE, make_tokenizer, save_tokenizer
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from blockdraft.builtin.model_cache import make_once
from blockdraft.checkpoint import DrafterCheckpoint, load_checkpoint, save_checkpoint
from blockdraft.checkpoint.contents import expected_shapes
from blockdraft.data.answer_row import Answer
from blockdraft.drafter import DrafterConfig
from blockdraft.training.config import RunConfig
from blockdraft.training.run.setup import Training

NUM_LAYERS = 4
TAPS = (0, 2)
BLOCK_SIZE = 8
TRAINING = (
    "drafter.mask_token=3",
    "drafter.num_layers=2",
    f"drafter.block_size={BLOCK_SIZE}",
    f"drafter.taps={list(TAPS)}",
    "data.heldout_share=0.05",
    "packing.row_tokens=256",
    "packing.row_anchors=128",
    "packing.rows_per_step=1",
    "optimizer.name=muon",
    "optimizer.muon_lr=1e-2",
    "optimizer.lr=5e-3",
    "run.steps=40",
    "run.save_every=40",
)
NOUNS = ("drafts", "targets", "features", "blocks", "tokens")
PROMPT_LEN = 8
ROW_LEN = 48


class Weights(Protocol):
    def best_weights(self) -> tuple[int, dict[str, Tensor]]: ...


class Ran(Protocol):
    """A finished training, as far as it is looked at."""

    @property
    def trainer(self) -> Weights: ...


class TinyRuns(Protocol):
    """What is used of the module that the unit tests of training share."""

    @staticmethod
    def greedy_answers(
        model: PreTrainedModel, prompts: Sequence[tuple[int, ...]], max_new_tokens: int
    ) -> list[tuple[int, ...]]: ...
    @staticmethod
    def answer(name: str, prompt_ids: Iterable[int], answer_ids: Iterable[int]) -> Answer: ...
    @staticmethod
    def save_answers(folder: Path, answers: Iterable[Answer]) -> Path: ...
    @staticmethod
    def config_of(pair: tuple[Path, Path], *overrides: str) -> RunConfig: ...
    @staticmethod
    def prepared(config: RunConfig) -> Training: ...
    @staticmethod
    def run(config: RunConfig, folder: Path, *, training: Training) -> Ran: ...


def tiny_runs() -> TinyRuns:
    folder = str(Path(__file__).parents[1] / "unit" / "training")
    if folder not in sys.path:
        sys.path.append(folder)
    return cast(TinyRuns, importlib.import_module("tiny_runs"))


@dataclass(frozen=True, slots=True)
class TinyPair:
    """The folder of the target with its tokenizer, and the drafter as training left it."""

    target: Path
    drafter: DrafterCheckpoint


def random_target(family: Literal["qwen3", "llama"], *, scale: float) -> PreTrainedModel:
    """Four layers whose heads are wider than hidden size / heads, as Qwen3's small ones are.

    The Llama one has a tied head, as Llama's small ones have.
    """
    config = AutoConfig.for_model(
        family,
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=family == "llama",
        bos_token_id=None,
        eos_token_id=[IM_END, END_OF_TEXT],
        pad_token_id=END_OF_TEXT,
        initializer_range=scale,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = cast(PreTrainedModel, AutoModelForCausalLM.from_config(config))
    return model.float()


def counting_sentence(generator: random.Random) -> str:
    """A sentence that counts up; where it starts and how far it goes is anyone's guess."""
    start, count = generator.randrange(90), generator.randrange(3, 9)
    noun = generator.choice(NOUNS)
    numbers = ", ".join(f"{number} {noun}" for number in range(start, start + count))
    return f"count the {noun}: {numbers}."


def teach(model: PreTrainedModel, tokenizer: Tokenizer, *, steps: int) -> None:
    """A little plain next-token training, so that texts have something to guess in them."""
    generator = random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(steps):
        rows = [
            [*tokenizer.encode(counting_sentence(generator)).ids, IM_END, *[MASK] * ROW_LEN][
                :ROW_LEN
            ]
            for _ in range(16)
        ]
        ids = torch.tensor(rows)
        labels = torch.where(ids == MASK, -100, ids)
        loss = cast(Tensor, model(ids, labels=labels).loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval().requires_grad_(False)


def save_target(
    folder: Path, family: Literal["qwen3", "llama"] = "qwen3", *, teach_steps: int = 0
) -> PreTrainedModel:
    """Untaught, its weights are large and random, so that nobody guesses anything of its texts."""
    model = random_target(family, scale=0.1 if teach_steps else 0.3)
    if teach_steps:
        teach(model, make_tokenizer(), steps=teach_steps)
    model.save_pretrained(folder)
    save_tokenizer(make_tokenizer(), folder)
    return model


def prompts(count: int, *, seed: int) -> list[tuple[int, ...]]:
    """Beginnings of such sentences, of eight tokens each."""
    generator, tokenizer = random.Random(seed), make_tokenizer()
    return [
        tuple(tokenizer.encode(counting_sentence(generator)).ids[:PROMPT_LEN]) for _ in range(count)
    ]


def train_pair(folder: Path) -> None:
    """Save a target, let it answer, and train a drafter on the answers (about 20 seconds)."""
    runs = tiny_runs()
    model = save_target(folder / "target", teach_steps=80)
    asked = prompts(200, seed=1)
    texts = runs.greedy_answers(model, asked, 24)
    answers = runs.save_answers(
        folder / "answers",
        [
            runs.answer(f"c{i}", prompt, text)
            for i, (prompt, text) in enumerate(zip(asked, texts, strict=True))
        ],
    )
    config = runs.config_of((folder / "target", answers), *TRAINING)
    training = runs.prepared(config)
    _, weights = runs.run(config, folder / "run", training=training).trainer.best_weights()
    drafter = DrafterCheckpoint(config=training.drafter.config, state=weights, source="trained")
    save_checkpoint(folder / "drafter", drafter)


def trained_pair(folder: Path) -> TinyPair:
    """The pair in `folder`, trained there once, also when several processes ask for it."""
    make_once(folder, train_pair)
    return TinyPair(folder / "target", load_checkpoint(folder / "drafter"))


def random_drafter(config: DrafterConfig, *, seed: int = 0) -> DrafterCheckpoint:
    """Weights that nobody trained, of the same shape."""
    generator = torch.Generator().manual_seed(seed)
    state = {
        name: torch.randn(shape, generator=generator) * 0.3
        for name, shape in expected_shapes(config).items()
    }
    return DrafterCheckpoint(config=config, state=state, source="random")
