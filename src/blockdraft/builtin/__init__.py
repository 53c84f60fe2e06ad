"""The models that Blockdraft knows by name, and where they are on this machine.

Drafters are part of the package; targets are fetched once. Loading them is done elsewhere.
"""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from blockdraft.builtin.smollm2 import SMOLLM2, Convert, Report, ensure_smollm2, smollm2_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinModel:
    """A target that can be given by name. `path` is where it lies, or will once it is fetched."""

    name: str
    description: str
    licence: str
    cached: bool
    path: Path
    download_bytes: int


def builtin_models() -> list[BuiltinModel]:
    """Every built-in target; looks at the cache directory, fetches nothing."""
    folder = smollm2_folder()
    return [
        BuiltinModel(
            name="smollm2",
            description="SmolLM2-135M-Instruct, dequantized from Q4_1",
            licence="Apache-2.0",
            cached=folder.is_dir(),
            path=folder,
            download_bytes=SMOLLM2.num_bytes,
        )
    ]


def builtin_target_names() -> tuple[str, ...]:
    """Names that `load_target` takes."""
    return ("smollm2",)


def ensure_builtin_target(name: str, convert: Convert, report: Report | None = None) -> Path:
    """The folder of a built-in target, fetched first if need be; FetchError when it can't be."""
    assert name in builtin_target_names(), f"{name} is no built-in target"
    return ensure_smollm2(convert, report)


def builtin_drafter_path(name: str) -> Path | None:
    """The folder of the drafter that ships under `name`; None when there is none of that name."""
    if not name.isidentifier():
        return None
    folder = Path(str(files(__name__) / "drafters" / name))
    return folder if folder.is_dir() else None
