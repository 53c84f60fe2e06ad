"""Several folders of answers count as one, and each sample finds its own features."""

from pathlib import Path

import pytest
from tiny_runs import answer, save_answers

from blockdraft.data.answers import AnswerTable
from blockdraft.training.batches.samples import SampleConfig, make_samples
from blockdraft.training.run.joined import JoinedAnswers


def folder(path: Path, names: str, packed: bool = False) -> AnswerTable:
    made = [answer(name, (ord(name),), (1, 2, 3)) for name in names]
    return AnswerTable.open(save_answers(path, made, packed=packed))


@pytest.fixture
def joined(tmp_path: Path) -> JoinedAnswers:
    return JoinedAnswers(
        [
            folder(tmp_path / "a", "abc"),
            folder(tmp_path / "none", ""),
            folder(tmp_path / "b", "de", packed=True),
        ]
    )


def test_rows_count_through_all_folders(joined: JoinedAnswers) -> None:
    assert len(joined) == 5 and joined.first_rows == (0, 3, 3)
    assert [joined[row].id for row in range(5)] == list("abcde")
    with pytest.raises(IndexError):
        joined[5]
    assert [bool(manifest) for manifest in joined.manifests] == [False, False, True]
    samples = make_samples(joined, [1, 4], SampleConfig(), 200)
    assert [(s.row, s.ids[0]) for s in samples] == [(1, ord("b")), (4, ord("e"))]


def test_an_empty_set(tmp_path: Path) -> None:
    joined = JoinedAnswers([folder(tmp_path / "none", "")])
    assert len(joined) == 0 and joined.first_rows == (0,)
