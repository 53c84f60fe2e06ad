"""What `blockdraft train` does: recipe, run folder, trainer, exported drafter.

Everything that computes is in `training/`; this joins it to files, signals and the terminal.
"""

import signal
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import torch

from blockdraft.cli.console import emit, emit_json, say_progress
from blockdraft.cli.hardware import describe_hardware
from blockdraft.cli.training_progress import TrainingProgress
from blockdraft.errors import ConfigError
from blockdraft.recipes import find_recipe, list_builtin_recipes
from blockdraft.target.load import resolve_source
from blockdraft.target.tokenizer_facts import read_tokenizer
from blockdraft.training.config import RunConfig, parse_recipe
from blockdraft.training.cost.machine import measured_peak
from blockdraft.training.ranks.distributed import Ranks, barrier, joined_ranks
from blockdraft.training.run.curves import draw_curves
from blockdraft.training.run.early import check_can_go_on, check_length
from blockdraft.training.run.export import DRAFTER_FOLDER, TrainedDrafter, export_drafter
from blockdraft.training.run.lock import locked
from blockdraft.training.run.metrics import METRICS_FILE, MetricsConfig, open_metrics, read_metrics
from blockdraft.training.run.record import make_provenance, measured_at
from blockdraft.training.run.setup import Training, prepare
from blockdraft.training.run.stopping import StopRequest
from blockdraft.training.run.trainer import RunResult, Trainer
from blockdraft.training.run.watch import NoWatch, Watch


def list_recipes(args: Namespace) -> int:
    """Names and first lines of the recipes that come with Blockdraft."""
    recipes = list_builtin_recipes()
    if args.json:
        emit_json([{"name": r.name, "summary": r.summary} for r in recipes], indent=2)
    else:
        width = max(len(recipe.name) for recipe in recipes)
        for recipe in recipes:
            emit(f"{recipe.name:<{width}}  {recipe.summary}")
    return 0


def show_recipe(args: Namespace) -> int:
    """The resolved settings as one JSON document."""
    emit_json(read_recipe(args).as_table(), indent=2)
    return 0


def read_recipe(args: Namespace) -> RunConfig:
    """The recipe that was named, with its overrides. Raises ConfigError."""
    if args.recipe is None:
        raise ConfigError("which recipe? give a name (blockdraft train --list) or a TOML file")
    recipe = find_recipe(args.recipe)
    return parse_recipe(recipe.text, args.recipe, cast("list[str]", args.set))


def train(args: Namespace) -> int:
    """Train to the end or to a signal; returns the exit code."""
    config = read_recipe(args)
    if args.out is None:
        raise ConfigError("where to? give --out DIR, the folder of the run")
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    device_type = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    folder = Path(args.out)
    with joined_ranks(device_type) as ranks, StopRequest() as stop:
        if not ranks.is_main:
            return _train(args, config, folder, ranks, stop, NoWatch())

        def peak() -> float:
            return ranks.world_size * measured_peak(device=ranks.device)

        with locked(folder), TrainingProgress(peak) as watch:
            return _train(args, config, folder, ranks, stop, watch)


def _train(
    args: Namespace,
    config: RunConfig,
    folder: Path,
    ranks: Ranks,
    stop: StopRequest,
    watch: Watch,
) -> int:
    check_can_go_on(config, folder, ranks)
    watch.say("loading target and answers")
    training = prepare(config, ranks.device, watch.say)
    # Looked up before hours of training: at its end the hub may be out of reach.
    tokenizer = _tokenizer(config) if ranks.is_main else None
    for line in describe_data(training):
        watch.say(line)
    trainer = Trainer(training, config, folder, ranks=ranks, watch=watch)
    resumed = trainer.resume()
    check_length(folder, resumed, trainer.total_steps)
    if resumed:
        watch.say(f"going on after step {resumed} of {trainer.total_steps}")
    if ranks.is_main:
        sinks = MetricsConfig(
            tensorboard=config.run.tensorboard, wandb_project=config.run.wandb_project
        )
        trainer.reporter.metrics = open_metrics(
            folder, sinks, resumed_step=resumed or None, settings=config.as_table()
        )
    try:
        result = trainer.run(stop)
    finally:
        trainer.reporter.metrics.close()
    if ranks.is_main:
        measured: dict[str, float] = {}
        if result.stopped_by is None:
            measured = _export(args, config, trainer, training, folder, tokenizer)
        _tell_end(args, folder, result, measured, watch)
    barrier(ranks)
    return 130 if result.stopped_by == signal.SIGINT.name else 0


def describe_data(training: Training) -> list[str]:
    """What there is to learn from, in lines for people: one sample is shown as it is scored."""
    train, heldout = training.data.train, training.data.heldout
    lines = [
        f"{len(train)} answers to train on, {len(heldout)} held out; supervised are "
        f"{train.num_answer_tokens} tokens, {train.num_answer_tokens / train.num_tokens:.0%} of all"
    ]
    for reason, rejects in train.rejects.items():
        rows = ", ".join(str(row) for row in rejects.rows)
        more = " .." if rejects.count > len(rejects.rows) else ""
        lines.append(f"{rejects.count} answers: {reason} (rows {rows}{more})")
    if any("licenses" not in manifest for manifest in training.data.answers.manifests):
        lines.append("some answers have no manifest yet, so the card will lack their licenses")
    if not len(heldout):
        lines.append("nothing is held out, so nothing is simulated: raise data.heldout_share")
    if training.vocabulary is not None and len(heldout):
        coverage = training.vocabulary.coverage(heldout)
        lines.append(
            f"draft vocabulary of {len(training.vocabulary)} tokens covers {coverage:.2%} of the "
            "held-out answers"
        )
    codec = training.target.text
    if codec is not None:
        first = train[0]
        shown = codec.decode(first.ids[first.answer_start :][:24], skip_special_tokens=False)
        lines.append(f"supervised text of answer {first.row} begins: {shown!r}")
    return lines


def _export(
    args: Namespace,
    config: RunConfig,
    trainer: Trainer,
    training: Training,
    folder: Path,
    tokenizer: Mapping[str, object] | None,
) -> dict[str, float]:
    """Write the best drafter of the run; returns what was measured of it."""
    step, tensors = trainer.best_weights()
    measured = measured_at(read_metrics(folder / METRICS_FILE), step)
    provenance = make_provenance(
        training,
        config,
        measured,
        steps=step,
        command=_command(args),
        machine=describe_hardware(trainer.device.type)._asdict(),
        tokenizer=tokenizer,
    )
    made = TrainedDrafter(
        config=training.drafter.config,
        tensors=tensors,
        vocabulary=training.vocabulary,
        provenance=provenance,
    )
    export_drafter(made, folder / DRAFTER_FOLDER)
    return measured


def _tokenizer(config: RunConfig) -> dict[str, object] | None:
    """What the record keeps of the target's tokenizer; None where it has none."""
    target = config.target
    found = read_tokenizer(resolve_source(target.model, target.revision, say_progress))
    return None if found is None else found.record()


def _tell_end(
    args: Namespace,
    folder: Path,
    result: RunResult,
    measured: Mapping[str, float],
    watch: Watch,
) -> None:
    curves = _curves(folder, watch)
    finished = result.stopped_by is None
    if args.json:
        emit_json(
            {
                "folder": str(folder),
                "step": result.step,
                "total_steps": result.total_steps,
                "stopped_by": result.stopped_by,
                "drafter": str(folder / DRAFTER_FOLDER) if finished else None,
                "tau": dict(measured),
                "curves": None if curves is None else str(curves),
            },
            indent=2,
        )
    if finished:
        watch.say(f"the drafter is in {folder / DRAFTER_FOLDER}")
        return
    watch.say(
        f"{result.stopped_by}: saved after step {result.step} of {result.total_steps}; the same "
        "command goes on"
    )


def _curves(folder: Path, watch: Watch) -> Path | None:
    """Curves are a convenience: without matplotlib the run is as good."""
    try:
        return draw_curves(folder)
    except ConfigError as error:
        watch.say(f"no curves drawn: {error}")
        return None


def _command(args: Namespace) -> str:
    overrides = "".join(f" --set {override}" for override in cast("list[str]", args.set))
    return f"blockdraft train {args.recipe}{overrides}"
