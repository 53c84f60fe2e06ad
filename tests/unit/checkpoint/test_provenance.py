"""The recorded acceptance length: read, refused when it can't be one, kept through saving."""

import json
from pathlib import Path

import pytest

from blockdraft.builtin import builtin_drafter_path
from blockdraft.checkpoint import load_checkpoint, save_checkpoint
from blockdraft.checkpoint.provenance import PROVENANCE_FILE, read_recorded_tau
from blockdraft.errors import CheckpointError


def write(folder: Path, content: object) -> None:
    (folder / PROVENANCE_FILE).write_text(json.dumps(content))


def test_nothing_recorded_is_no_fault(tmp_path: Path) -> None:
    assert read_recorded_tau(tmp_path, "here") is None
    write(tmp_path, {"trained_on": "something"})
    assert read_recorded_tau(tmp_path, "here") is None


def test_a_record_is_read(tmp_path: Path) -> None:
    write(tmp_path, {"acceptance_length": 3})
    assert read_recorded_tau(tmp_path, "here") == 3.0


@pytest.mark.parametrize("value", [0.9, -1, True, "3.1", [3], float("inf")])
def test_what_is_no_acceptance_length_is_refused(tmp_path: Path, value: object) -> None:
    write(tmp_path, {"acceptance_length": value})
    with pytest.raises(CheckpointError, match=r"here: provenance.json has acceptance_length"):
        read_recorded_tau(tmp_path, "here")


def test_the_built_in_drafter_s_record_survives_saving(tmp_path: Path) -> None:
    path = builtin_drafter_path("smollm2")
    assert path is not None
    checkpoint = load_checkpoint(path)
    assert checkpoint.recorded_tau is not None and checkpoint.recorded_tau > 1
    save_checkpoint(tmp_path / "copy", checkpoint)
    assert load_checkpoint(tmp_path / "copy").recorded_tau == checkpoint.recorded_tau
