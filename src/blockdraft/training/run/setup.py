"""From a configuration to everything a training needs: target, samples, vocabulary, drafter.

It trains nothing. Whatever can be wrong with target, data or shapes is refused here, before the
first step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

import torch
from torch import Tensor

from blockdraft.api import TextTarget
from blockdraft.builtin import builtin_drafter_path
from blockdraft.checkpoint import DrafterCheckpoint, check_pair, load_checkpoint
from blockdraft.data.answers import AnswerTable
from blockdraft.drafter import BlockDrafter, DrafterConfig
from blockdraft.errors import ConfigError
from blockdraft.native import NativeTarget, TargetOptions, load_engine_target
from blockdraft.target import HFTarget
from blockdraft.target.fingerprint import fingerprint_of
from blockdraft.training.batches.batch import FeatureSource
from blockdraft.training.batches.heldout import Named, choose_heldout
from blockdraft.training.batches.samples import SampleSet, make_samples
from blockdraft.training.config import DataSection, DrafterSection, RunConfig
from blockdraft.training.drafter_shape import (
    choose_mask_token,
    refuse_second_version,
    shape_drafter,
)
from blockdraft.training.features.cache import CachedFeatures
from blockdraft.training.features.live import LiveFeatures
from blockdraft.training.frozen_head import FrozenHead, read_head
from blockdraft.training.initialize import copy_target_layers, new_drafter, spread_layers
from blockdraft.training.objective import Objective
from blockdraft.training.run.joined import JoinedAnswers, JoinedFeatures
from blockdraft.training.run.origin import check_origin, other_target
from blockdraft.training.vocabulary import DraftVocabulary, choose_vocabulary

Say = Callable[[str], None]
Target = NativeTarget | HFTarget


@dataclass(frozen=True)
class TrainingData:
    """Samples to train on and samples held out, and the answers that both are of.

    `heldout_manifest` is that of a folder of held-out answers, empty without one.
    """

    answers: JoinedAnswers
    train: SampleSet
    heldout: SampleSet
    heldout_manifest: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True)
class Training:
    """All that a trainer works with; `drafter` holds fp32 weights on the CPU."""

    target: Target
    data: TrainingData
    drafter: BlockDrafter
    vocabulary: DraftVocabulary | None
    source: FeatureSource
    objective: Objective


def load_training_target(config: RunConfig, device: torch.device, say: Say) -> Target:
    """The frozen target that a recipe names, the same to the bit in every process: what is chosen
    by timing differs from load to load, and with it losses and a resumed run."""
    section = config.target
    options = TargetOptions(
        engine=section.engine,
        dtype=section.dtype,
        device=device,
        revision=section.revision,
        tuned=False,
    )
    return load_engine_target(section.model, options, report=say)


def read_data(config: RunConfig, vocab_size: int) -> TrainingData:
    """Samples of the answer folders, split. Raises ConfigError where nothing is left to train on,
    to hold out, or of a category that is asked for."""
    section = config.data
    heldout_manifest: Mapping[str, object] = {}
    answers = JoinedAnswers([AnswerTable.open(folder) for folder in section.answers])
    rows = range(len(answers) if section.limit is None else min(section.limit, len(answers)))
    if section.heldout is not None:
        apart = AnswerTable.open(section.heldout)
        _refuse_common(answers, apart, section.heldout)
        heldout_manifest = apart.manifest
        heldout_rows: tuple[int, ...] = ()
        chosen = tuple(range(min(len(apart), section.heldout_answers)))
        heldout = make_samples(apart, chosen, section.samples, vocab_size)
    else:
        named = (Named(row, answers[row].id, answers[row].category) for row in rows)
        heldout_rows = choose_heldout(named, section.heldout_share, section.heldout_answers)
        heldout = make_samples(answers, heldout_rows, section.samples, vocab_size)
    left = frozenset(heldout_rows)
    train = make_samples(
        answers, [row for row in rows if row not in left], section.samples, vocab_size
    )
    if not len(train):
        raise ConfigError(f"no usable answer in {', '.join(section.answers)}: {why_none(train)}")
    _refuse_unknown_categories(section, train, heldout)
    return TrainingData(answers, train, heldout, heldout_manifest)


def _refuse_unknown_categories(section: DataSection, train: SampleSet, heldout: SampleSet) -> None:
    """Raise ConfigError for a category without a usable answer, which is mostly misspelled."""
    found = {*train.categories, *heldout.categories}
    missing = [name for name in section.samples.categories if name not in found]
    if missing:
        there = ", ".join(sorted(name for name in found if name is not None))
        among = "" if section.limit is None else f" of the first {section.limit} (data.limit)"
        raise ConfigError(
            f"data.samples.categories names {missing[0]!r}, but no usable answer{among} is of it; "
            f"of those wanted there are {there}"
        )


def _refuse_common(answers: JoinedAnswers, apart: AnswerTable, name: str) -> None:
    """Raise ConfigError when conversations that are held out are trained on as well."""
    held = {answer.id for answer in apart}
    common = next((i for i in range(len(answers)) if answers[i].id in held), None)
    if common is not None:
        raise ConfigError(
            f"conversation {answers[common].id!r} is in data.heldout {name} and in data.answers: "
            "what is trained on can't be held out; leave data.heldout out to split the answers"
        )


def why_none(samples: SampleSet) -> str:
    """The reasons for which answers were left out, with counts."""
    reasons = [f"{rejects.count} {reason}" for reason, rejects in samples.rejects.items()]
    return "; ".join(reasons) or "the folders are empty"


def prepare(config: RunConfig, device: torch.device, say: Say) -> Training:
    """Load and build everything. Raises the errors of loading, and ConfigError for what does not
    fit together."""
    target = load_training_target(config, device, say)
    data = read_data(config, target.spec.vocab_size)
    _check_origins(config, data, target, say)
    if config.drafter.is_continued:
        drafter, vocabulary = _from_checkpoint(config, target, data.train)
    else:
        drafter, vocabulary = _from_scratch(config, target, data.train, say)
    return Training(
        target=target,
        data=data,
        drafter=drafter,
        vocabulary=vocabulary,
        source=_source(config, target, drafter.config, data),
        objective=make_objective(config, target, drafter.config, vocabulary),
    )


def _check_origins(config: RunConfig, data: TrainingData, target: Target, say: Say) -> None:
    """Raise ConfigError for answers of another target, or say so where the recipe accepts them."""
    section = config.data
    folders = dict(zip(section.answers, data.answers.manifests, strict=True))
    if section.heldout is not None:
        folders[section.heldout] = data.heldout_manifest
    for folder, manifest in folders.items():
        if not section.accept_other_target:
            check_origin(folder, manifest, target, config.target.model)
        elif (difference := other_target(manifest, target, config.target.model)) is not None:
            say(f"{folder} is accepted as it is: {difference}")


def make_objective(
    config: RunConfig, target: Target, shape: DrafterConfig, vocabulary: DraftVocabulary | None
) -> Objective:
    """The loss through the target's own head, reduced to the draft vocabulary."""
    head = read_head(target, None if vocabulary is None else vocabulary.ids)
    whole: FrozenHead | None = None
    if config.loss.needs_target_logits:
        whole = head if vocabulary is None else read_head(target)
    if config.run.precision == "bfloat16":
        head = head.to(torch.bfloat16)
    return Objective(
        config.loss,
        head,
        shape.block_size,
        vocabulary=vocabulary,
        target_head=whole,
        output_multiplier=shape.output_multiplier,
        softcap=shape.final_logit_softcapping,
    )


def _from_scratch(
    config: RunConfig, target: Target, samples: SampleSet, say: Say
) -> tuple[BlockDrafter, DraftVocabulary | None]:
    section = config.drafter
    vocabulary = _vocabulary(section.draft_vocab_size, target, samples)
    # Reads all answers, so only where a token has to be chosen.
    used: frozenset[int] = _used(samples) if section.mask_token is None else frozenset()
    mask_token_id = choose_mask_token(section.mask_token, target.spec, target.text, used)
    if not bool(target.embed(torch.tensor([mask_token_id])).any()):
        # Its queries would be zero, so that all slots of a block say the same.
        raise ConfigError(
            f"the embedding of mask token {mask_token_id} is all zeros, which says nothing to a "
            "drafter: name another one (drafter.mask_token)"
        )
    # As many tokens as the target has are all of them: no reduced vocabulary.
    section = replace(section, draft_vocab_size=None if vocabulary is None else len(vocabulary))
    shape = shape_drafter(section, target.spec, target.shape, mask_token_id)
    drafter = new_drafter(shape, config.run.seed)
    if section.init == "target":
        count = shape.num_layers
        layers = section.init_layers or spread_layers(target.spec.num_layers, count)
        say(f"starting from layers {', '.join(map(str, layers))} of the target")
        copy_target_layers(drafter, _target_tensors(config, target, say), layers)
    return drafter, vocabulary


def _target_tensors(config: RunConfig, target: Target, say: Say) -> dict[str, Tensor]:
    if isinstance(target, HFTarget):
        return target.layer_tensors()
    # The native decoder has packed its weights; transformers still has them one by one.
    unpacked = replace(config, target=replace(config.target, engine="hf", dtype="float32"))
    again = load_training_target(unpacked, torch.device("cpu"), say)
    assert isinstance(again, HFTarget)
    return again.layer_tensors()


def _from_checkpoint(
    config: RunConfig, target: Target, samples: SampleSet
) -> tuple[BlockDrafter, DraftVocabulary | None]:
    section = config.drafter
    source = str(builtin_drafter_path(section.init) or section.init)
    found = load_checkpoint(source, dtype=torch.float32)
    check_pair(found.config, target.spec)
    _check_shape(section, found.config, source)
    refuse_second_version(found.config, source)
    if found.lm_head is not None or found.mask_embedding is not None:
        raise ConfigError(
            f"{source} has a head or a mask row of its own, which can't be trained further here"
        )
    vocabulary = _kept_vocabulary(found, section, target, samples)
    size = None if vocabulary is None else len(vocabulary)
    # A block may be widened or narrowed: its slots differ by position only.
    width = section.block_size or found.config.block_size
    shape = replace(found.config, block_size=width, draft_vocab_size=size)
    drafter = BlockDrafter(shape)
    drafter.load_state_dict(dict(found.state), strict=True)
    return drafter, vocabulary


def _check_shape(section: DrafterSection, found: DrafterConfig, source: str) -> None:
    """Raise ConfigError when the recipe says something else than the checkpoint it starts from:
    it would be ignored."""
    pairs: dict[str, tuple[object, object]] = {
        "num_layers": (section.num_layers, found.num_layers),
        "num_taps": (section.num_taps, len(found.taps)),
        "taps": (section.taps or None, found.taps),
        "intermediate_size": (section.intermediate_size, found.intermediate_size),
        "layer_types": (section.layer_types or None, found.layer_types),
        "sliding_window": (section.sliding_window, found.sliding_window),
        "is_causal": (section.is_causal, found.is_causal),
        "init_layers": (section.init_layers or None, None),
    }
    if isinstance(section.mask_token, int):
        pairs["mask_token"] = (section.mask_token, found.mask_token_id)
    for name, (wanted, own) in pairs.items():
        if wanted is not None and wanted != own:
            raise ConfigError(
                f"drafter.{name} is {wanted}, but the checkpoint {source} that the run starts from "
                f"has {own}: leave it out, or start from scratch"
            )


def _kept_vocabulary(
    found: DrafterCheckpoint, section: DrafterSection, target: Target, samples: SampleSet
) -> DraftVocabulary | None:
    """The checkpoint's own draft vocabulary, unless the recipe asks for another size."""
    if found.d2t is not None and section.draft_vocab_size in (None, len(found.d2t)):
        ids = torch.arange(len(found.d2t)) + found.d2t
        return DraftVocabulary(ids, target.spec.vocab_size)
    return _vocabulary(section.draft_vocab_size, target, samples)


def _vocabulary(size: int | None, target: TextTarget, samples: SampleSet) -> DraftVocabulary | None:
    if size is None or size == target.spec.vocab_size:
        return None
    return choose_vocabulary(samples, target.spec.vocab_size, size, always=target.spec.stop_ids)


def _used(samples: SampleSet) -> frozenset[int]:
    return frozenset(i for sample in samples for i in sample.ids)


def _source(
    config: RunConfig, target: Target, shape: DrafterConfig, data: TrainingData
) -> FeatureSource:
    final = config.loss.needs_target_logits
    live = LiveFeatures(target, shape.taps, final=final)
    if not config.data.features:
        return live
    if config.data.heldout is not None:
        raise ConfigError(
            "cached features are of one set of answers: leave data.heldout out, so that the "
            "held-out answers are taken from it"
        )
    caches = [CachedFeatures(folder, device=target.device) for folder in config.data.features]
    for cache in caches:
        cache.require(shape.taps, final=final, fingerprint=fingerprint_of(target))
    joined = JoinedFeatures(caches, data.answers.first_rows)
    joined.check_against(live, chain(data.train, data.heldout))
    return joined
