"""What is recorded of a drafter's data: the folders that it was made of, and no others."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from tiny_runs import config_of, prepared, save_pair

from blockdraft.data.answer_files import AnswerLog, pack
from blockdraft.data.answers import AnswerTable
from blockdraft.training.run.record import make_provenance

Pair = tuple[Path, Path]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return save_pair(tmp_path_factory.mktemp("pair"), count=20)


def licensed(folder: Path, pair: Pair, prefix: str, licenses: dict[str, int]) -> Path:
    """The same answers as a finished folder, under other names and licenses."""
    with AnswerLog(folder) as log:
        for answer in AnswerTable.open(pair[1]):
            log.add(replace(answer, id=f"{prefix}{answer.id}"))
    pack(folder, {"licenses": licenses, "template": {"raw": True}})
    return folder


@pytest.mark.parametrize(
    ("overrides", "licenses", "folders"),
    [
        ((), {"mit": 25, "cc0": 5}, 2),
        (("data.limit=20",), {"mit": 20}, 1),
        (("data.limit=21", "data.heldout_share=0.0"), {"mit": 25, "cc0": 5}, 2),
    ],
)
def test_licenses_are_those_of_the_folders_that_were_used(
    pair: Pair, tmp_path: Path, overrides: tuple[str, ...], licenses: dict[str, int], folders: int
) -> None:
    first = licensed(tmp_path / "a", pair, "a", {"mit": 20})
    second = licensed(tmp_path / "b", pair, "b", {"mit": 5, "cc0": 5})
    config = config_of(pair, f"data.answers=['{first}', '{second}']", *overrides)
    made = make_provenance(
        prepared(config), config, {}, steps=1, command="x", machine={}, tokenizer=None
    )
    assert made["licenses"] == licenses
    assert made["template"] == [{"raw": True}] * folders
    assert len(cast("list[object]", made["answers"])) == folders
