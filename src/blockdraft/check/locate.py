"""Where the files of a pair are: folders, GGUF files, built-in names, hub ids.

Of a target on the hub only small files are fetched, never weights.
"""

from pathlib import Path
from typing import Literal, NamedTuple

from blockdraft.builtin import builtin_drafter_path, builtin_models
from blockdraft.checkpoint.resolve import resolve
from blockdraft.errors import CheckpointError, ConfigError, FetchError

Side = Literal["target", "drafter"]
_EXPORTED = {"target": "target.gguf", "drafter": "drafter.gguf"}
"""What `blockdraft export --format gguf` calls the two files of its folder."""

_SMALL = ("*.json", "*.jinja", "*.txt", "*.model")
_DRAFTER = (*_SMALL, "*.safetensors", "mask_embedding.pt")


class Located(NamedTuple):
    """`folder` holds the files, or is a GGUF file. `has_weights` is false where only small files
    were fetched."""

    folder: Path
    source: str
    has_weights: bool = True


def locate_target(name: str, revision: str | None = None) -> Located:
    """The target's files. Raises CheckpointError where there is nothing of that name.

    A built-in target that was never fetched is refused: checking is no reason to download it.
    """
    for model in builtin_models():
        if model.name == name:
            if not model.cached:
                raise CheckpointError(
                    f"the built-in target {name} is not on this machine yet; run `blockdraft demo` "
                    "once, which fetches it"
                )
            return Located(model.path, name)
    return _locate(name, revision, _SMALL, side="target")


def locate_drafter(name: str, revision: str | None = None) -> Located:
    """The drafter's files. Raises CheckpointError where there is nothing of that name."""
    path = builtin_drafter_path(name)
    if path is not None:
        return Located(path, name)
    return _locate(name, revision, _DRAFTER, side="drafter")


def _locate(name: str, revision: str | None, files: tuple[str, ...], *, side: Side) -> Located:
    """Errors begin with the side that was asked for, as an option: two names were given."""
    path = Path(name).expanduser()
    if path.suffix == ".gguf" and path.is_file():
        return Located(path, name)
    if path.is_dir():
        exported = path / _EXPORTED[side]
        is_export = exported.is_file() and not (path / "config.json").exists()
        return Located(exported if is_export else path, name)
    try:
        found = resolve(name, revision, files)
    except (CheckpointError, ConfigError) as error:
        raise type(error)(f"--{side} {error}") from error
    except FetchError as error:
        # Of `check`, exit code 1 says that something was found in the pair.
        raise CheckpointError(f"--{side} {error}") from error
    return Located(found.folder, found.source, has_weights=side == "drafter")
