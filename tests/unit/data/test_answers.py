"""Folders of answers: the log, its torn end, packed columns, damage."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.data import answer_columns, answer_files
from blockdraft.data.answer_columns import chunk_answers
from blockdraft.data.answer_files import LOG_FILE, AnswerLog, pack, packed_files, read_log
from blockdraft.data.answer_row import parse_answer, render_answer
from blockdraft.data.answers import Answer, AnswerTable
from blockdraft.errors import ConfigError


def answer(number: int, *, turn: int = 0, top: int = 200) -> Answer:
    """A row whose every column depends on `number`."""
    return Answer(
        id=f"row-{number}",
        turn=turn,
        category=("math", "code", None)[number % 3],
        prompt_ids=tuple((number * 7 + k) % top for k in range(1 + number % 5)),
        answer_ids=tuple((number * 11 + k) % top for k in range(1 + number % 9)),
        finish_reason="length" if number % 4 == 0 else "stop",
        temperature=0.7 if number % 2 else 0.0,
    )


def write_log(folder: Path, answers: list[Answer]) -> None:
    with AnswerLog(folder) as log:
        for each in answers:
            log.add(each)


def test_both_forms_hold_the_same(tmp_path: Path) -> None:
    answers = [answer(number) for number in range(40)]
    write_log(tmp_path, answers)
    table = AnswerTable.open(tmp_path)
    assert list(table) == answers and table.manifest == {}
    pack(tmp_path, {"made_by": "a test"}, vocab_size=500)
    assert not (tmp_path / LOG_FILE).exists()
    packed = AnswerTable.open(tmp_path)
    assert len(packed) == 40
    assert [packed[row] for row in range(40)] == answers
    assert packed.manifest["made_by"] == "a test"
    assert packed.manifest["id_type"] == "uint16"
    assert packed.num_answer_tokens == sum(len(each.answer_ids) for each in answers)
    assert packed.num_prompt_tokens == sum(len(each.prompt_ids) for each in answers)
    for outside in (40, -1):
        with pytest.raises(IndexError):
            packed[outside]


def test_packing_is_reproducible(tmp_path: Path) -> None:
    """The order of the log does not matter where a rank is given."""
    answers = [answer(number) for number in range(30)]
    for name, order in (("a", answers), ("b", answers[::-1])):
        write_log(tmp_path / name, order)
        pack(tmp_path / name, {}, rank=lambda row: int(row.id.removeprefix("row-")))
    for file in ("answers.parquet", "manifest.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert list(AnswerTable.open(tmp_path / "b")) == answers


def test_large_vocabularies_get_wide_ids(tmp_path: Path) -> None:
    wide = answer(3, top=200_000)
    write_log(tmp_path, [wide, answer(4, top=2**31 - 1)])
    with pytest.raises(ConfigError, match="another target"):
        pack(tmp_path, {}, vocab_size=10)
    pack(tmp_path, {}, vocab_size=2**31 - 1)
    table = AnswerTable.open(tmp_path)
    assert table.manifest["id_type"] == "int32" and table[0] == wide


def test_many_answers_make_chunks_and_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_columns, "CHUNK_ROWS", 64)
    answers = [answer(number) for number in range(600)]
    write_log(tmp_path, answers)
    assert list(AnswerTable.open(tmp_path)) == answers
    pack(tmp_path, {}, vocab_size=200, shard_answers=500)
    names = [path.name for path in packed_files(tmp_path)]
    assert names == ["answers-00000.parquet", "answers-00001.parquet"]
    table = AnswerTable.open(tmp_path)
    assert list(table) == answers
    assert table[555] == answers[555]


def test_answers_can_be_left_out_and_repeats_are(tmp_path: Path) -> None:
    first, second = answer(1), answer(2)
    write_log(tmp_path, [first, second, answer(1), answer(1, turn=1)])
    pack(tmp_path, {}, rank=lambda row: None if row.id == "row-2" else row.turn)
    assert list(AnswerTable.open(tmp_path)) == [first, answer(1, turn=1)]


def test_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    """SIGKILL while a line was written: the table leaves it out, the next run removes it."""
    write_log(tmp_path, [answer(1), answer(2)])
    whole = (tmp_path / LOG_FILE).read_bytes()
    (tmp_path / LOG_FILE).write_bytes(whole + render_answer(answer(3))[:-5])
    assert len(AnswerTable.open(tmp_path)) == 2
    with AnswerLog(tmp_path) as log:
        log.add(answer(4))
    assert list(read_log(tmp_path / LOG_FILE)) == [answer(1), answer(2), answer(4)]
    (tmp_path / LOG_FILE).write_bytes(b"no line feed at all" * 10_000)
    with AnswerLog(tmp_path):
        pass
    assert (tmp_path / LOG_FILE).read_bytes() == b""


def test_a_run_that_dies_while_it_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log stays until the manifest is written, and counts for more than what is packed."""
    write_log(tmp_path, [answer(1), answer(2)])

    def dies(folder: Path, document: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(answer_files, "write_manifest", dies)
        with pytest.raises(KeyboardInterrupt):
            pack(tmp_path, {})
    assert not answer_files.is_finished(tmp_path)
    assert len(AnswerTable.open(tmp_path)) == 2
    pack(tmp_path, {})
    assert answer_files.is_finished(tmp_path) and len(AnswerTable.open(tmp_path)) == 2


GOOD: dict[str, object] = {
    "id": "a",
    "turn": 1,
    "category": None,
    "prompt_ids": [1, 2],
    "answer_ids": [3],
    "finish_reason": "stop",
    "temperature": 0,
}


def test_a_missing_turn_is_the_first() -> None:
    line = json.dumps({name: value for name, value in GOOD.items() if name != "turn"})
    assert parse_answer(line.encode(), "here").turn == 0
    assert parse_answer(json.dumps(GOOD).encode(), "here").turn == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": 5}, '"id" must be a string'),
        ({"turn": -1}, '"turn" must be'),
        ({"turn": True}, '"turn" must be'),
        ({"category": 3}, '"category" must be'),
        ({"prompt_ids": "text"}, '"prompt_ids" must be'),
        ({"answer_ids": [1.5]}, '"answer_ids" must be'),
        ({"answer_ids": [-1]}, '"answer_ids" must be'),
        ({"answer_ids": [2**31]}, '"answer_ids" must be'),
        ({"finish_reason": "eos"}, '"finish_reason" must be'),
        ({"temperature": "hot"}, '"temperature" must be'),
        ({"text": "hello"}, "unknown key 'text'"),
    ],
)
def test_damaged_lines(tmp_path: Path, change: dict[str, object], words: str) -> None:
    (tmp_path / LOG_FILE).write_text(json.dumps(GOOD) + "\n" + json.dumps(GOOD | change) + "\n")
    with pytest.raises(ConfigError, match=f"line 2: {words}"):
        AnswerTable.open(tmp_path)


@pytest.mark.parametrize("line", ["{", "[]", '{"id":"a"}'])
def test_lines_that_are_no_answers(tmp_path: Path, line: str) -> None:
    (tmp_path / LOG_FILE).write_text(f"{line}\n")
    with pytest.raises(ConfigError, match="line 1: "):
        pack(tmp_path, {})
    assert (tmp_path / LOG_FILE).exists()


def test_folders_without_answers(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no answers"):
        AnswerTable.open(tmp_path)
    (tmp_path / LOG_FILE).touch()
    assert len(AnswerTable.open(tmp_path)) == 0
    with pytest.raises(ConfigError, match="nothing to pack"):
        pack(tmp_path, {})
    (tmp_path / LOG_FILE).unlink()
    (tmp_path / "answers.parquet").write_bytes(b"PAR1 but not really")
    (tmp_path / "manifest.json").write_text('{"schema": 1}')
    with pytest.raises(ConfigError, match="no complete Parquet file"):
        AnswerTable.open(tmp_path)


IDS = st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=20).map(tuple)


@given(st.lists(st.tuples(IDS, IDS, st.text(max_size=5)), min_size=1, max_size=8), st.booleans())
def test_columns_give_back_what_went_in(
    rows: list[tuple[tuple[int, ...], tuple[int, ...], str]], short: bool
) -> None:
    answers = [
        Answer(
            id=text,
            turn=number,
            category=text or None,
            prompt_ids=prompt,
            answer_ids=reply,
            finish_reason="stop",
            temperature=0.5,
        )
        for number, (prompt, reply, text) in enumerate(rows)
    ]
    encodable = [each for each in answers if each.id.isascii()]
    for each in encodable:
        assert parse_answer(render_answer(each), "here") == each
    chunks = list(chunk_answers(encodable, short=short))
    assert [chunk[row] for chunk in chunks for row in range(len(chunk))] == encodable
