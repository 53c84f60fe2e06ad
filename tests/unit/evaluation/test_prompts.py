"""Prompt files: three shapes of a row, and errors that name the line."""

import hashlib
from pathlib import Path

import pytest

from blockdraft.errors import ConfigError
from blockdraft.evaluation import read_eval_prompts


def write(folder: Path, *lines: str | bytes) -> Path:
    path = folder / "prompts.jsonl"
    path.write_bytes(b"\n".join(x if isinstance(x, bytes) else x.encode() for x in lines))
    return path


def test_rows_of_all_shapes(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '{"id": "a", "category": "math", "turns": ["one\u2028line", "second"], "other": 1}',
        "",
        '{"prompt": "two", "system": "Be brief."}',
        '{"prompt_ids": [3, 4], "id": "c"}\r',
    )
    file = read_eval_prompts(path)
    assert file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    first, second, third = file.prompts
    assert (first.id, first.category, first.content) == ("a", "math", "one\u2028line")
    assert (first.num_turns, second.num_turns) == (2, 1)
    assert (first.system, second.system) == (None, "Be brief.")
    assert (second.id, second.category, second.content, second.line) == ("line 3", "", "two", 3)
    assert (third.content, file.where(third)) == ((3, 4), f"{path}, line 4")


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    assert read_eval_prompts(write(tmp_path, b'\xef\xbb\xbf{"prompt": "x"}')).prompts


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "cut', "not JSON"),
        (b'{"prompt": "\xff"}', "not UTF-8"),
        ('["a"]', "not an object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"id": "b"}', "has no prompt"),
        ('{"prompt": "a", "turns": ["b"]}', "has turns and prompt"),
        ('{"turns": []}', "at least one user turn"),
        ('{"turns": "hello"}', "at least one user turn"),
        ('{"turns": ["a", 3]}', "must be a string, not 3"),
        ('{"prompt": "  "}', "is blank"),
        ('{"prompt": "\\ud800"}', "not valid Unicode"),
        ('{"prompt": "a", "id": 7}', '"id" must be a string'),
        ('{"prompt": "a", "category": null}', '"category" must be a string'),
        ('{"prompt_ids": [1, true]}', "whole number"),
        ('{"prompt_ids": []}', "whole number"),
        ('{"prompt_ids": [1], "system": "x"}', "stand for themselves"),
        ('{"prompt": "a", "system": " "}', '"system" is blank'),
        ('{"prompt": "a", "id": "first"}', "was used in line 1"),
    ],
)
def test_a_bad_line_is_named(line: str | bytes, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, '{"id": "first", "prompt": "fine"}', line)
    with pytest.raises(ConfigError) as caught:
        read_eval_prompts(path)
    text = str(caught.value)
    assert text.startswith(f"{path}, line 2: ")
    assert message in text
    assert "\n" not in text


def test_a_file_without_prompts_and_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no prompts"):
        read_eval_prompts(write(tmp_path, "", " "))
    with pytest.raises(ConfigError, match="can't read prompts"):
        read_eval_prompts(tmp_path / "missing.jsonl")
