"""`ExportOrder`: what to export, and where to.

It is carried out by `export.py`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from blockdraft.errors import ConfigError

ExportFormat = Literal["hf", "speculators", "gguf"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOrder:
    """What to export, and where to.

    `outtype` None keeps the drafter's type. `verifier` is how a speculators folder names its
    target (None = the target's folder, or its hub id). `keep_draft_vocabulary` writes a reduced
    vocabulary into an HF folder, which only Blockdraft reads then. `taps` are those of a drafter
    that does not name them.
    """

    format: ExportFormat
    target: str
    drafter: str
    out: Path
    outtype: str | None = None
    revision: str | None = None
    drafter_revision: str | None = None
    taps: tuple[int, ...] | None = None
    verifier: str | None = None
    keep_draft_vocabulary: bool = False

    def __post_init__(self) -> None:
        if self.format not in get_args(ExportFormat):
            raise ConfigError(f"--format {self.format} is unknown: use hf, speculators or gguf")
        if self.verifier is not None and self.format != "speculators":
            raise ConfigError("--verifier belongs to --format speculators; drop it")
        if self.keep_draft_vocabulary and self.format != "hf":
            raise ConfigError(
                "--keep-draft-vocabulary belongs to --format hf; the other formats keep it anyway"
            )
