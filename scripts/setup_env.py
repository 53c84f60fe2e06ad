"""Set up the virtual environment that `make demo`, `make test` and `make check` run in.

It installs pinned packages only, picks the build of torch and fetches no model; it uses no package
but the standard library, and writes nothing outside the environment and pip's own cache.
"""

import argparse
import fcntl
import hashlib
import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "requirements" / "constraints.txt"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"

LEVELS = ("runtime", "test", "dev")
"""Each level holds the ones before it: `make demo`, `make test`, `make check`."""

DOWNLOAD_MB = {"runtime": 60, "test": 470, "dev": 80}
"""What each level adds to the one before, torch aside (wheels for Linux x86-64, rounded up)."""

TORCH_CPU_MB = 190
TORCH_CUDA_MB = 3000


class Attempt(NamedTuple):
    """One way to get torch: what pip is told, what people are told, how much it downloads."""

    pip_args: tuple[str, ...]
    label: str
    download_mb: int


def say(message: str) -> None:
    sys.stderr.write(f"setup: {message}\n")
    sys.stderr.flush()


def has_nvidia_gpu() -> bool:
    """Whether the NVIDIA driver lists a device."""
    if shutil.which("nvidia-smi") is None:
        return False
    listing = subprocess.run(
        ["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=60
    )
    return listing.returncode == 0 and "GPU" in listing.stdout


def torch_attempts(version: str, system: str, has_gpu: bool) -> tuple[Attempt, ...]:
    """The ways to get torch `version`, best first; the next is for when one has no such file.

    On Linux the plain name usually means a CUDA build. The CPU build is named `+cpu`; some package
    indexes carry it, PyTorch's own always does.
    """
    plain = f"torch=={version}"
    if system != "Linux":
        return (Attempt((plain,), f"torch {version}", TORCH_CPU_MB),)
    cuda = Attempt((plain,), f"torch {version}, CUDA build", TORCH_CUDA_MB)
    if has_gpu:
        return (cuda,)
    cpu, label = f"{plain}+cpu", f"torch {version}, CPU build"
    patience = ("--timeout", "15", "--retries", "1")
    return (
        Attempt((cpu, *patience), label, TORCH_CPU_MB),
        Attempt((cpu, *patience, "--index-url", CPU_INDEX), label, TORCH_CPU_MB),
        cuda,
    )


def pinned_version(constraints: str, name: str) -> str:
    """The version that a constraints text pins for `name`."""
    match = re.search(rf"^{re.escape(name)}==(\S+)$", constraints, re.MULTILINE)
    if match is None:
        raise SystemExit(f"setup: {CONSTRAINTS.name} does not pin {name}; add a line '{name}==...'")
    return match.group(1)


def create_venv(venv: Path) -> None:
    """Make sure that a working environment stands at `venv`; a broken one is made anew."""
    python = venv / "bin" / "python"
    if python.exists():
        works = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False)
        if works.returncode == 0:
            return
    if venv.exists() and any(venv.iterdir()) and not (venv / "pyvenv.cfg").exists():
        raise SystemExit(f"setup: {venv} is not a virtual environment; move it away and try again")
    if importlib.util.find_spec("ensurepip") is None:
        raise SystemExit(
            f"setup: {sys.executable} can't make virtual environments; "
            "on Debian and Ubuntu: sudo apt-get install python3-venv, then try again"
        )
    say(f"creating {venv} with Python {platform.python_version()}")
    subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)


def pip_command(venv: Path, *args: str) -> list[str]:
    options = ("--disable-pip-version-check", "--no-input")
    return [str(venv / "bin" / "python"), "-m", "pip", "install", *options, *args]


def installed_torch(venv: Path) -> str:
    """The version of torch in the environment, or an empty string."""
    code = "import importlib.metadata as m; print(m.version('torch'))"
    found = subprocess.run(
        [venv / "bin" / "python", "-c", code], capture_output=True, text=True, check=False
    )
    return found.stdout.strip()


def install_torch(venv: Path, version: str) -> None:
    """Install torch by the first attempt for which a file exists; any other failure is final.

    A download that breaks off must not end in the CUDA build of several gigabytes.
    """
    if installed_torch(venv).partition("+")[0] == version:
        return
    attempts = torch_attempts(version, platform.system(), has_nvidia_gpu())
    for num_left, attempt in zip(reversed(range(len(attempts))), attempts, strict=True):
        if attempt.download_mb == TORCH_CUDA_MB and len(attempts) > 1:
            say("WARNING: no CPU build of torch could be found; the CUDA build will be taken")
        say(f"{attempt.label}: downloads about {attempt.download_mb} MB unless pip has it cached")
        result = subprocess.run(
            pip_command(venv, "--no-deps", *attempt.pip_args),
            stdout=sys.stderr,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if result.returncode == 0:
            return
        if "No matching distribution" not in result.stderr or num_left == 0:
            sys.stderr.write(result.stderr)
            raise SystemExit(f"setup: could not install torch {version}; pip's reason is above")
        say("not to be had there; trying elsewhere")


def install_pinned(venv: Path, *packages: str) -> None:
    """Let pip install `packages`, everything at its pinned version."""
    command = pip_command(venv, "-q", "-c", str(CONSTRAINTS), *packages)
    subprocess.run(command, check=True, stdout=sys.stderr)


def install_tree(venv: Path, level: str) -> None:
    """Install this tree, editable, with the extras of `level`."""
    extras = "" if level == "runtime" else f"[{level}]"
    install_pinned(venv, "--no-build-isolation", "-e", f"{ROOT}{extras}")


def fingerprint() -> str:
    """Changes whenever what is installed would change, or where it is installed from."""
    files = (ROOT / "pyproject.toml", CONSTRAINTS, Path(__file__))
    parts = [bytes(ROOT), *(file.read_bytes() for file in files)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def is_ready(venv: Path, level: str, stamp: str) -> bool:
    """Whether `level` or one that holds it was completed with the present pins."""
    if not (venv / "bin" / "python").exists():
        return False  # made by a Python that is gone
    enough = LEVELS[LEVELS.index(level) :]
    stamps = [venv / f".ready-{name}" for name in enough]
    return any(path.exists() and path.read_text() == stamp for path in stamps)


def missing_mb(venv: Path, level: str) -> int:
    """About how much is still to be downloaded for `level`, torch aside."""
    wanted = LEVELS[: LEVELS.index(level) + 1]
    have = {name for name in LEVELS if (venv / f".ready-{name}").exists()}
    top = max((LEVELS.index(name) for name in have), default=-1)
    return sum(DOWNLOAD_MB[name] for name in wanted if LEVELS.index(name) > top)


def set_up(venv: Path, level: str, wheel: Path | None) -> None:
    """Bring the environment at `venv` to `level`; nothing is done when it is there already."""
    stamp = fingerprint()
    if wheel is None and is_ready(venv, level, stamp):
        return
    create_venv(venv)
    install_pinned(venv, "setuptools")
    install_torch(venv, pinned_version(CONSTRAINTS.read_text(), "torch"))
    say(f"pinned packages ({level}): downloads about {missing_mb(venv, level)} MB")
    if wheel is None:
        install_tree(venv, level)
    else:
        install_pinned(venv, str(wheel))
    (venv / f".ready-{level}").write_text(stamp)
    say(f"{venv} is ready")


def main() -> None:
    parser = argparse.ArgumentParser(description="Set up a virtual environment for Blockdraft.")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    parser.add_argument("--level", choices=LEVELS, default="runtime")
    parser.add_argument("--wheel", type=Path, help="install this wheel instead of the tree")
    args = parser.parse_args()
    venv: Path = args.venv
    venv.parent.mkdir(parents=True, exist_ok=True)
    with venv.with_name(venv.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            set_up(venv, args.level, args.wheel)
        except subprocess.CalledProcessError as error:
            raise SystemExit(f"setup: a step failed with exit code {error.returncode}") from error


if __name__ == "__main__":
    main()
