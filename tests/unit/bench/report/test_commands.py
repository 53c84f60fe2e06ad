"""`blockdraft report` as it is called, and the tables that `blockdraft bench` prints."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import cast

import pytest
from sample_bench import Document, make_document, make_endpoint_document, parts, set_speedups

from blockdraft.cli import report
from blockdraft.cli.bench_report import print_bench
from blockdraft.errors import ConfigError

Capture = pytest.CaptureFixture[str]


def run(*argv: str) -> int:
    parser = ArgumentParser()
    report.add_arguments(parser)
    return report.run(parser.parse_args(argv))


def save(folder: Path, name: str, document: Document) -> str:
    path = folder / name / "results.json"
    path.parent.mkdir()
    path.write_text(json.dumps(document))
    return str(path)


@pytest.fixture
def before(tmp_path: Path) -> str:
    return save(tmp_path, "before", make_document((1,), ("plain", "dflash auto")))


@pytest.fixture
def slower(tmp_path: Path) -> str:
    document = make_document((1,), ("plain", "dflash auto"))
    set_speedups(document, "dflash auto", 1.3)
    return save(tmp_path, "slower", document)


@pytest.mark.usefixtures("no_plots")
def test_one_file(before: str, tmp_path: Path, capsys: Capture) -> None:
    assert run(before) == 0
    printed = capsys.readouterr()
    page = tmp_path / "before" / "report.html"
    assert f"the page is {page}" in printed.err
    assert page.read_text().startswith("<!doctype html>")
    assert printed.out.startswith("yes      1. Is the mean acceptance length long enough?\n")
    assert printed.out.count("\n   ") >= 5


@pytest.mark.usefixtures("no_plots")
def test_one_folder_with_out_and_json(before: str, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "page.html"
    assert run(str(Path(before).parent), "--out", str(out), "--json") == 0
    told = cast(Document, json.loads(capsys.readouterr().out))
    assert told["page"] == str(out) and out.exists()
    assert [answer["question"] for answer in parts(told, "answers")] == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("no_plots")
def test_an_interrupted_run(tmp_path: Path, capsys: Capture) -> None:
    document = make_document((1,), ("plain",))
    document.update(complete=False, figures=[])
    assert run(save(tmp_path, "part", document)) == 0
    printed = capsys.readouterr()
    assert "not measured to its end" in printed.err
    assert printed.out.count("unknown  ") == 4


def test_two_files(before: str, slower: str, capsys: Capture) -> None:
    assert run(before, slower) == 0
    printed = capsys.readouterr().out
    assert "1 regression\n  dflash auto, 1 at once: speed-up 1.60 -> 1.30 (-18.8%)" in printed
    assert "0 improvements" in printed and "-18.8%!" in printed
    assert run(before, slower, "--fail-on-regression") == 1
    assert run(slower, before, "--fail-on-regression") == 0
    assert "+23.1%*" in capsys.readouterr().out


def test_two_files_as_json(before: str, slower: str, capsys: Capture) -> None:
    assert run(before, slower, "--json", "--fail-on-regression") == 1
    told = cast(Document, json.loads(capsys.readouterr().out))
    assert (told["regressions"], told["improvements"]) == (1, 0)
    worse = [row for row in parts(told, "rows") if row["change"] == "worse"]
    assert [(row["lane"], row["measure"], row["before"]) for row in worse] == [
        ("dflash auto", "speed-up", 1.6)
    ]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("a", "b", "c"), "3 files were given"),
        (("a", "--fail-on-regression"), "give the second FILE"),
        (("a", "b", "--out", "c"), "--out writes the page of one run"),
        (("missing.json",), "can't read missing.json"),
    ],
)
def test_mistakes(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(*argv)


def test_tables_of_a_bench_in_process(capsys: Capture) -> None:
    print_bench(make_document())
    printed = capsys.readouterr().out
    assert printed.startswith("yes      1.")
    for title in ("throughput", "latency in ms", "acceptance"):
        assert title in printed
    assert "acceptance by source" not in printed
    assert "  8 at once" in printed and "1.57 to 1.63" in printed
    assert "accepted at draft 1, 2, .. (dflash fixed:4, 1 at once): 0.5" in printed


def test_tables_of_a_bench_of_an_endpoint(capsys: Capture) -> None:
    document = make_endpoint_document(has_baseline=False)
    level = parts(document, "levels")[0]
    cast(Document, level["requests"]).update(answered=19, failed=1)
    cast(Document, level["acceptance"])["sources"] = [
        {
            "name": "metrics.speculative_decoding",
            "definition": "1 + accepted / verifications with a draft",
            "tau": 2.3125,
            "tau_interval": [2.2, 2.4],
            "accepted": 21,
            "drafted": 48,
            "steps": 16,
            "acceptance_rate": 0.4375,
            "by_position": [0.75, 0.5625],
        }
    ]
    print_bench(document)
    printed = capsys.readouterr().out
    assert "19, 1 failed" in printed
    assert "  speculative_decoding" in printed and "2.312" in printed
    assert "metrics.speculative_decoding: tau is 1 + accepted / verifications" in printed
    assert "accepted at draft 1, 2, .. (1 at once): 0.75 0.56" in printed
