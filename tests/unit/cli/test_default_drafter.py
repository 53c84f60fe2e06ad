"""The published drafter of a target: stated, asked for, and downloaded only then. No network."""

import io
import json
import os
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import huggingface_hub.constants
import pytest

from blockdraft.api import choose_drafter
from blockdraft.builtin.published import published_drafters
from blockdraft.checkpoint import load_checkpoint
from blockdraft.checkpoint.hub_cache import cached_folder
from blockdraft.checkpoint.published import published_config
from blockdraft.cli import generate, serve
from blockdraft.cli.default_drafter import (
    settle_drafter,
    warn_of_other_files,
    warn_of_thinking,
)
from blockdraft.cli.serve_settings import ServeSettings
from blockdraft.cli.serving import model_args
from blockdraft.errors import ConfigError
from blockdraft.llm import LLM

DRAFTER = "z-lab/Qwen3-8B-DFlash-b16"
TARGET = "Qwen/Qwen3-8B"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def parse(*argv: str) -> Namespace:
    parser = ArgumentParser()
    generate.add_arguments(parser)
    return parser.parse_args(argv)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, and no way to the hub."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def keep(hub: Path, hub_id: str, source: Path, names: tuple[str, ...] = ()) -> Path:
    """The files of `source` in the cache, as the hub's client lays them out."""
    repository = hub / f"models--{hub_id.replace('/', '--')}"
    folder = repository / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    for file in source.iterdir():
        if not names or file.name in names:
            os.symlink(file.resolve(), folder / file.name)
    return folder


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> Terminal:
    """Somebody at a terminal who types `text`; what they read is in the result."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(text))
    monkeypatch.setattr(sys, "stderr", shown)
    return shown


def test_nobody_to_ask(hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"nobody can be asked: add --yes .*1\.95 GiB"):
        settle_drafter(parse("hi", "--target", TARGET))
    told = capsys.readouterr()
    assert told.out == ""
    assert f"drafter: {DRAFTER}, published for {TARGET} (1.05 B parameters, 1.95 GiB" in told.err
    assert "blocks of 16, trained on answers without thinking)" in told.err
    assert "by the authors of DFlash; also published: RedHatAI/" in told.err
    assert list(hub.iterdir()) == []


@pytest.mark.parametrize("typed", ["n\n", "\n", "", "maybe\n"])
def test_a_no_ends_the_command(hub: Path, monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    shown = answer(monkeypatch, typed)
    with pytest.raises(ConfigError, match="nothing was downloaded"):
        settle_drafter(parse("hi", "--target", TARGET))
    assert shown.getvalue().endswith("(1.05 B parameters, 1.95 GiB)? [y/N] ")


@pytest.mark.parametrize("typed", ["y\n", "YES\n"])
def test_a_yes_is_kept(hub: Path, monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    shown = answer(monkeypatch, typed)
    args = parse("hi", "--target", TARGET)
    assert settle_drafter(args) == DRAFTER
    once = shown.getvalue()
    assert settle_drafter(args) == args.drafter == DRAFTER
    assert shown.getvalue() == once, "it is stated and asked once"


def test_the_flag_answers(hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert settle_drafter(parse("hi", "--target", TARGET, "--yes")) == DRAFTER
    assert f"downloading {DRAFTER} from the Hugging Face hub" in capsys.readouterr().err


def test_what_is_cached_needs_no_question(
    hub: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(hub, DRAFTER, data_dir / "golden" / "generate_qwen3_v1_full" / "draft")
    assert settle_drafter(parse("hi", "--target", TARGET)) == f"{DRAFTER}@{COMMIT}"
    told = capsys.readouterr().err
    assert "downloading" not in told and f"  on this machine: {DRAFTER}@{COMMIT}\n" in told
    assert choose_drafter(TARGET, None) == f"{DRAFTER}@{COMMIT}"


def test_what_is_cached_is_not_replaced_unasked(
    hub: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L22: by its bare name a cached drafter would be fetched anew when the hub has other files."""
    keep(hub, DRAFTER, data_dir / "golden" / "generate_qwen3_v1_full" / "draft")
    asked: list[tuple[str, str | None]] = []

    def fetch(name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((name, revision))
        folder = cached_folder(name, revision)
        assert folder is not None
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    checkpoint = load_checkpoint(choose_drafter(TARGET, None))
    assert asked == [(DRAFTER, COMMIT)]
    assert checkpoint.source == f"{DRAFTER}@{COMMIT}"


def test_a_revision_is_asked_for_by_its_own_size(
    hub: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is said is what is known of that revision, not of the newest files."""
    target, drafter = "Qwen/Qwen3.5-122B-A10B", "z-lab/Qwen3.5-122B-A10B-DFlash"
    with pytest.raises(ConfigError, match=r"add --yes .*0\.51 B parameters"):
        settle_drafter(parse("hi", "--target", target, "--drafter-revision", "6c7242c"))
    assert "(0.51 B parameters, about" in capsys.readouterr().err
    keep(hub, drafter, data_dir / "golden" / "generate_qwen3_v1_full" / "draft")
    flags = ("--target", target, "--drafter-revision", COMMIT)
    assert settle_drafter(parse("hi", *flags)) == drafter


def test_a_cached_mirror_is_taken(hub: Path, data_dir: Path) -> None:
    keep(hub, "incoai/Qwen3.8-27B-DFlash2", data_dir / "golden" / "v2_conv_selector")
    folder = hub / "models--incoai--Qwen3.8-27B-DFlash2" / "snapshots" / COMMIT
    assert cached_folder("incoai/Qwen3.8-27B-DFlash2") == folder
    assert settle_drafter(parse("--target", "Qwen/Qwen3.8-27B")) == (
        f"incoai/Qwen3.8-27B-DFlash2@{COMMIT}"
    )


def test_half_a_download_is_not_cached(hub: Path, data_dir: Path) -> None:
    source = data_dir / "golden" / "generate_qwen3_v1_full" / "draft"
    folder = keep(hub, DRAFTER, source, ("config.json",))
    assert cached_folder(DRAFTER) is None
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}))
    (folder / "1.safetensors").touch()
    assert cached_folder(DRAFTER) is None
    (folder / "2.safetensors").touch()
    assert cached_folder(DRAFTER) == cached_folder(f"{DRAFTER}@{COMMIT}") == folder
    assert cached_folder(DRAFTER, "another") is None
    for text in ("[]", "{", '{"weight_map": {}}'):
        index.write_text(text)
        assert cached_folder(DRAFTER) is None


def test_python_callers_are_never_downloaded_to(hub: Path) -> None:
    """Size and id are told instead, before the target is loaded."""
    with pytest.raises(
        ConfigError, match=rf"{DRAFTER}, published .*1\.95 GiB.*not on this machine"
    ):
        choose_drafter(TARGET, None)
    with pytest.raises(ConfigError, match="name it as the drafter"):
        LLM(TARGET)
    assert choose_drafter(TARGET, None, download=True) == DRAFTER


def test_a_folder_gets_a_suggestion(tmp_path: Path) -> None:
    """U09: by the name it was saved from, or by its own; never taken in silence."""
    by_name = tmp_path / "qwen3-8b"
    by_config = tmp_path / "my-model"
    unknown = tmp_path / "another"
    for folder in (by_name, by_config, unknown):
        folder.mkdir()
    (by_config / "config.json").write_text(json.dumps({"_name_or_path": "Qwen/Qwen3-4B"}))
    (unknown / "config.json").write_text("[1]")
    with pytest.raises(
        ConfigError, match=rf"by its name it may be {TARGET}, .* --drafter {DRAFTER}"
    ):
        choose_drafter(str(by_name), None)
    with pytest.raises(ConfigError, match=r"by its config\.json it may be Qwen/Qwen3-4B"):
        choose_drafter(str(by_config), None)
    with pytest.raises(ConfigError, match=f"no drafter is known for {unknown}: give"):
        choose_drafter(str(unknown), None)
    with pytest.raises(ConfigError, match=rf"unasked: by its name it may be {TARGET}"):
        settle_drafter(parse("hi", "--target", "unsloth/Qwen3-8B"))


def test_drafters_of_another_layout_are_told_of() -> None:
    with pytest.raises(ConfigError, match=r"only RedHatAI/Qwen3-30B-A3B-speculator\.dflash \(spec"):
        choose_drafter("Qwen/Qwen3-30B-A3B", None)


def test_the_folder_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Qwen3-8B").mkdir()
    monkeypatch.chdir(tmp_path / "Qwen3-8B")
    with pytest.raises(ConfigError, match=f"by its folder it may be {TARGET}"):
        choose_drafter(".", None)


OFF = "thinking off and these prompts"


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("", f"{OFF} leave that to the chat template"),
        ("--template-arg enable_thinking=true", f"{OFF} have it on"),
        ("--template-arg enable_thinking=yes", f"{OFF} have it as 'yes'"),
        ("--template-arg enable_thinking=false", None),
        ("--raw", None),
    ],
)
def test_the_thinking_mode(flags: str, told: str | None, caplog: pytest.LogCaptureFixture) -> None:
    """T13: the wrong mode halves the acceptance, and nothing else tells."""
    warn_of_thinking(parse("hi", *flags.split()), DRAFTER)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == (told is not None)
    if told is not None:
        assert told in messages[0]
        assert messages[0].endswith("--template-arg enable_thinking=false fits it")


def test_no_mode_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is said of drafters whose mode is not known, of others, and by a server."""
    warn_of_thinking(parse("hi"), "z-lab/Qwen3.6-27B-DFlash")
    warn_of_thinking(parse("hi"), "./my-drafter")
    warn_of_thinking(model_args(ServeSettings(target=TARGET)), DRAFTER)
    assert not caplog.records


def test_replaced_files_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    """L22: z-lab replaces checkpoints in place, and a cache keeps the earlier ones."""
    earlier, current = (one for one in published_drafters() if one.id == "z-lab/Qwen3.5-27B-DFlash")
    warn_of_other_files(current.id, published_config(current).config)
    warn_of_other_files("./my-drafter", published_config(current).config)
    assert not caplog.records
    warn_of_other_files(current.id, published_config(earlier).config)
    other = replace(published_config(current).config, block_size=8, taps=(1, 2))
    warn_of_other_files(current.id, other)
    first, second = (record.getMessage() for record in caplog.records)
    assert "these are its earlier files (taps (1, 16, 31, 46, 61), not (1, 10, " in first
    assert "num_layers 5, not 6; sliding_layers 0, not 5)" in first
    assert "others than those known (block_size 8, not 16; taps (1, 2), not" in second


def test_a_server_takes_the_flag(hub: Path) -> None:
    parser = ArgumentParser()
    serve.add_arguments(parser)
    assert parser.parse_args(["--yes"]).yes is True
    args = model_args(ServeSettings(target=TARGET, yes=True))
    assert settle_drafter(args) == DRAFTER


def test_a_pair_from_the_cache_answers(
    hub: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Target and drafter under their hub names: nothing but --target is given."""
    case = data_dir / "golden" / "generate_qwen3_v1_full"
    keep(hub, TARGET, case / "target")
    keep(hub, DRAFTER, case / "draft")
    flags = "--prompt-ids 12,7,99 --max-new-tokens 6 --json --width fixed:4"
    assert generate.run(parse("--target", TARGET, *flags.split())) == 0
    told = capsys.readouterr()
    assert len(json.loads(told.out)["token_ids"]) == 6
    assert f"drafter: {DRAFTER}" in told.err
