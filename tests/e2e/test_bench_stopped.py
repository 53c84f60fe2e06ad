"""A bench that is stopped by a signal, as a process: what is kept, what is said, and going on."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from blockdraft.bench.report.reading import read_results
from blockdraft.cli.main import main

pytestmark = pytest.mark.slow

ENTRY = "import sys; from blockdraft.cli.main import main; sys.exit(main())"
SHORT = ["--repeats", "1", "--width", "fixed:4", "--concurrency", "1", "--ignore-eos"]


def test_a_signal_keeps_the_levels_and_says_how_to_go_on(
    ids_pair: list[str], tmp_path: Path
) -> None:
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "my out"
    rows = [{"id": str(n), "prompt_ids": [12, 7, 9 + n]} for n in range(12)]
    prompts.write_text("\n".join(json.dumps(row) for row in rows))
    argv = ["bench", *ids_pair, *SHORT, "--max-tokens", "60", "--prompts", str(prompts)]
    argv += ["--out", str(out), "--threads", "1"]
    with subprocess.Popen(
        [sys.executable, "-c", ENTRY, *argv], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said: list[str] = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("[1/3] "):
                time.sleep(0.05)
                os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    told = "".join(said)
    assert "Traceback" not in told
    command = shlex.join(["blockdraft", *argv, "--resume"])
    assert said[-1] == f"go on with: {command}\n"
    # The signal may fall between two levels.
    assert "1 of 3 levels were measured" in said[-2]
    assert f"kept in {out / 'results.json'}" in said[-2]
    document = read_results(out)
    assert not document.is_complete and document.levels[0].is_complete
    before = document.conditions["load_average"]
    assert main(shlex.split(command)[1:]) == 0
    document = read_results(out)
    assert document.is_complete
    if before is not None:
        assert isinstance(before, float) and isinstance(document.conditions["load_average"], float)
        assert document.conditions["load_average"] >= before
