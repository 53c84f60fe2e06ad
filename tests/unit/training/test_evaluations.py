"""A signal during an evaluation is heeded at once, loses no step, changes nothing in the end."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_runs import Recorder, config_of, prepared, random_prompts, run, save_pair

from blockdraft.training.ranks.distributed import Ranks
from blockdraft.training.run import evaluating
from blockdraft.training.run.checkpoints import Checkpoints
from blockdraft.training.run.evaluations import Evaluations
from blockdraft.training.run.stopping import StopRequest
from blockdraft.training.run.trainer import Trainer

Pair = tuple[Path, Path]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return save_pair(tmp_path_factory.mktemp("pair"), count=40)


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "prompts.jsonl"
    lines = [json.dumps({"prompt_ids": ids, "category": "x"}) for ids in random_prompts(4)]
    path.write_text("\n".join(lines))
    return str(path)


def ask_to_stop(stop: StopRequest) -> None:
    stop._signal_name = "SIGTERM"  # pyright: ignore[reportPrivateUsage]: as the handler does


def stop_in(
    kind: str, after: int, stop: StopRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], int]:
    """Let the signal come in the `after`-th piece (row or answer) of an evaluation of `kind`.

    What it returns counts the pieces begun.
    """
    begun = 0
    name = "simulate" if kind == "simulated" else "measure_acceptance"
    inner = getattr(evaluating, name)

    def wrapped(*args: object, **named: object) -> object:
        def count() -> None:
            nonlocal begun
            begun += 1
            if begun == after:
                ask_to_stop(stop)

        if kind == "simulated":
            draft, *rest = args

            def counted(*batch: object) -> object:
                count()
                assert callable(draft)
                return draft(*batch)

            return inner(counted, *rest, **named)
        progress = named.pop("progress")

        def told(answer: object) -> None:
            count()
            assert callable(progress)
            progress(answer)

        return inner(*args, progress=told, **named)

    monkeypatch.setattr(evaluating, name, wrapped)
    return lambda: begun


@pytest.mark.parametrize("at", [2, 6])
@pytest.mark.parametrize("kind", ["simulated", "decoded"])
def test_a_signal_during_an_evaluation(
    pair: Pair, tmp_path: Path, prompts: str, monkeypatch: pytest.MonkeyPatch, kind: str, at: int
) -> None:
    """The step is saved before; the evaluation is done again, as a whole, when the run goes on."""
    every = f"eval.{'simulate' if kind == 'simulated' else 'decode'}_every={2 if at == 2 else 6}"
    both = ("eval.decode_every=6", f"eval.prompts={prompts}", "eval.max_new_tokens=8")
    config = config_of(pair, *both, every, "run.save_every=100", "run.keep_best=9", "run.ema=0.9")
    straight = run(config, tmp_path / "straight")
    stop, watch, folder = StopRequest(), Recorder(), tmp_path / "run"
    trainer = Trainer(prepared(config), config, folder, ranks=Ranks(), watch=watch)
    with monkeypatch.context() as patched:
        begun = stop_in(kind, 1, stop, patched)
        result = trainer.run(stop)
    assert (result.step, result.stopped_by) == (at, "SIGTERM") and begun() == 1
    assert [e for e in watch.evaluations if e.step == at] == []
    assert Checkpoints(folder).steps()[-1] == at and not Checkpoints(folder).is_evaluated(at)
    again = run(config, folder)
    assert watch.losses + again.watch.losses == straight.watch.losses
    found = [(e.step, e.kind, e.tau) for e in (*watch.evaluations, *again.watch.evaluations)]
    assert found == [(e.step, e.kind, e.tau) for e in straight.watch.evaluations]
    assert again.trainer.checkpoints.scores() == straight.trainer.checkpoints.scores()
    for name, tensor in straight.weights.items():
        assert torch.equal(again.weights[name], tensor), name


def test_a_signal_during_a_step_does_not_wait_for_an_evaluation(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(pair, "eval.simulate_every=3", "run.save_every=100")
    straight = run(config, tmp_path / "straight")
    stop = StopRequest()
    watch = Recorder()
    trainer = Trainer(prepared(config), config, tmp_path / "run", ranks=Ranks(), watch=watch)
    told = watch.stepped

    def stepped(report: object) -> None:
        told(report)  # pyright: ignore[reportArgumentType]: the report, as it comes
        if len(watch.steps) == 3:
            ask_to_stop(stop)

    monkeypatch.setattr(watch, "stepped", stepped)
    assert trainer.run(stop).step == 3 and not watch.evaluations
    again = run(config, tmp_path / "run")
    taus = {e.step: e.tau for e in again.watch.evaluations}
    assert taus == {e.step: e.tau for e in straight.watch.evaluations} and taus.keys() == {3, 6}


def test_a_killed_evaluation_loses_no_step(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(pair, "eval.simulate_every=3", "run.save_every=100")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Evaluations, "run", die)
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path)
    assert Checkpoints(tmp_path).steps() == [3]
    again = run(config, tmp_path)
    assert [r.step for r in again.watch.steps] == [4, 5, 6]
    assert [e.step for e in again.watch.evaluations] == [3, 6]
