"""`blockdraft bench` as it is called: documents, tables, exit codes and lines for mistakes."""

import json
import os
import signal
import threading
import time
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from scripted_engine import ScriptedEngine, steps_of

from blockdraft.bench.latency import quantile
from blockdraft.cli import bench_endpoint, workload_args
from blockdraft.cli.signals import ended_by_sigterm
from blockdraft.errors import ConfigError

Start = Callable[[str], ScriptedEngine]
Capture = pytest.CaptureFixture[str]
Document = dict[str, object]


def make_parser() -> ArgumentParser:
    """The arguments of the command that an endpoint's bench reads."""
    parser = ArgumentParser()
    bench_endpoint.add_endpoint_args(parser)
    workload_args.add_workload_args(parser)
    workload_args.add_load_args(parser)
    workload_args.add_request_args(parser)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--json", action="store_true")
    return parser


def run(engine: ScriptedEngine, *argv: str) -> int:
    args = make_parser().parse_args(["--endpoint", engine.url, *argv])
    return bench_endpoint.run_endpoint(args)


def levels_of(text: str) -> list[Document]:
    document = cast(Document, json.loads(text))
    assert (document["schema"], document["version"]) == ("blockdraft.bench", 2)
    return cast("list[Document]", document["levels"])


def test_the_document_can_be_recomputed_from_its_records(
    start: Start, prompts: Path, tmp_path: Path, capsys: Capture
) -> None:
    engine = start("blockdraft")
    engine.delay = 0.002
    out = tmp_path / "out"
    argv = ("--prompts", str(prompts), "--concurrency", "1", "3", "--out", str(out), "--json")
    assert run(engine, *argv) == 0
    printed = capsys.readouterr()
    assert "1 at once: 7 requests, 0 failed" in printed.err
    assert (out / "results.json").read_text() == printed.out
    assert "<html" in (out / "report.html").read_text(), "the page for people"
    one, three = levels_of(printed.out)
    assert one["arrival"] == {"concurrency": 1, "rate": None} != three["arrival"]
    for level in (one, three):
        records = cast("list[dict[str, float]]", level["records"])
        seconds = max(r["end_s"] for r in records) - min(r["sent_s"] for r in records)
        tokens = sum(1 + len(s) + sum(s) for n in range(7) if (s := steps_of(f"question {n}")))
        throughput = cast("dict[str, float]", level["throughput"])
        assert level["seconds"] == pytest.approx(seconds)
        assert throughput["tokens_per_second"] == pytest.approx(tokens / seconds)
        latency = cast("dict[str, dict[str, float]]", level["latency"])
        first = sorted(r["first_s"] - r["sent_s"] for r in records)
        assert latency["first_token_seconds"]["p90"] == pytest.approx(quantile(first, 0.9))
        whole = sorted(r["end_s"] - r["sent_s"] for r in records)
        assert latency["end_to_end_seconds"]["p99"] == pytest.approx(quantile(whole, 0.99))
        steps = [kept for n in range(7) for kept in steps_of(f"question {n}")]
        acceptance = cast("dict[str, float]", level["acceptance"])
        assert acceptance["tau"] == pytest.approx(1 + sum(steps) / len(steps))
        low, high = cast("tuple[float, float]", acceptance["tau_interval"])
        assert low < acceptance["tau"] < high
        assert acceptance["reason"] is None and acceptance["warnings"] == []


def test_tables(start: Start, prompts: Path, capsys: Capture) -> None:
    assert run(start("vllm"), "--prompts", str(prompts), "--rate", "200") == 0
    printed = capsys.readouterr()
    steps = [kept for n in range(7) for kept in steps_of(f"question {n}")]
    tau = f"{1 + sum(steps) / len(steps):.3f}"
    assert printed.out.count(tau) == 2 and "200 a second" in printed.out
    assert "vllm: counters: tau is 1 + accepted / verifications with a draft" in printed.out
    assert "accepted at draft 1, 2, .. (200 a second): 0." in printed.out


def test_what_is_not_there_is_na_with_its_reason(
    start: Start, prompts: Path, capsys: Capture
) -> None:
    engine = start("plain")
    engine.tells_usage = False
    assert run(engine, "--prompts", str(prompts), "--limit", "1") == 0
    printed = capsys.readouterr()
    assert printed.out.count("n/a") >= 5
    assert "tau is n/a: the answers carry no counts of drafts, and http" in printed.err
    assert "/metrics has status 404" in printed.err
    assert "tok/s is n/a: the endpoint counts no tokens (usage)" in printed.err
    assert "2 requests of 1 prompts" in printed.err


def test_a_dead_server_leaves_a_part_and_code_1(
    start: Start, prompts: Path, tmp_path: Path, capsys: Capture
) -> None:
    engine = start("llamacpp")
    engine.requests_until_death = 3
    argv = ("--prompts", str(prompts), "--out", str(tmp_path), "--concurrency", "1", "2")
    assert run(engine, *argv) == 1
    printed = capsys.readouterr()
    assert "stopped after 4 of 7 requests (1 at once): ConnectError" in printed.err
    text = (tmp_path / "results.json").read_text()
    document = cast(Document, json.loads(text))
    assert document["complete"] is False
    (level,) = levels_of(text)
    requests = cast(Document, level["requests"])
    assert (requests["planned"], requests["answered"], requests["failed"]) == (7, 2, 2)
    assert cast(Document, level["acceptance"])["source"] == "timings"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "prompts.jsonl") == [
        "report.html",
        "results.json",
    ]


def test_failed_requests_are_counted_and_code_1(
    start: Start, prompts: Path, capsys: Capture
) -> None:
    engine = start("vllm")
    engine.context = 60
    with prompts.open("a") as file:
        file.write('{"id": "long", "prompt": "' + "x" * 61 + '"}\n')
    assert run(engine, "--prompts", str(prompts)) == 1
    printed = capsys.readouterr()
    assert "prompt too long: long: status 400: This model's maximum context" in printed.err
    assert "8 requests, 1 failed" in printed.err


@pytest.mark.parametrize(
    ("number", "ends"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_an_interrupt_keeps_what_there_is(
    start: Start,
    prompts: Path,
    tmp_path: Path,
    capsys: Capture,
    number: signal.Signals,
    ends: type[BaseException],
) -> None:
    engine = start("vllm")
    engine.delay = 0.05

    def interrupt() -> None:
        while len(engine.bodies) < 4:
            time.sleep(0.005)
        os.kill(os.getpid(), number)

    threading.Thread(target=interrupt).start()
    with pytest.raises(ends), ended_by_sigterm():
        run(engine, "--prompts", str(prompts), "--out", str(tmp_path))
    told = capsys.readouterr().err.splitlines()[-1]
    assert "requests were answered and are kept" in told and f"report {tmp_path}`" in told
    (level,) = levels_of((tmp_path / "results.json").read_text())
    assert level["complete"] is False and len(cast("list[object]", level["records"])) >= 2
    assert cast(Document, level["acceptance"])["source"] == "metrics.speculative_decoding"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no prompts"),
        ('{"turns": ["a"]}\n{"turns": "a"}\n', 'line 2: "turns" must be a list'),
        ('{"turns": ["a"]}\n\nnot json\n', "line 3: not JSON"),
        ('{"question": "a"}\n', "line 1: has no prompt; one of these is needed"),
        ('{"prompt": "a", "prompt_ids": [1]}\n', "line 1: has prompt and prompt_ids"),
        ('{"prompt": " "}\n', 'line 1: "prompt" is blank'),
    ],
)
def test_bad_workloads(start: Start, tmp_path: Path, text: str, message: str) -> None:
    engine = start("vllm")
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        run(engine, "--prompts", str(path))
    assert engine.bodies == []


def test_mistakes_are_one_line(
    start: Start, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start("vllm")
    file = ("--prompts", str(prompts))
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    cases = [
        (("--prompts", str(tmp_path / "none")), "can't read prompts"),
        ((*file, "--api-key-env", "NO_SUCH_KEY"), "that variable holds no key"),
        ((*file, "--timeout", "0"), "--timeout is 0"),
        ((*file, "--rate", "-1"), "--rate is -1"),
        ((*file, "--temperature", "-1"), "--temperature is -1"),
        ((*file, "--warmup", "-1"), "--warmup is -1"),
        ((*file, "--raw", "--template-arg", "a=1"), "drop --template-arg"),
        ((*file, "--out", str(prompts)), "can't make --out"),
        ((*file, "--raw", "--thinking", "on"), "drop --thinking"),
        ((*file, "--thinking", "on", "--template-arg", "enable_thinking=1"), "give one of them"),
        ((*file, "--arrivals", "logged"), 'line 1: no "timestamp" or "created"'),
        ((*file, "--arrivals", "logged", "--requests", "3"), "drop --requests"),
        (("--workload", "maths"), "no workload is called 'maths'"),
        ((*file, "--column", "question"), "--column names a column"),
        ((*file, "--split", "test"), "choose a part of a --dataset"),
    ]
    for argv, message in cases:
        with pytest.raises(ConfigError, match=message) as caught:
            run(engine, *argv)
        assert "\n" not in str(caught.value)
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(ConfigError, match="of an earlier run"):
        run(engine, *file, "--out", str(tmp_path))
    assert engine.bodies == []


def test_keys_that_ask_nothing_are_told(start: Start, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text('{"prompt": "a", "answer": "4"}\n{"prompt": "b", "id": "x", "level": 9}\n')
    assert run(start("vllm"), "--prompts", str(path), "--json") == 0
    printed = capsys.readouterr()
    assert f"note: {path}: ignored keys: answer, level" in printed.err
    document = cast(Document, json.loads(printed.out))
    assert cast(Document, document["workload"])["ignored_keys"] == ["answer", "level"]


def test_logged_requests_are_sent_as_they_were(
    start: Start, tmp_path: Path, capsys: Capture
) -> None:
    """At their times, with their own settings; what the command says itself counts more."""
    path = tmp_path / "log.jsonl"
    rows = [
        {
            "custom_id": f"r{n}",
            "created": 1000 + at,
            "body": {
                "model": "theirs",
                "messages": [{"role": "user", "content": f"question {n}"}],
                "max_tokens": 10 + n,
                "temperature": 0.5,
                "magic": 1,
            },
        }
        for n, at in enumerate((0.0, 0.3, 0.1))
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    engine = start("vllm")
    argv = ["--prompts", str(path), "--arrivals", "logged", "--temperature", "0"]
    with pytest.raises(ConfigError, match=r"line 1: the field 'magic' .*--ignore-fields magic"):
        run(engine, *argv)
    assert engine.bodies == []
    argv += ["--ignore-fields", "magic", "--thinking", "off", "--json"]
    assert run(engine, *argv) == 0
    printed = capsys.readouterr()
    assert "ignored keys: magic" in printed.err and "as logged, 6.67/s: 3 requests" in printed.err
    asked = engine.bodies[1:]
    assert [body["max_tokens"] for body in asked] == [10, 12, 11]
    assert [body["temperature"] for body in asked] == [0.0] * 3
    assert all(body["chat_template_kwargs"] == {"enable_thinking": False} for body in asked)
    document = cast(Document, json.loads(printed.out))
    assert cast(Document, document["settings"])["arrivals"] == "logged"
    (level,) = levels_of(printed.out)
    records = cast("list[dict[str, float]]", level["records"])
    assert [record["id"] for record in records] == ["r0", "r2", "r1"]
    for record, at in zip(records, (0.0, 0.1, 0.3), strict=True):
        assert at - 0.02 <= record["sent_s"] <= at + 0.25
    assert run(engine, *argv, "--max-tokens", "5") == 0
    assert {body["max_tokens"] for body in engine.bodies[5:]} == {5}


def test_a_full_disk_ends_nothing(
    start: Start,
    prompts: Path,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_endpoint, "SECONDS_BETWEEN_WRITES", 0.0)
    engine = start("vllm")
    out = tmp_path / "out"
    # A folder in the file's place, made once the run has begun: nothing can replace it.
    begin = engine.begin

    def begin_and_block(body: dict[str, object]) -> bool:
        (out / "results.json").mkdir(exist_ok=True)
        return begin(body)

    monkeypatch.setattr(engine, "begin", begin_and_block)
    assert run(engine, "--prompts", str(prompts), "--out", str(out)) == 1
    printed = capsys.readouterr()
    assert "7 requests, 0 failed" in printed.err and "can't write" in printed.err
    assert "1 at once" in printed.out


def test_httpx_is_asked_for(start: Start, prompts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(name: str) -> None:
        pass

    monkeypatch.setattr("blockdraft.bench.run.find_spec", find_nothing)
    with pytest.raises(ConfigError, match=r"pip install 'blockdraft\[bench\]'"):
        run(start("vllm"), "--prompts", str(prompts))


def test_a_key_is_sent_and_shown_nowhere(
    start: Start, prompts: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    engine = start("vllm")
    engine.key = "sesame-1234"
    monkeypatch.setenv("MY_KEY", "sesame-1234")
    assert run(engine, "--prompts", str(prompts), "--api-key-env", "MY_KEY", "--json") == 0
    printed = capsys.readouterr()
    assert "sesame" not in printed.out + printed.err
    monkeypatch.setenv("MY_KEY", "wrong")
    with pytest.raises(ConfigError, match="refuses the key"):
        run(engine, "--prompts", str(prompts), "--api-key-env", "MY_KEY")


@pytest.mark.parametrize(
    "lies",
    [
        {"usage": {"prompt_tokens": 10**400, "completion_tokens": 1e308}},
        {"usage": {"prompt_tokens": -5, "completion_tokens": 0}},
        {"timings": {"draft_n": 1, "draft_n_accepted": 900}},
        {
            "metrics": {
                "speculative_decoding": {
                    "num_spec_steps": 0,
                    "num_draft_tokens": 3,
                    "num_accepted_draft_tokens": 7,
                    "acceptance_histogram": [10**400, 1],
                }
            }
        },
        {"choices": [{"meta_info": {"spec_verify_ct": 2, "spec_accept_length": -1e300}}]},
    ],
)
def test_an_endpoint_that_lies_ends_nothing(
    start: Start, prompts: Path, tmp_path: Path, capsys: Capture, lies: Document
) -> None:
    engine = start("plain")
    engine.lies = lies
    argv = ("--prompts", str(prompts), "--limit", "2", "--out", str(tmp_path), "--json")
    assert run(engine, *argv) == 0
    (level,) = levels_of(capsys.readouterr().out)
    assert cast(Document, level["requests"])["answered"] == 2
    assert (tmp_path / "report.html").exists()


def test_the_command_is_kept_without_secrets(
    start: Start, prompts: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    engine = start("vllm")
    address = engine.url.replace("://", "://user:sesame@")
    argv = ["--endpoint", address, "--prompts", str(prompts), "--limit", "2", "--json"]
    monkeypatch.setattr("sys.argv", ["/some/where/blockdraft", "bench", *argv])
    assert bench_endpoint.run_endpoint(make_parser().parse_args(argv)) == 0
    printed = capsys.readouterr()
    assert "sesame" not in printed.out + printed.err
    conditions = cast(Document, json.loads(printed.out)["conditions"])
    shown = engine.url.replace("://", "://***@")
    assert conditions["url"] == shown
    assert conditions["command"] == (
        f"blockdraft bench --endpoint '{shown}' --prompts {prompts} --limit 2 --json"
    )


def key_paths(value: object, path: str = "") -> list[str]:
    """Every key with the keys around it, in order; of a list, those of its first entry."""
    if isinstance(value, list):
        entries = cast("list[object]", value)
        return key_paths(entries[0], f"{path}[]") if entries else []
    if not isinstance(value, dict):
        return []
    found: list[str] = []
    for key, inner in cast(Document, value).items():
        found += [f"{path}.{key}", *key_paths(inner, f"{path}.{key}")]
    return found


def test_the_document_is_the_documented_one(start: Start, prompts: Path, capsys: Capture) -> None:
    page = (Path(__file__).parents[3] / "docs" / "bench.md").read_text()
    block = page.split("## JSON: bench\n")[1].split("```json\n")[1].split("```\n")[0]
    engine = start("blockdraft")
    engine.context = 60
    with prompts.open("a") as file:
        file.write('{"id": "long", "prompt": "' + "x" * 61 + '"}\n')
    assert run(engine, "--prompts", str(prompts), "--json") == 1
    told, written = json.loads(capsys.readouterr().out), json.loads(block)
    for document in (told, written):
        assert document["answers"][0].pop("figures")  # each question has its own
    assert key_paths(told) == key_paths(written)
