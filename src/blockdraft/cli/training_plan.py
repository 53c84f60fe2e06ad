"""What `blockdraft train --plan` prints: a recipe's costs, from sizes and one measured product.

No weights are loaded and nothing is written.
"""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch

from blockdraft.builtin import builtin_drafter_path
from blockdraft.checkpoint import load_checkpoint
from blockdraft.cli.console import emit, emit_json, say
from blockdraft.cli.target_report import read_source_config
from blockdraft.cli.training_run import read_recipe
from blockdraft.decoding.interfaces import TargetSpec
from blockdraft.drafter import DrafterConfig
from blockdraft.errors import ConfigError
from blockdraft.target.shape import read_shape as read_decoder_shape
from blockdraft.training.batches.anchors import num_anchors
from blockdraft.training.batches.row_stream import count_rows
from blockdraft.training.config import RunConfig
from blockdraft.training.cost.flops import TargetShape, read_shape
from blockdraft.training.cost.machine import measured_peak
from blockdraft.training.cost.plan import DataSize, TrainingSetup, plan_training
from blockdraft.training.cost.report import cost_rows, value_text
from blockdraft.training.drafter_shape import refuse_second_version, shape_drafter
from blockdraft.training.run.setup import read_data


def print_plan(args: Namespace) -> int:
    """Print the table, or one JSON document."""
    config = read_recipe(args)
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    source = read_source_config(config.target.model, config.target.revision)
    shape = read_shape(source, config.target.model)
    assumed = cast("tuple[int, ...] | None", args.assume)
    data = data_size(config, shape.vocab_size) if assumed is None else assumed_size(config, assumed)
    drafter = _drafter_shape(config, source, shape)
    setup = training_setup(config)
    if config.run.steps is not None:
        one_epoch = plan_training(drafter, shape, data, replace(setup, epochs=1))
        rows = config.run.steps * config.packing.rows_per_step
        setup = replace(setup, epochs=rows / one_epoch.rows_per_epoch)
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    say(f"measuring how fast this machine multiplies ({device})")
    peak = measured_peak(device=device)
    rows = cost_rows(plan_training(drafter, shape, data, setup, peak=peak))
    if args.json:
        emit_json({"recipe": args.recipe, "rows": [row._asdict() for row in rows]}, indent=2)
        return 0
    width = max(len(row.name) for row in rows)
    for row in rows:
        emit(f"{row.name:<{width}}  {value_text(row):>12}  {row.note}".rstrip())
    return 0


def training_setup(config: RunConfig) -> TrainingSetup:
    """The settings of a recipe that its costs depend on."""
    run = config.run
    return TrainingSetup(
        epochs=run.epochs,
        row_tokens=config.packing.row_tokens,
        row_anchors=config.packing.row_anchors,
        anchors_per_sample=config.anchors.per_sample,
        anchor_stride=config.anchors.stride,
        optimizer=config.optimizer.name,
        precision="bf16" if run.precision == "bfloat16" else "fp32",
        ema=run.ema is not None,
        recompute=run.recompute,
        cache="bf16" if config.data.features else None,
        soft=config.loss.needs_target_logits,
        target_bytes=4 if config.target.dtype == "float32" else 2,
        checkpoints_kept=run.keep_last + run.keep_best,
    )


def data_size(config: RunConfig, vocab_size: int) -> DataSize:
    """What the recipe learns from of its answers: limited, cut and without those held out.

    Raises ConfigError for folders that are not there, and what reading answers raises.
    """
    missing = [folder for folder in config.data.answers if not Path(folder).exists()]
    if missing:
        raise ConfigError(
            f"{missing[0]} is not there yet: make answers, or give --assume ANSWERS,PROMPT,ANSWER"
        )
    data = read_data(config, vocab_size)
    train = data.train
    num_rows = count_rows(train, config.packing, config.anchors, seed=config.run.seed, num_epochs=1)
    return DataSize(
        num_answers=len(train),
        num_prompt_tokens=train.num_tokens - train.num_answer_tokens,
        num_answer_tokens=train.num_answer_tokens,
        num_anchors=sum(num_anchors(sample, config.anchors) for sample in train),
        num_rows=num_rows,
        num_heldout=len(data.heldout),
        num_heldout_tokens=data.heldout.num_tokens,
    )


def assumed_size(config: RunConfig, assumed: tuple[int, ...]) -> DataSize:
    """The same of answers that are all of one length. Raises ConfigError for other than three
    numbers, for too short answers, and for a prompt that leaves no room."""
    if len(assumed) != 3:
        raise ConfigError("--assume takes three numbers: answers, prompt and answer tokens")
    count, prompt_len, answer_len = assumed
    section = config.data
    least = section.samples.min_answer_tokens
    if answer_len < least:
        raise ConfigError(
            f"--assume: answers of {answer_len} tokens; shorter ones than {least} "
            "(data.samples.min_answer_tokens) are left out, so give more"
        )
    answer_len = min(answer_len, section.samples.max_tokens - prompt_len)
    if answer_len < least:
        raise ConfigError(
            f"--assume: {prompt_len} tokens of prompt leave {max(answer_len, 0)} of "
            f"data.samples.max_tokens {section.samples.max_tokens} for an answer; raise it"
        )
    count = min(count, section.limit or count)
    heldout = 0
    if section.heldout is None:
        heldout = min(section.heldout_answers, int(count * section.heldout_share))
    return DataSize(
        num_answers=count - heldout,
        num_prompt_tokens=(count - heldout) * prompt_len,
        num_answer_tokens=(count - heldout) * answer_len,
        num_heldout=heldout,
        num_heldout_tokens=heldout * (prompt_len + answer_len),
    )


def _drafter_shape(config: RunConfig, source: object, shape: TargetShape) -> DrafterConfig:
    """The drafter's shape; which token stands for a mask costs nothing."""
    section = config.drafter
    if section.is_continued:
        found = load_checkpoint(builtin_drafter_path(section.init) or section.init).config
        refuse_second_version(found, section.init)
        return replace(
            found,
            block_size=section.block_size or found.block_size,
            draft_vocab_size=section.draft_vocab_size or found.draft_vocab_size,
        )
    spec = TargetSpec(
        name=config.target.model,
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        num_layers=shape.num_layers,
    )
    return shape_drafter(config.drafter, spec, read_decoder_shape(source), 0)
