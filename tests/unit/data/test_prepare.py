"""From inputs to a folder of prompts: what is kept, what is counted, what is written."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.data.collect import RowFilter
from blockdraft.data.conversations import Conversation, from_json
from blockdraft.data.duplicates import share_most
from blockdraft.data.manifest import read_manifest, sha256_of
from blockdraft.data.prepare import Destination, PrepareOptions, prepare
from blockdraft.data.sources import PromptSource
from blockdraft.data.words import shingles_of, words_of
from blockdraft.errors import ConfigError, RequestError

Rows = list[object]
WriteRows = Callable[[str, Rows], PromptSource]


@pytest.fixture
def write(tmp_path: Path) -> WriteRows:
    """Writes rows to a file; a row that is a str is written as it stands."""

    def write_rows(name: str, rows: Rows) -> PromptSource:
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        return PromptSource(name=str(tmp_path / name))

    return write_rows


@pytest.fixture
def out(tmp_path: Path) -> Destination:
    return Destination(folder=tmp_path / "out", made_by={"blockdraft": "test", "argv": []})


def sentence(number: int) -> str:
    """Texts without a near duplicate among them."""
    return " ".join(f"word{number}x{index}" for index in range(12))


def read(path: Path) -> list[Conversation]:
    lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    return [from_json(json.loads(line), source="?") for line in lines]


def counts(document: dict[str, object], section: str) -> dict[str, int]:
    entries = cast("dict[str, dict[str, int]]", document[section])
    return {reason: entry["rows"] for reason, entry in entries.items()}


BAD_ROWS: Rows = [
    {"prompt": sentence(0)},
    '{"prompt": "broken',
    {"turns": [" "]},
    {"messages": [{"role": "assistant", "content": "x"}]},
    {"text": "no shape"},
    {"prompt": sentence(1)},
]


def test_bad_rows_are_counted_with_their_lines(write: WriteRows, out: Destination) -> None:
    source = write("a.jsonl", BAD_ROWS)
    document = prepare(PrepareOptions(sources=(source,)), out)
    dropped = cast("dict[str, dict[str, list[dict[str, object]]]]", document["dropped"])
    lines = {reason: entry["first"][0]["line"] for reason, entry in dropped.items()}
    assert lines == {"broken_line": 2, "empty_turn": 3, "wrong_roles": 4, "unknown_shape": 5}
    assert dropped["broken_line"]["first"][0]["file"] == source.name
    assert [item.id for item in read(out.folder / "train.jsonl")] in (
        ["a-1", "a-6"],
        ["a-6", "a-1"],
    )


def test_a_bad_row_may_end_the_run(write: WriteRows, out: Destination, tmp_path: Path) -> None:
    options = PrepareOptions(
        sources=(write("a.jsonl", BAD_ROWS),), row_filter=RowFilter(on_bad="stop")
    )
    with pytest.raises(ConfigError, match=r"a\.jsonl, line 2: not JSON .*nothing was written"):
        prepare(options, out)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_duplicates_and_leaks(write: WriteRows, out: Destination) -> None:
    changed = sentence(0).replace("word0x11", "other")
    rows: Rows = [
        {"prompt": sentence(0)},
        {"prompt": sentence(0).upper() + "!"},
        {"prompt": changed},
        {"prompt": sentence(1)},
        {"prompt": sentence(2)},
        {"turns": ["Hi", "Look: " + sentence(2)]},
        {"prompt": sentence(3)},
    ]
    evaluation = write(
        "eval.jsonl", [{"id": "e1", "prompt": sentence(1)}, {"turns": [sentence(2)]}]
    )
    options = PrepareOptions(sources=(write("a.jsonl", rows),), eval_sources=(evaluation,))
    document = prepare(options, out)
    assert counts(document, "dropped") == {
        "exact_duplicate": 1,
        "leak_exact": 2,
        "leak_near": 1,
        "near_duplicate": 1,
    }
    assert {item.id for item in read(out.folder / "train.jsonl")} == {"a-1", "a-7"}
    leaks = cast("list[dict[str, object]]", document["leaks"])
    assert [(leak["line"], leak["kind"], leak["eval_id"]) for leak in leaks] == [
        (4, "exact", "e1"),
        (5, "exact", "eval-2"),
        (6, "near", "eval-2"),
    ]


def test_the_manifest_accounts_for_every_row(write: WriteRows, out: Destination) -> None:
    rows: Rows = [{"prompt": sentence(number)} for number in range(30)]
    first = write("a.jsonl", [*BAD_ROWS, *rows])
    second = write("b.jsonl", [{"prompt": sentence(99), "license": "MIT"}])
    options = PrepareOptions(sources=(first, second), limit=20, holdout=5)
    document = prepare(options, out)
    assert document == read_manifest(out.folder)
    num_dropped = sum(counts(document, "dropped").values())
    assert document["rows_read"] == 37 == 20 + num_dropped
    assert counts(document, "outputs") == {"train.jsonl": 15, "heldout.jsonl": 5}
    outputs = cast("dict[str, dict[str, object]]", document["outputs"])
    for name, entry in outputs.items():
        assert entry["sha256"] == sha256_of(out.folder / name)
    inputs = cast("list[dict[str, object]]", document["inputs"])
    assert [entry["sha256"] for entry in inputs] == [sha256_of(first.path), sha256_of(second.path)]
    assert sum(cast("int", entry["rows_kept"]) for entry in inputs) == 20


def test_licenses_and_categories(write: WriteRows, out: Destination) -> None:
    """A row's own word comes before what is said of its file."""
    path = write("a.jsonl", [{"prompt": "One"}, {"prompt": "Two", "license": "Apache-2.0"}]).name
    source = PromptSource(name=path, license="MIT", category="chat")
    other = write("b.jsonl", [{"prompt": "Three"}])
    document = prepare(PrepareOptions(sources=(source, other)), out)
    assert document["licenses"] == {"Apache-2.0": 1, "MIT": 1, "unknown": 1}
    assert document["categories"] == {"chat": 2, "unknown": 1}


def test_ids_are_unique(write: WriteRows, out: Destination) -> None:
    rows: Rows = [{"id": "a", "prompt": "One"}, {"id": "a", "prompt": "Two"}]
    document = prepare(PrepareOptions(sources=(write("a.jsonl", rows),)), out)
    assert {item.id for item in read(out.folder / "train.jsonl")} == {"a", "a#2"}
    assert counts(document, "changed") == {"renamed_id": 1}


def test_the_same_seed_gives_the_same_bytes(write: WriteRows, tmp_path: Path) -> None:
    source = write("a.jsonl", [{"prompt": sentence(number)} for number in range(40)])
    written: list[tuple[bytes, ...]] = []
    for name, seed in [("one", 0), ("two", 0), ("three", 1)]:
        options = PrepareOptions(sources=(source,), holdout=0.25, seed=seed)
        folder = tmp_path / name
        prepare(options, Destination(folder=folder, made_by={}))
        written.append(tuple(path.read_bytes() for path in sorted(folder.iterdir())))
    assert len(written[0]) == 3
    assert written[0] == written[1]
    assert written[0] != written[2]


def test_lengths(write: WriteRows, out: Destination) -> None:
    rows: Rows = [{"prompt": "x" * length} for length in (1, 4, 5, 9, 10)]
    row_filter = RowFilter(min_chars=4, max_chars=9, max_prompt_tokens=6)

    def count_tokens(conversation: Conversation) -> int:
        if len(conversation.turns[0]) == 5:
            raise RequestError("no fives")
        return len(conversation.turns[0])

    options = PrepareOptions(sources=(write("a.jsonl", rows),), row_filter=row_filter)
    document = prepare(options, out, count_tokens=count_tokens)
    assert counts(document, "dropped") == {
        "too_short": 1,
        "template_error": 1,
        "too_many_tokens": 1,
        "too_long": 1,
    }


def test_a_limit_of_one_input(write: WriteRows, out: Destination) -> None:
    path = write("a.jsonl", BAD_ROWS).name
    seen: list[int] = []
    options = PrepareOptions(sources=(PromptSource(name=path, limit=1),))
    document = prepare(options, out, progress=seen.append)
    assert document["rows_read"] == 1
    assert seen == [1]


def test_turns_after_a_tool_are_counted(write: WriteRows, out: Destination) -> None:
    user = {"role": "user", "content": sentence(0)}
    call = {"role": "assistant", "function_call": {"name": "add"}}
    source = write("a.jsonl", [{"messages": [user, call, {"role": "tool"}, user]}])
    assert counts(prepare(PrepareOptions(sources=(source,)), out), "changed") == {"cut_at_tool": 1}


@given(
    st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=20), min_size=4, max_size=12)
)
def test_no_heldout_row_has_a_near_duplicate_in_training(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[str]]
) -> None:
    folder = tmp_path_factory.mktemp("split")
    rows = [json.dumps({"prompt": " ".join(words)}) for words in [*texts, ["one"], ["two"]]]
    (folder / "a.jsonl").write_text("\n".join(rows))
    options = PrepareOptions(
        sources=(PromptSource(name=str(folder / "a.jsonl")),), near_duplicates="keep", holdout=1
    )
    prepare(options, Destination(folder=folder / "out", made_by={}))
    heldout, train = (
        [shingles_of(words_of(item.turns[0])) for item in read(folder / "out" / name)]
        for name in ("heldout.jsonl", "train.jsonl")
    )
    assert len(heldout) == 1
    assert not any(share_most(held, other) for held in heldout for other in train)


def test_nothing_left_is_an_error(write: WriteRows, out: Destination, tmp_path: Path) -> None:
    options = PrepareOptions(sources=(write("a.jsonl", BAD_ROWS[1:3]),))
    with pytest.raises(ConfigError, match="no rows are left of 2 ") as caught:
        prepare(options, out)
    # Where nothing is written there is no manifest to look into.
    for words in ("(1 broken_line, the first at ", "a.jsonl, line 1: not JSON", "1 empty_turn"):
        assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not out.folder.exists()


def test_a_full_folder_is_refused_before_reading(write: WriteRows, out: Destination) -> None:
    options = PrepareOptions(sources=(write("a.jsonl", [{"prompt": "Hi"}]),))
    prepare(options, out)
    with pytest.raises(ConfigError, match="--overwrite"):
        prepare(options, out, progress=lambda _: pytest.fail("it read rows"))
    again = Destination(folder=out.folder, made_by={}, overwrite=True)
    assert prepare(options, again)["rows_kept"] == 1


def test_an_input_is_not_overwritten(write: WriteRows, out: Destination) -> None:
    prepare(PrepareOptions(sources=(write("a.jsonl", [{"prompt": "Hi"}]),)), out)
    inside = PromptSource(name=str(out.folder / "train.jsonl"))
    again = Destination(folder=out.folder, made_by={}, overwrite=True)
    with pytest.raises(ConfigError, match="written anew"):
        prepare(PrepareOptions(sources=(inside,)), again)


def test_settings_that_make_no_sense(write: WriteRows, out: Destination) -> None:
    source = write("a.jsonl", [{"prompt": "Hi"}])
    with pytest.raises(ConfigError, match="no input"):
        PrepareOptions(sources=())
    with pytest.raises(ConfigError, match="limit is 0"):
        PrepareOptions(sources=(source,), limit=0)
    for holdout in (0, 0.0, 1.0, -1):
        with pytest.raises(ConfigError, match="holdout"):
            PrepareOptions(sources=(source,), holdout=holdout)
    with pytest.raises(ConfigError, match="below min_chars"):
        RowFilter(min_chars=5, max_chars=4)
    with pytest.raises(ConfigError, match="min_chars is 0"):
        RowFilter(min_chars=0)
    with pytest.raises(ConfigError, match="max_prompt_tokens is 0"):
        RowFilter(max_prompt_tokens=0)
    options = PrepareOptions(sources=(source,), row_filter=RowFilter(max_prompt_tokens=5))
    with pytest.raises(ConfigError, match="needs a target"):
        prepare(options, out)
