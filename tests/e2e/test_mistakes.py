"""A user's mistakes: exit code 2, one line that teaches, no traceback, nothing on stdout."""

import json
import shutil
from pathlib import Path

import pytest

from blockdraft.cli.main import main

IDS = ["--prompt-ids", "12,7"]

MISTAKES: list[tuple[list[str], str]] = [
    ([*IDS, "a prompt"], "one place"),
    (["--prompts", "missing.jsonl"], "can't read prompts from missing.jsonl"),
    (["--limit", "3", "a prompt"], "--prompts FILE"),
    ([*IDS, "--raw"], "drop --raw"),
    (["a prompt"], "has no tokenizer"),
    (["--prompt-ids", "12,320"], "token id 320"),
    (["--prompt-ids", "-1"], "token id -1"),
    (["--prompt-ids", "a,b"], "whole numbers separated by commas"),
    ([*IDS, "--max-new-tokens", "0"], "max_new_tokens is 0"),
    ([*IDS, "--max-new-tokens", "-1"], "max_new_tokens is -1"),
    ([*IDS, "--temperature", "-1"], "temperature is -1"),
    ([*IDS, "--temperature", "nan"], "temperature is nan"),
    ([*IDS, "--top-p", "0"], "top_p is 0"),
    ([*IDS, "--top-p", "1.5"], "top_p is 1.5"),
    ([*IDS, "--min-p", "2"], "min_p is 2"),
    ([*IDS, "--logprobs", "5"], "--json only"),
    ([*IDS, "--logprobs", "1000000000", "--json"], "logprobs is 1000000000"),
    ([*IDS, "--logprobs", "321", "--json"], "logprobs 321 exceeds"),
    ([*IDS, "--stop-ids", "320"], "stop_ids contains token id 320"),
    ([*IDS, "--stop", ""], "empty string"),
    ([*IDS, "--stop", "END"], "use --stop-ids"),
    ([*IDS, "--bad-words", "x"], "use --banned-ids"),
    ([*IDS, "--banned-ids", "999"], "banned_ids contains token id 999"),
    ([*IDS, "--allowed-ids", "-3"], "allowed_ids contains token id -3"),
    ([*IDS, "--logit-bias", "999=1"], "logit_bias contains token id 999"),
    ([*IDS, "--logit-bias", "x"], "not ID=VALUE"),
    ([*IDS, "--logit-bias", "5=1", "--logit-bias", "5=2"], "given twice"),
    ([*IDS, "--law", "other"], "invalid choice"),
    ([*IDS, "--seed", "-1"], "seed is -1"),
    ([*IDS, "--block-size", "0"], "at least 1"),
    ([*IDS, "--width", "wide"], "auto, off or fixed:N"),
    ([*IDS, "--width", "fixed:0"], "below 1"),
    ([*IDS, "--width", "auto", "--block-size", "4"], "not allowed with"),
    ([*IDS, "--drafter", "none", "--width", "fixed:4"], "drafts nothing"),
    ([*IDS, "--engine", "fast"], "invalid choice"),
    ([*IDS, "--quantize", "int2"], "invalid choice"),
    ([*IDS, "--quantize", "int8", "--engine", "hf"], "drop --engine hf"),
    ([*IDS, "--kv-memory", "lots"], "500MB, 2GB or 1GiB"),
    ([*IDS, "--kv-memory", "1KB"], "raise --kv-memory"),
    ([*IDS, "--max-context", "1"], "at least 2"),
    ([*IDS, "--max-context", "513"], "lower it"),
    ([*IDS, "--slots", "0"], "at least 1"),
    ([*IDS, "--json", "--stream"], "choose one"),
    ([*IDS, "--concurrency", "2"], "needs --prompts"),
    ([*IDS, "--dtype", "int8"], "invalid choice"),
    ([*IDS, "--batch-invariant", "4"], "at least 8"),
    ([*IDS, "--threads", "0"], "at least 1"),
    ([*IDS, "--taps", "1,2,7"], "(1, 2, 7)"),
    ([*IDS, "--taps", "1,2,70"], "70"),
    ([*IDS, "--drafter", "no/such folder"], "no such folder"),
    ([*IDS, "--target", "no/such folder"], "no/such folder"),
    ([*IDS, "--template-arg", "enable_thinking"], "not KEY=VALUE"),
    ([*IDS, "--device", "cuda:77"], "--device cuda:77 can't be used"),
    ([*IDS, "--revision", "abc"], "abc"),
    ([*IDS, "--unknown"], "unrecognized arguments: --unknown"),
]


def run(argv: list[str]) -> int:
    """The exit code, whether argparse exits or the command returns."""
    try:
        return main(argv)
    except SystemExit as exit_error:
        assert isinstance(exit_error.code, int)
        return exit_error.code


def assert_taught(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(argv) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err
    assert output.err.count("\n") == 1, output.err


@pytest.mark.parametrize(("extra", "message"), MISTAKES, ids=[" ".join(m[0]) for m in MISTAKES])
def test_mistakes_in_generate(
    extra: list[str], message: str, ids_pair: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """R01, R02 among them: ids, counts and limits out of range."""
    assert_taught(["generate", *ids_pair, *extra], message, capsys)


VERIFY_MISTAKES: list[tuple[list[str], str]] = [
    ([*IDS, "--widths", "2,9"], "--widths has 9"),
    ([*IDS, "--widths", "2,x"], "whole numbers"),
    ([*IDS, "--epsilon", "-1"], "--epsilon -1"),
    ([*IDS, "--exact", "--dtype", "bfloat16"], "drop --dtype"),
    ([*IDS, "--temperature", "1"], "add --seed"),
    ([*IDS, "--temperature", "1", "--seed", "1", "--law", "sampled"], "nothing to compare"),
    ([*IDS, "--drafter", "none"], "nothing to compare"),
    ([*IDS, "--block-size", "1"], "nothing to compare"),
    ([*IDS, "--widths", "1,1"], "nothing to compare"),
    ([*IDS, "--widths", "off"], "nothing to compare"),
    ([*IDS, "--widths", "2", "--width", "auto"], "choose one"),
]


@pytest.mark.parametrize(
    ("extra", "message"), VERIFY_MISTAKES, ids=[" ".join(m[0]) for m in VERIFY_MISTAKES]
)
def test_mistakes_in_verify(
    extra: list[str], message: str, ids_pair: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert_taught(["verify", *ids_pair, *extra], message, capsys)


def test_a_target_given_as_drafter_is_named(
    ids_pair: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """L16: the two models swapped."""
    target, drafter = ids_pair[1], ids_pair[3]
    assert_taught(
        ["generate", "--target", target, "--drafter", target, *IDS], "not a DFlash drafter", capsys
    )
    assert_taught(
        ["generate", "--target", drafter, "--drafter", drafter, *IDS], "--drafter", capsys
    )


def test_a_drafter_without_taps_is_refused(
    ids_pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """L01: taps are never guessed."""
    folder = tmp_path / "draft"
    shutil.copytree(ids_pair[3], folder)
    config = json.loads((folder / "config.json").read_text())
    del config["dflash_config"]["target_layer_ids"]
    (folder / "config.json").write_text(json.dumps(config))
    argv = ["generate", "--target", ids_pair[1], "--drafter", str(folder), *IDS]
    assert_taught(argv, "--taps", capsys)
    assert main([*argv, "--taps", "1,3,5", "--max-new-tokens", "4"]) == 0


def test_no_drafter_is_guessed_for_a_folder(
    ids_pair: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert_taught(["generate", *ids_pair[:2], *IDS], "--drafter", capsys)


def test_a_bad_line_is_found_before_anything_runs(
    ids_pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"id": "a", "turns": ["x"]}\n{"id": "b", "turn": "y"}\n')
    assert_taught(["generate", *ids_pair, "--prompts", str(path)], "line 2", capsys)
    path.write_text('{"id": "a", "turns": ["x"]}\n' + "[" * 100_000)
    assert_taught(["generate", *ids_pair, "--prompts", str(path)], "line 2", capsys)


@pytest.mark.parametrize("command", ["inspect", "demo"])
def test_mistakes_elsewhere(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if command == "inspect":
        assert_taught(["inspect", str(tmp_path)], "config.json", capsys)
    else:
        assert_taught(["demo", "--prompts", str(tmp_path)], "can't read prompts", capsys)
