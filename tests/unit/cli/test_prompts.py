"""Prompt files and the other places that prompts come from."""

import io
import json
from argparse import Namespace
from pathlib import Path

import pytest

from blockdraft.cli.prompts import (
    PromptRecord,
    builtin_prompts,
    read_prompt_file,
    read_prompts,
    read_stdin,
)
from blockdraft.errors import ConfigError


def namespace(**given: object) -> Namespace:
    unset = ("prompt", "prompts", "prompt_ids", "limit", "system")
    defaults = {**dict.fromkeys(unset), "raw": False, "template_arg": ()}
    return Namespace(**{**defaults, **given})


def write(folder: Path, *lines: bytes) -> Path:
    path = folder / "prompts.jsonl"
    path.write_bytes(b"\n".join(lines))
    return path


def test_lines_end_at_line_feeds_only(tmp_path: Path) -> None:
    """U+2028, U+0085 and form feeds may stand inside a prompt."""
    text = "one\u2028two\u0085three\x0cfour"
    line = json.dumps({"id": "a", "turns": [text]}, ensure_ascii=False).replace("\\f", "\\u000c")
    records = read_prompt_file(write(tmp_path, line.encode(), b"", b'{"id":"b","turns":["x"]}\r'))
    assert records == (PromptRecord(id="a", turns=(text,)), PromptRecord(id="b", turns=("x",)))


def test_other_fields_are_data_of_the_user(tmp_path: Path) -> None:
    path = write(tmp_path, b'{"id": "a", "turns": ["x", "y"], "category": "math", "reference": 3}')
    assert read_prompt_file(path) == (PromptRecord(id="a", category="math", turns=("x", "y")),)


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    path = write(tmp_path, b'\xef\xbb\xbf{"id": "a", "turns": ["x"]}')
    assert read_prompt_file(path)[0].id == "a"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "line 2: not JSON"),
        (b"id,prompt", r"line 2: not JSON .*like \{"),
        (b"[1]", "line 2: not an object"),
        (b'{"id": "b"}', 'line 2: "turns" must be a list'),
        (b'{"id": "b", "turns": []}', 'line 2: "turns" must be a list of at least one'),
        (b'{"id": "b", "turns": "x"}', 'line 2: "turns" must be a list'),
        (b'{"id": "b", "turns": ["x", 3]}', 'line 2: "turns" holds 3'),
        (b'{"turns": ["x"]}', 'line 2: "id" must be a string'),
        (b'{"id": 3, "turns": ["x"]}', 'line 2: "id" must be a string'),
        (b'{"id": "b", "category": 1, "turns": ["x"]}', 'line 2: "category" must be a string'),
        (b'{"id": "a", "turns": ["x"]}', "line 2: id 'a' was used before"),
        (b'{"id": "b", "turns": ["\xff"]}', "line 2: not UTF-8"),
        (b'{"id": "b", "turns": ["\\ud800"]}', "line 2: not valid Unicode"),
        pytest.param(b"[" * 100_000, "line 2: nested too deeply", id="nested"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    path = write(tmp_path, b'{"id": "a", "turns": ["x"]}', line)
    with pytest.raises(ConfigError, match=message):
        read_prompt_file(path)


def test_a_file_needs_prompts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no prompts"):
        read_prompt_file(write(tmp_path, b"", b" "))
    with pytest.raises(ConfigError, match=r"can't read prompts from .*: No such file"):
        read_prompt_file(tmp_path / "missing.jsonl")


def test_prompts_come_from_one_place(tmp_path: Path) -> None:
    path = str(write(tmp_path, b'{"id": "a", "turns": ["x"]}', b'{"id": "b", "turns": ["y"]}'))
    assert read_prompts(namespace()) is None
    one = read_prompts(namespace(prompt="hello"))
    assert one is not None and one.records == (PromptRecord(id="prompt", turns=("hello",)),)
    ids = read_prompts(namespace(prompt_ids=(1, 2)))
    assert ids is not None and ids.records[0].prompts == ((1, 2),) and ids.num_turns == 1
    limited = read_prompts(namespace(prompts=path, limit=1))
    assert limited is not None and [r.id for r in limited.records] == ["a"] and limited.from_file


@pytest.mark.parametrize(
    "given",
    [
        {"prompt": "x", "prompts": "file"},
        {"prompt": "x", "prompt_ids": (1,)},
        {"prompt": "x", "limit": 3},
        {"prompt_ids": (1,), "raw": True},
        {"prompt_ids": (1,), "system": "s"},
        {"prompt_ids": (1,), "template_arg": [("a", 1)]},
        {"prompt": "x", "raw": True, "system": "s"},
        {"prompt": "x", "raw": True, "template_arg": [("a", 1)]},
        {"prompt": "\udcff"},
    ],
)
def test_contradictions_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        read_prompts(namespace(**given))


def test_raw_text_has_one_turn(tmp_path: Path) -> None:
    path = write(tmp_path, b'{"id": "a", "turns": ["x", "y"]}')
    with pytest.raises(ConfigError, match="prompt 'a' has 2 turns"):
        read_prompts(namespace(prompts=str(path), raw=True))


def test_standard_input_is_one_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("two\nlines\n"))
    assert read_stdin().records[0].turns == ("two\nlines",)


def test_the_built_in_prompts_are_of_several_kinds() -> None:
    records = builtin_prompts().records
    categories = [record.category for record in records]
    assert categories.count("math") == 3
    assert {"math", "code", "chat", "rewriting"} <= set(categories)
    assert all(len(record.turns) == 1 for record in records)
