"""`RunConfig`: everything a training is told, read from a recipe and validated when made.

A recipe is a TOML file whose tables are the sections below; `section.key=value` overrides one.
Unknown keys are errors: a setting that is not read would be ignored in silence.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, cast

from blockdraft.drafter.config import LayerType
from blockdraft.errors import ConfigError
from blockdraft.training.batches.anchors import AnchorConfig
from blockdraft.training.batches.packing import PackingConfig
from blockdraft.training.batches.samples import SampleConfig
from blockdraft.training.loss import LossConfig
from blockdraft.training.optim.optimizers import OptimizerConfig
from blockdraft.training.optim.schedule import ScheduleConfig
from blockdraft.training.toml_sections import read_section

Precision = Literal["bfloat16", "float32"]
Sharding = Literal["ddp", "fsdp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSection:
    """The frozen target: what `load_target` takes."""

    model: str = "smollm2"
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    engine: Literal["auto", "native", "hf"] = "auto"
    revision: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSection:
    """Answer folders of `blockdraft data regenerate`, and which answers are held out.

    Of `answers`, a share `heldout_share` of the conversations (at most `heldout_answers` answers)
    is never trained on, unless `heldout` names a folder of its own. Without `features` they are
    computed at every step; otherwise they are read from folders of `blockdraft data features`, one
    for each of `answers`. `accept_other_target`: answers that are recorded as another target's are
    taken too.
    """

    answers: tuple[str, ...]
    heldout: str | None = None
    heldout_share: float = 0.02
    heldout_answers: int = 64
    features: tuple[str, ...] = ()
    limit: int | None = None
    accept_other_target: bool = False
    samples: SampleConfig = field(default_factory=SampleConfig)

    def __post_init__(self) -> None:
        if not self.answers:
            raise ConfigError("data.answers names no folder; give at least one")
        if len(set(self.answers)) != len(self.answers):
            raise ConfigError("data.answers names a folder twice; its answers would count double")
        if self.features and len(self.features) != len(self.answers):
            raise ConfigError(
                f"data.features names {len(self.features)} caches for {len(self.answers)} folders "
                "of answers; give one each, or none"
            )
        if not 0 <= self.heldout_share < 1:
            raise ConfigError(f"data.heldout_share is {self.heldout_share}; give 0 to below 1")
        if self.heldout_answers < 1:
            raise ConfigError(f"data.heldout_answers is {self.heldout_answers}; give at least 1")
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"data.limit is {self.limit}; give at least 1 answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterSection:
    """Shape of the drafter; what is not given follows the target.

    `taps` empty = `num_taps` layers spread from the second to the third-last. `init`: scratch,
    target (copies of its layers `init_layers`, by default spread ones) or the folder or name of a
    checkpoint, whose shape is then taken. `num_layers` and `num_taps` None = 5, `block_size` None =
    16, or the checkpoint's.
    `draft_vocab_size` None = the whole vocabulary, or the checkpoint's.
    `mask_token` is a token's text or id.
    """

    num_layers: int | None = None
    block_size: int | None = None
    num_taps: int | None = None
    taps: tuple[int, ...] = ()
    mask_token: str | int | None = None
    intermediate_size: int | None = None
    layer_types: tuple[LayerType, ...] = ()
    sliding_window: int | None = None
    is_causal: bool | None = None
    draft_vocab_size: int | None = None
    init: str = "scratch"
    init_layers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, value, least in (
            ("num_layers", self.num_layers, 1),
            ("block_size", self.block_size, 2),
            ("num_taps", self.num_taps, 1),
            ("intermediate_size", self.intermediate_size, 1),
        ):
            if value is not None and value < least:
                raise ConfigError(f"drafter.{name} is {value}; give at least {least}")
        if self.taps and self.num_taps not in (None, len(self.taps)):
            raise ConfigError(
                f"drafter.num_taps is {self.num_taps}, but drafter.taps names {len(self.taps)} "
                "layers: leave one of them out"
            )
        self._refuse_what_is_ignored()

    def _refuse_what_is_ignored(self) -> None:
        """What a checkpoint ignores is refused where its shape is known."""
        if self.init == "scratch" and self.init_layers:
            raise ConfigError(
                "drafter.init_layers names layers of the target, and drafter.init is scratch, "
                "which copies none: set drafter.init to target, or leave the layers out"
            )
        slides = self.is_continued or "sliding_attention" in self.layer_types
        if self.sliding_window is not None and not slides:
            raise ConfigError(
                f"drafter.sliding_window is {self.sliding_window}, but no layer slides: name "
                "sliding_attention in drafter.layer_types, or leave the window out"
            )

    @property
    def is_continued(self) -> bool:
        """Whether the first weights, and with them the shape, are a checkpoint's."""
        return self.init not in ("scratch", "target")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSection:
    """The learning rate's course; see `ScheduleConfig`, whose length is the run's."""

    kind: Literal["cosine", "wsd", "constant"] = "cosine"
    warmup_ratio: float = 0.04
    warmup_steps: int | None = None
    min_ratio: float = 0.0
    decay_ratio: float = 0.2
    decay: Literal["sqrt", "linear"] = "sqrt"

    def __post_init__(self) -> None:
        # Not only when the length is known, which takes the target and all answers.
        try:
            self.over(1)
        except ConfigError as error:
            raise ConfigError(f"schedule.{error}") from error

    def over(self, total_steps: int) -> ScheduleConfig:
        return ScheduleConfig(
            kind=self.kind,
            total_steps=total_steps,
            warmup_ratio=self.warmup_ratio,
            warmup_steps=self.warmup_steps,
            min_ratio=self.min_ratio,
            decay_ratio=self.decay_ratio,
            decay=self.decay,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSection:
    """Evaluation during training; every 0 = never.

    `simulate_every` steps: simulated tau over the held-out answers. `decode_every` steps: real tau
    by decoding the first `decode_limit` prompts of `prompts` (a JSONL file).
    """

    simulate_every: int = 200
    decode_every: int = 0
    prompts: str | None = None
    decode_limit: int = 16
    max_new_tokens: int = 128

    def __post_init__(self) -> None:
        if self.decode_every and self.prompts is None:
            raise ConfigError("eval.decode_every needs eval.prompts, a JSONL file of prompts")
        if min(self.simulate_every, self.decode_every) < 0:
            raise ConfigError("eval intervals are steps; give 0 (never) or more")
        if min(self.decode_limit, self.max_new_tokens) < 1:
            raise ConfigError("eval.decode_limit and eval.max_new_tokens must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSection:
    """How the run goes: length (`epochs`, or `steps` which replaces it), seed, numbers, saving."""

    epochs: int = 6
    steps: int | None = None
    seed: int = 0
    precision: Precision = "bfloat16"
    clip: float = 1.0
    ema: float | None = None
    recompute: bool = False
    sharding: Sharding = "ddp"
    save_every: int = 500
    keep_last: int = 2
    keep_best: int = 1
    tensorboard: bool = False
    wandb_project: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"run.seed is {self.seed}; give 0 or more, below 2^63")
        if self.epochs < 1 or (self.steps is not None and self.steps < 1):
            raise ConfigError("a run needs at least 1 epoch, or 1 step")
        if not self.clip > 0:
            raise ConfigError(f"run.clip is {self.clip}; give a positive gradient norm")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ConfigError(f"run.ema is {self.ema}; give a decay between 0 and 1, like 0.999")
        if self.save_every < 1 or self.keep_last < 1 or self.keep_best < 0:
            raise ConfigError("save_every and keep_last must be at least 1, keep_best at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """A whole training."""

    data: DataSection
    target: TargetSection = field(default_factory=TargetSection)
    drafter: DrafterSection = field(default_factory=DrafterSection)
    anchors: AnchorConfig = field(default_factory=AnchorConfig)
    packing: PackingConfig = field(default_factory=PackingConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleSection = field(default_factory=ScheduleSection)
    eval: EvalSection = field(default_factory=EvalSection)
    run: RunSection = field(default_factory=RunSection)

    def as_table(self) -> dict[str, object]:
        """The whole configuration as plain values, as recorded beside checkpoints."""
        return asdict(self)


def parse_recipe(text: str, where: str, overrides: Sequence[str] = ()) -> RunConfig:
    """The configuration in TOML `text`, with `section.key=value` overrides applied.

    Raises ConfigError, one line, for broken TOML, unknown keys and values of the wrong kind.
    """
    try:
        table: dict[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is no TOML: {error}") from error
    for override in overrides:
        _apply(table, override)
    try:
        return read_section(RunConfig, table, where)
    except ConfigError as error:
        raise ConfigError(f"{error}{_shell_hint(str(error), where, overrides)}") from error


def _shell_hint(problem: str, where: str, overrides: Sequence[str]) -> str:
    """How an override is typed that should have been a list; empty for other problems."""
    for override in overrides:
        key, _, text = override.partition("=")
        key = key.strip()
        if problem.startswith(f"{where}.{key} is ") and "expected a list of texts" in problem:
            return f": --set '{key}={json.dumps([text.strip()])}'"
    return ""


def _apply(table: dict[str, object], override: str) -> None:
    path, equals, text = override.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or len(keys) < 2 or not all(keys):
        raise ConfigError(f"{override!r} is no override; give section.key=value, like run.seed=1")
    try:
        value: object = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a plain word needs no quotes on the command line
    for key in keys[:-1]:
        inner = table.setdefault(key, {})
        if not isinstance(inner, Mapping):
            raise ConfigError(f"{override!r}: {key} is no table of the recipe")
        table = cast("dict[str, object]", inner)
    table[keys[-1]] = value
