"""Whole trainings of a tiny drafter: learning, repeating, resuming, failing, and starting anew."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_runs import (
    Recorder,
    answer,
    config_of,
    prepared,
    random_prompts,
    run,
    save_answers,
    save_pair,
)
from torch import Tensor

from blockdraft.errors import ConfigError, Error, NumericsError, TrainingFault
from blockdraft.training.batches.batch import Batch, TargetFeatures
from blockdraft.training.ranks.distributed import Ranks
from blockdraft.training.run.checkpoints import Checkpoints
from blockdraft.training.run.setup import Training
from blockdraft.training.run.step import StepSums
from blockdraft.training.run.stopping import StopRequest
from blockdraft.training.run.trainer import Trainer

Pair = tuple[Path, Path]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return save_pair(tmp_path_factory.mktemp("pair"), count=40)


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def test_the_same_seed_gives_the_same_run(pair: Pair, tmp_path: Path) -> None:
    first = run(config_of(pair), tmp_path / "a")
    torch.manual_seed(99)
    again = run(config_of(pair), tmp_path / "b")
    other = run(config_of(pair, "run.seed=1"), tmp_path / "c")
    assert first.watch.losses == again.watch.losses != other.watch.losses
    assert_equal(again.weights, first.weights)
    assert first.result.step == first.result.total_steps == 6


SETTINGS = {
    "adamw": (),
    "muon, average, bfloat16": (
        "optimizer.name=muon",
        "run.ema=0.9",
        "run.precision=bfloat16",
        "schedule.kind=wsd",
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_that_was_killed_goes_on_exactly(pair: Pair, tmp_path: Path, name: str) -> None:
    """T11, gate 6: whenever it dies, it loses at most one save interval and ends the same."""
    config = config_of(pair, *SETTINGS[name], "eval.simulate_every=3")
    straight = run(config, tmp_path / "straight")
    folder = tmp_path / "killed"
    losses = dict[int, float]()
    training = prepared(config)
    for stop_after in (1, 3, 4, None):
        watch = Recorder(stop_after=stop_after)
        training = prepared(config)
        trainer = Trainer(training, config, folder, ranks=Ranks(), watch=watch)
        resumed = trainer.resume()
        assert resumed >= max(losses, default=0) - config.run.save_every
        try:
            trainer.run(StopRequest())
        except KeyboardInterrupt:
            assert stop_after is not None
        for report in watch.steps:
            assert losses.setdefault(report.step, report.loss) == report.loss
    assert [losses[step] for step in sorted(losses)] == straight.watch.losses
    assert_equal(trainer.weights(), straight.weights)


def test_a_signal_saves_and_the_run_goes_on(pair: Pair, tmp_path: Path) -> None:
    config = config_of(pair, "run.save_every=100")
    stop = StopRequest()
    watch = Recorder()
    trainer = Trainer(prepared(config), config, tmp_path, ranks=Ranks(), watch=watch)
    stop._signal_name = "SIGTERM"  # pyright: ignore[reportPrivateUsage]: as the handler does
    result = trainer.run(stop)
    assert (result.step, result.stopped_by) == (1, "SIGTERM")
    assert Checkpoints(tmp_path).steps() == [1]
    assert run(config, tmp_path).watch.steps[0].step == 2


def test_other_settings_are_refused_by_name(pair: Pair, tmp_path: Path) -> None:
    run(config_of(pair), tmp_path)
    for override in ("run.seed=1", "drafter.taps=[1]", "loss.gamma=3.0", "anchors.stride=2"):
        with pytest.raises(ConfigError, match=override.partition("=")[0].replace(".", r"\.")):
            run(config_of(pair, override), tmp_path)
    for override in ("run.save_every=3", "eval.simulate_every=2", "run.keep_last=1"):
        assert run(config_of(pair, override), tmp_path).result.step == 6


def test_a_run_can_be_lengthened_and_slowed_down(pair: Pair, tmp_path: Path) -> None:
    run(config_of(pair), tmp_path)
    longer = run(config_of(pair, "run.steps=9", "optimizer.lr=1e-4"), tmp_path)
    assert [report.step for report in longer.watch.steps] == [7, 8, 9]
    assert all(0 <= report.lr <= 1e-4 for report in longer.watch.steps)


def test_other_answers_under_the_same_name_are_refused(tmp_path: Path) -> None:
    pair = save_pair(tmp_path, count=20)
    run(config_of(pair, "run.steps=2"), tmp_path / "run")
    save_answers(pair[1], [answer("more", (5, 6), (7, 8, 9))])
    with pytest.raises(ConfigError, match=r"started with other settings: .*samples"):
        run(config_of(pair, "run.steps=2"), tmp_path / "run")


def test_the_best_evaluated_checkpoint_is_kept_and_chosen(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where every evaluated step is due to be saved anyway: the score must stay."""
    config = config_of(pair, "eval.simulate_every=2", "run.keep_last=1", "run.keep_best=1")
    ran = run(config, tmp_path)
    scores = ran.trainer.checkpoints.scores()
    taus = {report.step: report.tau for report in ran.watch.evaluations}
    assert taus.keys() == {2, 4, 6} and scores.items() <= taus.items()
    best = max(taus, key=lambda step: (taus[step], step))
    assert ran.trainer.checkpoints.best() == best
    assert set(Checkpoints(tmp_path).steps()) == {best, 6}
    step, tensors = ran.trainer.best_weights()
    assert step == best
    if best == 6:
        assert_equal(tensors, ran.weights)
    # A run whose end was saved but not evaluated is evaluated when it goes on.
    for path in tmp_path.glob("step-*/score.json"):
        path.unlink()
    again = run(config, tmp_path)
    assert [(r.step, r.tau) for r in again.watch.evaluations] == [(6, taus[6])]
    assert not again.watch.steps


def test_simulated_and_decoded_scores_are_not_mixed(pair: Pair, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    lines = [json.dumps({"prompt_ids": ids, "category": "x"}) for ids in random_prompts(4)]
    prompts.write_text("\n".join(lines))
    eval_settings = ("eval.decode_every=3", f"eval.prompts={prompts}", "eval.max_new_tokens=8")
    ran = run(config_of(pair, "eval.simulate_every=2", *eval_settings), tmp_path / "both")
    kinds = [(report.step, report.kind) for report in ran.watch.evaluations]
    assert kinds == [
        *[(2, "simulated"), (3, "decoded"), (4, "simulated"), (6, "simulated"), (6, "decoded")]
    ]
    assert 3 not in ran.trainer.checkpoints.scores()
    only = run(config_of(pair, "run.steps=3", *eval_settings), tmp_path / "decoded")
    assert only.trainer.checkpoints.best() == 3
    missing = config_of(pair, *eval_settings[:1], "eval.prompts=none.jsonl")
    with pytest.raises(ConfigError, match=r"none\.jsonl"):
        Trainer(prepared(missing), missing, tmp_path / "no", ranks=Ranks(), watch=Recorder())


class BrokenSource:
    """Features that go bad for one sample."""

    def __init__(self, inner: Training, row: int, error: Exception | None = None) -> None:
        self._inner = inner.source
        self._row = row
        self._error = error

    def features(self, batch: Batch) -> TargetFeatures:
        found = self._inner.features(batch)
        if any(sample.row == self._row for sample in batch.samples):
            if self._error is not None:
                raise self._error
            return found._replace(taps=found.taps * float("nan"))
        return found


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (None, NumericsError, "the loss is nan on sample row"),
        (torch.OutOfMemoryError("x"), TrainingFault, "out of memory on sample row"),
        (MemoryError(), TrainingFault, "out of memory on sample row"),
    ],
)
def test_a_failing_step_names_its_rows_and_keeps_the_last_state(
    pair: Pair, tmp_path: Path, error: Exception | None, kind: type[Error], words: str
) -> None:
    """Gate 9: nothing of the bad step is saved, and the run can go on from before it."""
    config = config_of(pair, "run.steps=10", "run.save_every=1", "packing.rows_per_step=1")
    training = prepared(config)
    # The first sample of the fourth row.
    straight = Trainer(training, config, tmp_path / "x", ranks=Ranks(), watch=Recorder())
    packed = straight._open_stream(straight._stream.place).take(4)[-1]  # pyright: ignore[reportPrivateUsage]: what comes fourth
    bad = training.data.train[packed.members[0]].row
    broken = replace(training, source=BrokenSource(training, bad, error))
    trainer = Trainer(broken, config, tmp_path / "run", ranks=Ranks(), watch=Recorder())
    with pytest.raises(kind, match=words) as caught:
        trainer.run(StopRequest())
    assert type(caught.value) is kind and str(bad) in str(caught.value)
    assert Checkpoints(tmp_path / "run").steps() == [2, 3]
    again = run(config, tmp_path / "run")
    assert again.watch.steps[0].step == 4 and again.result.step == 10


def test_other_errors_are_not_called_out_of_memory(pair: Pair, tmp_path: Path) -> None:
    config = config_of(pair)
    training = prepared(config)
    row = training.data.train[0].row
    broken = replace(training, source=BrokenSource(training, row, RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        run(config, tmp_path, training=broken)


def test_a_gradient_that_is_not_finite_is_not_applied(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(pair)
    training = prepared(config)
    trainer = Trainer(training, config, tmp_path, ranks=Ranks(), watch=Recorder())
    before = trainer.weights()

    def explode(gradient: Tensor) -> Tensor:
        return gradient * float("inf")

    training.drafter.fc.weight.register_hook(explode)
    with pytest.raises(NumericsError, match="gradient norm is"):
        trainer.run(StopRequest())
    assert_equal(trainer.weights(), before)
    assert Checkpoints(tmp_path).steps() == []


def test_rows_are_shared_evenly_or_refused(pair: Pair, tmp_path: Path) -> None:
    config = config_of(pair, "packing.rows_per_step=3")
    with pytest.raises(ConfigError, match="rows_per_step 3 can't be shared by 2 processes"):
        Trainer(prepared(config), config, tmp_path, ranks=Ranks(world_size=2), watch=Recorder())


def test_a_step_without_a_usable_label_changes_nothing_and_goes_on(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def empty(scores: object, batch: Batch, flops: float) -> StepSums:
        del scores, batch, flops
        return StepSums(torch.zeros(2 + 2 * 3 + 3, dtype=torch.float64))

    config = config_of(pair, "run.steps=2")
    training = prepared(config)
    before = {name: p.detach().clone() for name, p in training.drafter.named_parameters()}
    monkeypatch.setattr(StepSums, "of", empty)
    ran = run(config, tmp_path, training=training)
    assert ran.watch.losses == [0.0, 0.0]
    assert_equal(ran.weights, before)
