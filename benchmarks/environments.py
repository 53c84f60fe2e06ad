"""Makes one virtual environment for each peer, from exact pins, and checks that it imports.

It measures nothing. A peer that can't be installed is reported with pip's reason, and the others
go on; the exit status tells how many failed.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from blockdraft.builtin.model_cache import cache_root

PINS = Path(__file__).parent / "pins"
COMPLETE_NAME = "complete.txt"

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Pins in `pins/<name>.txt`; `probe` is Python that fails where the peer can't run."""

    name: str
    probe: str
    num_bytes: int


ENVIRONMENTS = (
    Environment(name="hf", probe="import torch, transformers", num_bytes=1_300_000_000),
    Environment(name="dflash", probe="import dflash.model", num_bytes=1_600_000_000),
    Environment(name="llamacpp", probe="import xllamacpp", num_bytes=150_000_000),
    # Importing vllm alone proves little: its kernels load with the platform.
    Environment(
        name="vllm",
        probe=(
            "from vllm import LLM; from vllm.platforms import current_platform as p; "
            "assert p.is_cpu(), p"
        ),
        num_bytes=3_600_000_000,
    ),
    Environment(
        name="openvino",
        probe="import openvino_genai, optimum.exporters.openvino.model_patcher",
        num_bytes=1_600_000_000,
    ),
)


class EnvironmentFailed(Exception):
    """A peer's environment could not be made, or can't import the peer here."""


def default_folder() -> Path:
    """Where environments lie unless told otherwise: in the user's cache directory."""
    return cache_root() / "benchmarks"


def python_of(envs: Path, name: str) -> Path:
    """The interpreter of environment `name`, made or not."""
    return envs / name / "bin" / "python"


def is_complete(envs: Path, name: str) -> bool:
    """Whether the environment was made, from the pins as they are now, and passed its probe."""
    marker = envs / name / COMPLETE_NAME
    return marker.is_file() and marker.read_text(encoding="ascii") == pins_digest(name)


def pins_digest(name: str) -> str:
    """What marks an environment as made from the present pins."""
    return hashlib.sha256((PINS / f"{name}.txt").read_bytes()).hexdigest()


def make(environment: Environment, envs: Path, report: Report) -> None:
    """Make the environment anew unless it is complete.

    Nothing is resolved: pip gets `--no-deps` and every pin, so that it can't pick another torch.
    The pins leave out what vLLM and optimum-intel want only for images and sound (torchvision,
    torchaudio, torchcodec). Raises EnvironmentFailed.
    """
    if is_complete(envs, environment.name):
        report(f"{environment.name}: complete")
        return
    folder = envs / environment.name
    report(f"{environment.name}: installing about {environment.num_bytes / 1e9:.1f} GB")
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True, symlinks=True)
    python = str(python_of(envs, environment.name))
    pins = str(PINS / f"{environment.name}.txt")
    _run(
        [python, "-m", "pip", "install", "--quiet", "--no-input", "--no-deps", "-r", pins],
        f"{environment.name}: pip failed",
    )
    _run([python, "-c", environment.probe], f"{environment.name}: does not import here")
    (folder / COMPLETE_NAME).write_text(pins_digest(environment.name), encoding="ascii")
    report(f"{environment.name}: complete")


def _run(command: list[str], problem: str) -> None:
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        lines = [line for line in finished.stderr.splitlines() if line.strip()]
        reason = lines[-1] if lines else f"status {finished.returncode}, without a word"
        raise EnvironmentFailed(f"{problem}: {reason}")


def main() -> None:
    names = [environment.name for environment in ENVIRONMENTS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--envs", type=Path, default=default_folder(), help="folder to make them in"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(names)}; all if none")
    args = parser.parse_args()
    envs: Path = args.envs
    wanted: list[str] = args.names or names
    if unknown := [name for name in wanted if name not in names]:
        parser.error(f"no environment {unknown[0]!r}: choose from {', '.join(names)}")
    envs.mkdir(parents=True, exist_ok=True)
    num_failed = 0
    for environment in ENVIRONMENTS:
        if environment.name not in wanted:
            continue
        try:
            make(environment, envs.absolute(), _print_error)
        except EnvironmentFailed as error:
            num_failed += 1
            _print_error(str(error))
    sys.exit(num_failed)


def _print_error(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
