"""`blockdraft generate` from files to output."""

import io
import json
from pathlib import Path
from typing import cast

import pytest
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]: bare PathLike

from blockdraft.cli.main import main

pytestmark = pytest.mark.slow

SHORT = ["--max-new-tokens", "12"]
KEYS = ["id", "turn", "prompt_ids", "token_ids", "text", "finish_reason", "stats"]
STATS_KEYS = [
    "tau",
    "tau_drafted",
    "steps",
    "tokens",
    "seconds",
    "prefill_seconds",
    "tokens_per_second",
    "acceptance_by_position",
    "steps_by_width",
]
FIXED = ["--width", "fixed:8"]
Capture = pytest.CaptureFixture[str]


def test_json_has_the_documented_shape(ids_pair: list[str], capsys: Capture) -> None:
    assert main(["generate", *ids_pair, *SHORT, "--prompt-ids", "12,7,99", "--json"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert output.out.count("\n") == 1
    line = json.loads(output.out)
    assert list(line) == KEYS
    assert list(line["stats"]) == STATS_KEYS
    assert (line["id"], line["turn"], line["prompt_ids"]) == ("prompt", 0, [12, 7, 99])
    assert line["text"] is None
    assert len(line["token_ids"]) == line["stats"]["tokens"] == 12
    assert line["finish_reason"] == "length"
    assert 0 < line["stats"]["prefill_seconds"] < line["stats"]["seconds"]


@pytest.mark.parametrize("engine", ["native", "hf"])
@pytest.mark.parametrize("drafter", ["given", "none", "prompt-lookup", "given, fixed:8"])
def test_the_reference_ids_come_out_whatever_the_drafter(
    drafter: str, engine: str, data_dir: Path, capsys: Capture
) -> None:
    """C01: both engines, every kind of drafter, chosen and fixed widths."""
    drafter, _, width = drafter.partition(", ")
    case = data_dir / "golden" / "generate_llama_v1_full"
    expected = load_file(case / "expected.safetensors")
    prompt = [int(i) for i in expected["prompt"].flatten()]
    wanted = [int(i) for i in expected["output"].flatten()]
    argv = ["generate", "--target", str(case / "target"), "--json", "--engine", engine]
    argv += ["--width", width] if width else []
    argv += ["--drafter", str(case / "draft") if drafter == "given" else drafter]
    argv += ["--prompt-ids", ",".join(map(str, prompt))]
    argv += ["--max-new-tokens", str(len(wanted) - len(prompt))]
    assert main(argv) == 0
    assert prompt + json.loads(capsys.readouterr().out)["token_ids"] == wanted


def test_ids_are_printed_without_a_tokenizer(ids_pair: list[str], capsys: Capture) -> None:
    argv = ["generate", *ids_pair, *SHORT, "--prompt-ids", "12,7,99"]
    assert main(argv) == 0
    plain = capsys.readouterr().out
    assert len(plain.split(",")) == 12 and plain.endswith("\n")
    assert main([*argv, "--stream"]) == 0
    assert capsys.readouterr().out == plain


def test_streamed_text_is_the_text(text_pair: list[str], capsys: Capture) -> None:
    """B03, B13: streaming and not streaming agree."""
    argv = ["generate", *text_pair, "--max-new-tokens", "40", "--temperature", "1", "--seed", "3"]
    assert main([*argv, "Hi"]) == 0
    whole = capsys.readouterr().out
    assert main([*argv, "--stream", "Hi"]) == 0
    assert capsys.readouterr().out == whole


def test_the_answer_goes_to_stdout_and_the_figures_to_stderr(
    text_pair: list[str], capsys: Capture
) -> None:
    argv = ["generate", *text_pair, *SHORT, *FIXED, "Hi"]
    assert main(argv) == 0
    quiet = capsys.readouterr()
    assert quiet.err == ""
    assert main([*argv, "--stats"]) == 0
    told = capsys.readouterr()
    assert told.out == quiet.out
    assert "tau" in told.err and "accepted at draft" in told.err
    assert "widths drafted: " in told.err and "steps by reason: fixed" in told.err


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("native", "bytes a token for the target"),
        ("hf", "requests take turns"),
    ],
)
def test_the_banner_comes_once_with_the_figures(
    engine: str, said: str, text_pair: list[str], prompt_file: Path, capsys: Capture
) -> None:
    argv = ["generate", *text_pair, *SHORT, "--prompts", str(prompt_file), "--stats"]
    assert main([*argv, "--engine", engine]) == 0
    told = capsys.readouterr().err
    assert told.count("16 slots, ") == 1 and said in told.splitlines()[0]


def test_standard_input_is_a_prompt(
    text_pair: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["generate", *text_pair, *SHORT, "--json", "Hi"]) == 0
    from_argument = json.loads(capsys.readouterr().out)
    monkeypatch.setattr("sys.stdin", io.StringIO("Hi\n"))
    assert main(["generate", *text_pair, *SHORT, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["prompt_ids"] == from_argument["prompt_ids"]


def test_chat_template_is_on_unless_raw(text_pair: list[str], capsys: Capture) -> None:
    def prompt_ids(*argv: str) -> list[int]:
        assert main(["generate", *text_pair, *SHORT, "--json", *argv]) == 0
        ids: list[int] = json.loads(capsys.readouterr().out)["prompt_ids"]
        return ids

    raw, chat = prompt_ids("--raw", "Hi"), prompt_ids("Hi")
    assert chat == [1, 3, *raw, 2, 4]
    loud = prompt_ids("--template-arg", "shout=true", "Hi")
    assert len(loud) == len(chat) + len("LOUD")
    assert prompt_ids("--template-arg", "shout=false", "Hi") == chat
    assert prompt_ids("--system", "Be kind", "Hi")[:2] == [1, 5]


def test_turns_are_answered_in_order_with_the_earlier_answers(
    text_pair: list[str], prompt_file: Path, capsys: Capture
) -> None:
    argv = ["generate", *text_pair, *SHORT, "--json", "--prompts", str(prompt_file)]
    assert main(argv) == 0
    output = capsys.readouterr()
    lines = [json.loads(line) for line in output.out.split("\n")[:-1]]
    assert [(line["id"], line["turn"]) for line in lines] == [
        ("a", 0),
        ("b", 0),
        ("b", 1),
        ("c", 0),
    ]
    first, second = lines[1], lines[2]
    shared = first["prompt_ids"]
    assert second["prompt_ids"][: len(shared)] == shared
    assert len(second["prompt_ids"]) > len(shared) + len(first["text"])
    assert main([*argv, "--limit", "1"]) == 0
    assert capsys.readouterr().out.count("\n") == 1


def test_concurrent_answers_are_the_same_answers(
    text_pair: list[str], prompt_file: Path, capsys: Capture
) -> None:
    """S12: a request's answer does not depend on its neighbors."""

    def answers(*argv: str) -> dict[tuple[str, int], list[int]]:
        base = ["generate", *text_pair, "--json", "--prompts", str(prompt_file), *argv]
        assert main([*base, "--max-new-tokens", "20", "--temperature", "1", "--seed", "5"]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.split("\n")[:-1]]
        return {(line["id"], line["turn"]): line["token_ids"] for line in lines}

    alone = answers("--concurrency", "1", "--width", "off")
    assert answers() == answers("--slots", "3") == answers("--engine", "hf") == alone
    assert answers("--width", "fixed:4", "--no-prefix-reuse") == alone


def test_answers_of_several_prompts_have_headings(
    text_pair: list[str], prompt_file: Path, capsys: Capture
) -> None:
    argv = ["generate", *text_pair, *SHORT, "--prompts", str(prompt_file)]
    assert main(argv) == 0
    whole = capsys.readouterr().out
    assert whole.startswith("[a, turn 0]\n") and "[b, turn 1]\n" in whole
    assert main([*argv, "--stream"]) == 0
    assert capsys.readouterr().out == whole


def test_one_bad_prompt_does_not_fail_the_rest(
    text_pair: list[str], tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "prompts.jsonl"
    records = [
        {"id": "ok", "turns": ["hello"]},
        {"id": "long", "turns": ["x" * 600, "never asked"]},
        {"id": "fine", "turns": ["bye"]},
    ]
    path.write_text("\n".join(json.dumps(record) for record in records))
    assert main(["generate", *text_pair, *SHORT, "--json", "--prompts", str(path)]) == 1
    output = capsys.readouterr()
    lines = [json.loads(line) for line in output.out.split("\n")[:-1]]
    assert [line["id"] for line in lines] == ["ok", "long", "fine"]
    assert list(lines[1]) == ["id", "turn", "error"]
    assert "context holds 512" in lines[1]["error"]
    assert output.err.splitlines()[-1] == "1 of 3 prompts failed"


def test_logprobs_cover_every_token(ids_pair: list[str], capsys: Capture) -> None:
    """S19: drafted tokens have log-probabilities too."""
    argv = ["generate", *ids_pair, *SHORT, "--prompt-ids", "12,7", "--json", "--logprobs", "2"]
    assert main(argv) == 0
    line = json.loads(capsys.readouterr().out)
    assert [entry["token_id"] for entry in line["logprobs"]] == line["token_ids"]
    for entry in line["logprobs"]:
        assert len(entry["top"]) == 2
        assert entry["top"][0] == {"token_id": entry["token_id"], "logprob": entry["logprob"]}


def test_bad_words_are_not_written(text_pair: list[str], capsys: Capture) -> None:
    argv = ["generate", *text_pair, "--max-new-tokens", "5", "--json", "Hi"]
    assert main(argv) == 0
    text: str = json.loads(capsys.readouterr().out)["text"]
    printable = [c for c in text if c.isascii() and c.isprintable()]
    if not printable:
        pytest.skip("the tiny model wrote no ASCII")
    assert main([*argv, "--bad-words", printable[0]]) == 0
    assert printable[0] not in json.loads(capsys.readouterr().out)["text"]


def test_a_block_wider_than_trained_is_told(ids_pair: list[str], capsys: Capture) -> None:
    """L09: warn and clamp."""
    argv = ["generate", *ids_pair, *SHORT, "--prompt-ids", "12,7", "--json"]
    for flags in (["--block-size", "16"], ["--width", "fixed:16"]):
        assert main([*argv, *flags]) == 0
        output = capsys.readouterr()
        assert len(json.loads(output.out)["stats"]["acceptance_by_position"]) == 7
        assert "width 16 is cut to 8" in output.err
        assert output.err.count("\n") == 1


def test_steps_are_counted_by_width(ids_pair: list[str], capsys: Capture) -> None:
    argv = ["generate", *ids_pair, *SHORT, "--prompt-ids", "12,7", "--json"]

    def stats(*flags: str) -> dict[str, object]:
        assert main([*argv, *flags]) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)["stats"]
        return found

    plain = stats("--width", "off")
    assert plain["steps_by_width"] == [11] and plain["acceptance_by_position"] == []
    fixed = stats("--width", "fixed:3")
    counts = cast("list[int]", fixed["steps_by_width"])
    assert sum(counts) == fixed["steps"] and len(counts) == 3 and counts[2] > 0


@pytest.mark.parametrize("bits", ["int8", "int4"])
def test_drafted_text_of_rounded_weights_is_their_plain_text(
    bits: str, ids_pair: list[str], capsys: Capture
) -> None:
    argv = ["generate", *ids_pair, *SHORT, "--prompt-ids", "12,7", "--json", "--quantize", bits]
    assert main([*argv, *FIXED]) == 0
    drafted = json.loads(capsys.readouterr().out)["token_ids"]
    assert main([*argv, "--drafter", "none"]) == 0
    assert json.loads(capsys.readouterr().out)["token_ids"] == drafted


def test_a_dtype_is_chosen_by_measuring(ids_pair: list[str], capsys: Capture) -> None:
    argv = ["generate", *ids_pair, *SHORT, "--prompt-ids", "12,7", "--json", "--dtype", "auto"]
    assert main(argv) == 0
    assert len(json.loads(capsys.readouterr().out)["token_ids"]) == 12


def test_memory_is_what_was_asked_for(ids_pair: list[str], capsys: Capture) -> None:
    argv = ["generate", *ids_pair, *SHORT, "--prompt-ids", "12,7", "--stats", "--width", "off"]
    assert main([*argv, "--max-context", "64", "--kv-memory", "4MB"]) == 0
    assert "1 slots, 64 tokens a request" in capsys.readouterr().err
    assert main([*argv, "--max-context", "48", "--max-new-tokens", "99", "--ignore-eos"]) == 0
    assert len(capsys.readouterr().out.split(",")) == 46


def test_settings_without_effect_are_told_once(ids_pair: list[str], capsys: Capture) -> None:
    argv = ["generate", *ids_pair, *SHORT, "--prompt-ids", "12,7", "--json"]
    assert main([*argv, "--top-k", "5", "--seed", "1"]) == 0
    output = capsys.readouterr()
    assert "no effect in greedy decoding: --top-k, --seed" in output.err
    assert output.err.count("\n") == 1


def test_batch_invariance_changes_no_ids(ids_pair: list[str], capsys: Capture) -> None:
    argv = ["generate", *ids_pair, *SHORT, "--prompt-ids", "12,7", "--json"]
    argv += ["--dtype", "bfloat16"]
    assert main([*argv, "--batch-invariant"]) == 0
    drafted = json.loads(capsys.readouterr().out)["token_ids"]
    assert main([*argv, "--drafter", "none", "--batch-invariant", "8"]) == 0
    assert json.loads(capsys.readouterr().out)["token_ids"] == drafted
