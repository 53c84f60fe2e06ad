"""A bench of real engines in process, counted again from its steps by the independent script."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import cast

import pytest

from blockdraft.cli import bench
from recount import recount

Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.slow


def test_every_figure_of_a_run_in_process(
    text_pair: list[str], prompt_file: Path, capsys: Capture
) -> None:
    parser = ArgumentParser()
    bench.add_arguments(parser)
    argv = [*text_pair, "--prompts", str(prompt_file), "--threads", "1", "--json"]
    argv += ["--width", "fixed:3", "fixed:4", "--concurrency", "1", "2", "--repeats", "2"]
    argv += ["--max-tokens", "24"]
    assert bench.run(parser.parse_args(argv)) == 0
    document = cast("dict[str, object]", json.loads(capsys.readouterr().out))
    lines = recount(document, draws=1000)
    assert [line for line in lines if not line.agrees] == []
    figures = cast("list[dict[str, object]]", document["figures"])
    taus = [line for line in lines if line.name.endswith(": tau") and "tau_" not in line.name]
    assert len(taus) > 4 * len(figures) >= 24
