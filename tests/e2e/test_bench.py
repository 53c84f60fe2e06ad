"""`blockdraft bench` against `blockdraft serve` as a process: tau is what the server counted."""

import json
import os
import re
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import httpx
import pytest

from blockdraft.cli import bench

pytest.importorskip("fastapi")
pytest.importorskip("xgrammar")

SERVE = [sys.executable, "-m", "blockdraft.cli.main", "serve"]
SMALL = ["--threads", "1", "--dtype", "float32", "--width", "fixed:4", "--kv-memory", "64MB"]
Document = dict[str, object]
Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.slow


@pytest.fixture
def url(tmp_path: Path, cache_dir: Path, text_pair: list[str]) -> Iterator[str]:
    """Of a server of the small pair; it drafts blocks of 4 tokens."""
    log = tmp_path / "stderr"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*SERVE, *text_pair, *SMALL, "--port", "0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env={**os.environ, "XDG_CACHE_HOME": str(cache_dir)},
        )
    until = time.monotonic() + 120
    try:
        while (found := re.search(r" serves on (\S+)", log.read_text())) is None:
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        yield found[1]
    finally:
        process.kill()
        process.wait()


def total(page: str, name: str) -> float:
    return sum(float(value) for value in re.findall(rf"^{name}{{.*}} (\S+)$", page, re.MULTILINE))


def test_tau_is_what_the_server_counted(url: str, prompt_file: Path, capsys: Capture) -> None:
    """Answers, counters and the server's own exact figure, over chats at two levels of load."""
    parser = ArgumentParser()
    bench.add_arguments(parser)
    argv = ["--endpoint", url, "--prompts", str(prompt_file), "--concurrency", "1", "3"]
    argv += ["--max-tokens", "40", "--ignore-eos", "--warmup", "0", "--json"]
    assert bench.run(parser.parse_args(argv)) == 0
    document = cast(Document, json.loads(capsys.readouterr().out))
    levels = cast("list[Document]", document["levels"])
    figures = cast("list[Document]", document["figures"])
    assert [one["tau"] for one in figures] == [
        cast(Document, level["acceptance"])["tau"] for level in levels
    ]
    sums = {"accepted": 0, "drafted": 0, "steps": 0}
    for level in levels:
        acceptance = cast(Document, level["acceptance"])
        told, counted = cast("list[Document]", acceptance["sources"])
        assert (told["name"], counted["name"]) == (
            "metrics.speculative_decoding",
            "vllm: counters",
        )
        for name in ("tau", "accepted", "drafted", "steps", "acceptance_rate", "by_position"):
            assert told[name] == counted[name], name
        assert acceptance["warnings"] == [] and acceptance["tau"] == told["tau"]
        for name in sums:
            sums[name] += cast(int, told[name])
        requests = cast("dict[str, int]", level["requests"])
        tokens = cast("dict[str, int]", level["tokens"])
        assert tokens["completion"] == 40 * requests["answered"]
        for record in cast("list[Document]", level["records"]):
            times = cast("list[float]", record["chunks_s"])
            assert len(times) <= 40 and times == sorted(times)
    page = httpx.get(f"{url}/metrics").text
    drafts = total(page, "vllm:spec_decode_num_drafts_total")
    assert sums["steps"] == drafts > 0
    assert sums["accepted"] == total(page, "vllm:spec_decode_num_accepted_tokens_total")
    assert sums["drafted"] == total(page, "vllm:spec_decode_num_draft_tokens_total")
    # Nothing ended on a draft, so the derived length is the exact one.
    exact = total(page, "blockdraft:drafted_step_tokens_total") / drafts
    assert 1 + sums["accepted"] / sums["steps"] == pytest.approx(exact)
