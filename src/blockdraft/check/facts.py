"""`PairFacts`: everything that the rules may know of a drafter and a target.

Values only; `gather.py` reads them from files. Nothing in it was refused by anybody: what could
not be read is said in a `problem`, and the rest is there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from blockdraft.check.shape import DrafterShape
from blockdraft.target.tokenizer_facts import TokenizerFacts

DrafterFormat = Literal["hf", "speculators", "gguf", "target", "unreadable"]
TargetFormat = Literal["hf", "gguf", "drafter", "unreadable"]


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """A stored tensor: its shape, and the largest magnitude in it where it was looked at."""

    shape: tuple[int, ...]
    max_abs: float | None = None
    is_finite: bool = True


@dataclass(frozen=True, slots=True)
class MaskRow:
    """What `mask_embedding.pt` says besides its row."""

    token_id: int | None
    has_per_position: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterRecord:
    """What provenance.json says of a drafter's training and of its measured acceptance."""

    tau: float | None = None
    taps: tuple[int, ...] | None = None
    block_size: int | None = None
    target: str | None = None
    is_target_quantized: bool | None = None
    template_args: Mapping[str, object] | None = None
    template_sha256: str | None = None
    is_raw: bool = False
    tokenizer_sha256: str | None = None
    special_tokens: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterFacts:
    """A drafter as its files describe it.

    `draft_ids` are target ids, from `d2t`; `key_norms` the layers' `k_norm` weights in order, empty
    unless all of them could be read.
    """

    source: str
    format: DrafterFormat
    raw: Mapping[str, object]
    shape: DrafterShape
    tensors: Mapping[str, TensorFacts]
    config_problem: str | None = None
    weights_problem: str | None = None
    record: DrafterRecord = field(default_factory=DrafterRecord)
    record_problem: str | None = None
    has_record: bool = False
    mask_row: MaskRow | None = None
    mask_row_problem: str | None = None
    draft_ids: tuple[int, ...] | None = None
    key_norms: tuple[tuple[float, ...], ...] = ()
    own_refusal: str | None = None

    @property
    def is_drafter(self) -> bool:
        """Whether there is a configuration of a drafter to judge."""
        return self.config_problem is None and self.format in ("hf", "speculators", "gguf")

    @property
    def is_folder(self) -> bool:
        """Whether it is a drafter in a folder, as all engines but llama.cpp read it."""
        return self.is_drafter and self.format != "gguf"

    def has(self, *starts: str) -> str | None:
        """The first tensor whose name, without `model.`, begins with one of `starts`."""
        for name in self.tensors:
            if name.removeprefix("model.").startswith(starts):
                return name
        return None

    def tensor(self, name: str) -> TensorFacts | None:
        """The tensor of a published name, with or without `model.` in front."""
        return self.tensors.get(name) or self.tensors.get(f"model.{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """A target as its files describe it. `template_digest` is that of the recorded arguments.

    `faults` are clauses on values that no engine can read. `unread` is why transformers does not
    read the configuration; `is_known_type` whether it has the type at all, `has_own_code` whether
    the folder brings code for it, which nothing here runs.
    """

    source: str
    format: TargetFormat
    architectures: tuple[str, ...]
    model_type: str | None
    hidden_size: int | None
    num_layers: int | None
    head_dim: int | None
    vocab_size: int | None
    position_limit: int | None
    dtype: str | None
    quantization: str | None
    config_problem: str | None = None
    weights_problem: str | None = None
    tokenizer: TokenizerFacts | None = None
    tokenizer_problem: str | None = None
    chat_template: str | None = None
    template_digest: str | None = None
    samples_by_default: bool = False
    special_ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    why_not_native: str | None = None
    faults: tuple[str, ...] = ()
    unread: str | None = None
    has_own_code: bool = False
    is_known_type: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOutcome:
    """What decoding here measured. `low` and `high` end the 95% interval of `tau` over prompts.

    `skipped` says why nothing was measured.
    """

    tau: float | None = None
    low: float | None = None
    high: float | None = None
    num_prompts: int = 0
    num_steps: int = 0
    skipped: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFacts:
    """Both sides, the template arguments that requests will use, and what decoding measured.

    `live` is None where no live check was asked for.
    """

    drafter: DrafterFacts
    target: TargetFacts
    template_args: Mapping[str, object] = field(default_factory=dict[str, object])
    live: LiveOutcome | None = None
