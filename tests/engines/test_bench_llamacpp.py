"""`blockdraft bench` against llama.cpp's server: tau is what its own counters and timings say.

The trained tiny pair in float32; each answer is asked a second time by itself, with the counts of
every step, so that the bench's figures can be computed from steps too.
"""

import json
import shutil
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from llamacpp_process import LlamaOptions, LlamaProcess, LlamaStep, llamacpp
from tiny_pair import TinyPair, prompts

from blockdraft.cli import bench
from blockdraft.interop.gguf import read_tokenizer, write_drafter, write_target
from blockdraft.interop.target_facts import read_rows, read_target

pytest.importorskip("xllamacpp", reason="llama.cpp is not installed (pip install xllamacpp)")
pytestmark = pytest.mark.engines

BLOCK_SIZE = 8
MAX_TOKENS = 48
PROMPTS = prompts(4, seed=8)
Document = dict[str, object]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def files(pair: TinyPair, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The pair as llama.cpp reads it."""
    folder = tmp_path_factory.mktemp("bench")
    shutil.copytree(pair.target, folder / "target")
    target, drafter = folder / "target.gguf", folder / "drafter.gguf"
    write_target(folder / "target", target, dtype="f32")
    write_drafter(
        pair.drafter,
        read_tokenizer(folder / "target"),
        drafter,
        dtype="f32",
        provenance={},
        rows=read_rows(read_target(str(folder / "target"))),
    )
    return str(target), str(drafter)


@pytest.fixture(scope="module")
def drafting(files: tuple[str, str]) -> Iterator[LlamaProcess]:
    target, drafter = files
    options = LlamaOptions(target=target, drafter=drafter, n_max=BLOCK_SIZE - 1)
    with llamacpp(options) as engine:
        yield engine


@pytest.fixture
def prompt_file(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    rows = [{"id": f"c{n}", "prompt_ids": ids} for n, ids in enumerate(PROMPTS)]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def run(capsys: Capture, *argv: str) -> Document:
    parser = ArgumentParser()
    bench.add_arguments(parser)
    asked = ["--max-tokens", str(MAX_TOKENS), "--warmup", "0", "--json", *argv]
    assert bench.run(parser.parse_args(asked)) == 0
    return cast(Document, json.loads(capsys.readouterr().out))


def sources_of(level: Document) -> dict[str, Document]:
    acceptance = cast(Document, level["acceptance"])
    assert acceptance["warnings"] == []
    return {str(s["name"]): s for s in cast("list[Document]", acceptance["sources"])}


def test_tau_is_what_llamacpp_counts(
    drafting: LlamaProcess, prompt_file: Path, capsys: Capture
) -> None:
    answers = [drafting.complete(ids, MAX_TOKENS) for ids in PROMPTS]
    steps: list[LlamaStep] = [step for answer in answers for step in answer.steps]
    accepted = sum(step.num_accepted for step in steps)
    drafted = sum(step.num_drafted for step in steps)
    before = drafting.counters()
    document = run(capsys, "--endpoint", drafting.url, "--prompts", str(prompt_file))
    after = drafting.counters()
    (level,) = cast("list[Document]", document["levels"])
    sources = sources_of(level)
    counted, timings = sources["llamacpp: counters"], sources["timings"]

    # The engine's own counters, before and after.
    num_steps = after.steps - before.steps
    assert counted["steps"] == num_steps == len(steps)
    assert counted["accepted"] == after.accepted - before.accepted == accepted
    assert counted["drafted"] == after.drafted - before.drafted == drafted
    assert counted["tau"] == pytest.approx(1 + accepted / len(steps), abs=1e-12)
    assert counted["by_position"] == pytest.approx(
        [
            sum(step.num_accepted > position for step in steps) / len(steps)
            for position in range(BLOCK_SIZE - 1)
        ]
    )
    # The answers' timings; they count no steps, so tau is by tokens.
    assert (timings["accepted"], timings["drafted"]) == (accepted, drafted)
    tokens = sum(
        cast(int, record["completion_tokens"]) - 1
        for record in cast("list[Document]", level["records"])
    )
    assert timings["tau"] == pytest.approx(tokens / (tokens - accepted), abs=1e-12)
    # The headline is the one of the counters, in the level and in the figures.
    assert cast(Document, level["acceptance"])["source"] == "llamacpp: counters"
    (figures,) = cast("list[Document]", document["figures"])
    assert figures["tau"] == counted["tau"]
    assert 1.4 < cast(float, figures["tau"]) < BLOCK_SIZE - 1


def test_a_plain_llama_server_is_the_baseline(
    drafting: LlamaProcess, files: tuple[str, str], prompt_file: Path, capsys: Capture
) -> None:
    """The same file under the same name, without a drafter; tokens are the same, greedily."""
    with llamacpp(LlamaOptions(target=files[0])) as plain:
        argv = ["--endpoint", drafting.url, "--baseline", plain.url, "--repeats", "2"]
        document = run(capsys, *argv, "--prompts", str(prompt_file))
    levels = cast("list[Document]", document["levels"])
    tokens = [cast(Document, level["tokens"])["completion"] for level in levels]
    assert len(levels) == 4 and len(set(tokens)) == 1
    ours, base = cast("list[Document]", document["figures"])
    assert base["tau"] is None and ours["tau"] is not None
    assert cast(float, ours["speedup"]) > 0 and base["speedup"] == 1
    for level in levels:
        told = sources_of(level).get("llamacpp: counters", {})
        assert bool(told.get("steps")) == (level["lane"] == "endpoint")
