"""What a training starts from, what it is refused for, and what it reaches: overfit, by ranks."""

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from rank_processes import start_ranks
from tiny_runs import (
    Recorder,
    answer,
    config_of,
    prepared,
    run,
    save_answers,
    save_pair,
)
from torch import Tensor

from blockdraft.checkpoint import DrafterCheckpoint, load_checkpoint, save_checkpoint
from blockdraft.checkpoint.contents import expected_shapes
from blockdraft.decoding import SamplingParams
from blockdraft.drafter import DFlash2Config
from blockdraft.errors import ConfigError, Error
from blockdraft.evaluation import measure_acceptance
from blockdraft.target import HFTarget
from blockdraft.training.batches.packing import PackingConfig
from blockdraft.training.ranks.distributed import Ranks
from blockdraft.training.run.checkpoints import Checkpoints
from blockdraft.training.run.evaluating import serving_drafter
from blockdraft.training.run.export import TrainedDrafter, export_drafter
from blockdraft.training.run.setup import Training
from blockdraft.training.run.trainer import Trainer
from blockdraft.training.simulate import pool, simulate

Pair = tuple[Path, Path]
WORKER = Path(__file__).with_name("trainer_ranks_worker.py")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return save_pair(tmp_path_factory.mktemp("pair"), count=40)


def overfit(folder: Path, count: int) -> None:
    """T01, gate 4: on texts known by heart every block is accepted whole, simulated and real."""
    target, answers = save_pair(folder, count=count)
    config = config_of(
        (target, answers),
        *("run.steps=120", "run.save_every=500", "optimizer.lr=1e-2", "schedule.warmup_steps=5"),
        *("data.heldout_share=0.0", "packing.rows_per_step=1", "drafter.num_layers=2"),
    )
    training = prepared(config)
    ran = run(config, folder / "run", training=training)
    samples = training.data.train
    draft = ran.trainer._parts.draft  # pyright: ignore[reportPrivateUsage]: the trained model
    stop_ids = training.target.spec.stop_ids
    walks = simulate(draft, samples, 4, PackingConfig(), stop_ids=stop_ids)
    stats = pool(walks)
    assert stats.acceptance_by_position == (1.0, 1.0, 1.0), stats
    drafter = serving_drafter(training, ran.weights)
    prompts = [sample.ids[: sample.answer_start] for sample in samples]
    real = measure_acceptance(
        training.target, drafter, prompts, SamplingParams(temperature=0.0, max_new_tokens=24)
    )
    assert real.stats.accepted == stats.accepted and real.stats.histogram == stats.histogram
    assert (real.stats.steps, real.stats.tokens) == (stats.steps, stats.tokens)


@pytest.mark.parametrize("count", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_overfitting_reaches_the_whole_block(tmp_path: Path, count: int) -> None:
    overfit(tmp_path, count)


def export_of(training: Training, tensors: dict[str, Tensor], folder: Path) -> None:
    export_drafter(
        TrainedDrafter(
            config=training.drafter.config,
            tensors=tensors,
            vocabulary=training.vocabulary,
            provenance={},
        ),
        folder,
    )


@pytest.mark.parametrize("size", [None, 40, 96])
def test_a_run_can_start_from_a_checkpoint(pair: Pair, tmp_path: Path, size: int | None) -> None:
    """Continued or widened: the first loss is the checkpoint's own, also with its vocabulary."""
    reduced = () if size is None else (f"drafter.draft_vocab_size={size}",)
    first = config_of(pair, *reduced, "optimizer.lr=1e-2")
    training = prepared(first)
    ran = run(first, tmp_path / "first", training=training)
    export_of(training, ran.weights, tmp_path / "drafter")
    assert load_checkpoint(str(tmp_path / "drafter"), dtype=torch.float32).config.block_size == 4
    further = config_of(pair, f"drafter.init={tmp_path / 'drafter'}", "run.steps=1")
    again = prepared(further)
    shape = again.drafter.config
    assert (shape.block_size, shape.num_layers) == (4, 1), "the checkpoint's shape"
    for name, parameter in again.drafter.named_parameters():
        expected = ran.weights[name].bfloat16().float()
        assert torch.equal(parameter, expected) and parameter.dtype == torch.float32, name
    if size == 40:
        assert again.vocabulary is not None and training.vocabulary is not None
        assert torch.equal(again.vocabulary.ids, training.vocabulary.ids)
    with pytest.raises(ConfigError, match=r"num_layers is 3, but the checkpoint .* has 1"):
        prepared(config_of(pair, f"drafter.init={tmp_path / 'drafter'}", "drafter.num_layers=3"))
    begun = run(further, tmp_path / "further", training=again)
    assert begun.watch.losses[0] < ran.watch.losses[0] * 0.9, "not from scratch"
    wide = prepared(config_of(pair, f"drafter.init={tmp_path / 'drafter'}", "drafter.block_size=6"))
    assert wide.drafter.config.block_size == 6
    other = wide.drafter.state_dict()
    assert all(torch.equal(other[n], ran.weights[n].bfloat16().float()) for n in other)


def test_a_run_does_not_start_from_a_second_version(pair: Pair, tmp_path: Path) -> None:
    """DFlash 2: its convolutions and its selector have no place in the training pass."""
    plain = prepared(config_of(pair)).drafter.config
    second = DFlash2Config(conv_kernel_size=2, conv_group_size=4, selector_rank=3, selector_top_k=5)
    config = replace(plain, dflash2=second)
    state = {name: torch.zeros(shape) for name, shape in expected_shapes(config).items()}
    made = DrafterCheckpoint(config=config, state=state, source="memory")
    save_checkpoint(tmp_path / "drafter", made)
    with pytest.raises(ConfigError, match=r"is a DFlash 2 drafter .* can't be trained further"):
        prepared(config_of(pair, f"drafter.init={tmp_path / 'drafter'}"))


def test_a_run_can_start_from_layers_of_the_target(pair: Pair, tmp_path: Path) -> None:
    config = config_of(pair, "drafter.init=target", "drafter.init_layers=[2]")
    training = prepared(config)
    assert isinstance(training.target, HFTarget)
    up = training.target.layer_tensors()["model.layers.2.mlp.up_proj.weight"]
    before = up.clone()
    layer = next(iter(training.drafter.decoder_layers()))
    assert torch.equal(layer.mlp.up_proj.weight, up)
    run(config, tmp_path, training=training)
    assert not torch.equal(layer.mlp.up_proj.weight, up), "it was trained"
    assert torch.equal(up, before), "the target was not"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("drafter.init=nowhere/at-all",), "nowhere/at-all"),
        (("drafter.init=target", "drafter.init_layers=[1, 2]"), "2 target layers for a drafter of"),
        (("drafter.draft_vocab_size=1000",), "draft vocabulary of 1000 tokens"),
        (("drafter.mask_token='<mask>'",), "give drafter.mask_token as an id"),
        (
            ("data.samples.max_tokens=200", "packing.row_tokens=10"),
            "raise it, or lower data.samples.max_tokens",
        ),
        (("data.samples.categories=['none']",), "no usable answer .* 32 other category"),
        (
            ("data.samples.categories=['chat', 'mathe']",),
            "names 'mathe', but no usable answer is of it; of those wanted there are chat$",
        ),
        (
            ("data.samples.categories=['chat', 'mathe']", "data.limit=20"),
            r"no usable answer of the first 20 \(data.limit\) is of it",
        ),
        (("drafter.mask_token=0",), "embedding of mask token 0 is all zeros"),
        (("data.heldout=nowhere",), "nowhere holds no answers"),
        (("data.answers=['nowhere']",), "nowhere holds no answers"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_first_step(
    pair: Pair, tmp_path: Path, overrides: tuple[str, ...], words: str
) -> None:
    config = config_of(pair, *overrides)
    with pytest.raises(Error, match=words) as caught:
        Trainer(prepared(config), config, tmp_path, ranks=Ranks(), watch=Recorder())
    assert "\n" not in str(caught.value)


def test_answers_of_another_target_leave_nothing_to_train_on(pair: Pair, tmp_path: Path) -> None:
    foreign = [answer(str(i), (500, 501), (502, 503, 504)) for i in range(3)]
    bad = save_answers(tmp_path / "foreign", [*foreign, answer("x", (5,), (6,))])
    with pytest.raises(
        ConfigError,
        match=r"no usable answer in .*: 3 ids outside .* vocabulary of 96; 1 answer shorter than 2",
    ):
        prepared(config_of((pair[0], bad), "data.heldout_share=0.0"))


@pytest.mark.slow
def test_two_ranks_equal_one_and_shards_equal_replicas(pair: Pair, tmp_path: Path) -> None:
    """The whole trainer over 20 steps: losses within 1e-5, and the same simulated figure."""
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    start_ranks(WORKER, 2, ranks, *pair)
    found = cast("dict[str, list[list[float]]]", json.loads((ranks / "losses.json").read_text()))
    losses, taus = found["one"]
    assert len(losses) == 20 and losses[-1] < losses[0]
    for mode in ("ddp", "fsdp"):
        assert found[mode][0] == pytest.approx(losses, rel=1e-5), mode
        assert found[mode][1] == pytest.approx(taus, rel=0.02), mode
    expected = Checkpoints(ranks / "one").load(20).model
    for mode in ("ddp", "fsdp"):
        for name, tensor in Checkpoints(ranks / mode).load(20).model.items():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-3, atol=1e-4)
