"""`blockdraft launch`: flags, words and exit codes, with an engine that a script stands in for."""

import json
import socket
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest

from blockdraft.cli import launch
from blockdraft.cli.launch_flags import ENGINE_TITLES
from blockdraft.errors import CheckpointError, ConfigError, EngineFault
from blockdraft.launch import ENGINES

FAKE_VLLM = """#!{python}
import http.server, json, os, signal, sys

port = int(sys.argv[sys.argv.index("--port") + 1])
signal.signal(signal.SIGTERM, lambda signum, frame: os._exit(5))
if "--die" in sys.argv:
    sys.exit("RuntimeError: out of memory")

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({{"data": [{{"id": sys.argv[2]}}]}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if self.path == "/v1/models":  # asked once it is healthy
            os.kill(os.getppid(), signal.SIGTERM)

print("serving", flush=True)
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def parsed(*argv: str) -> Namespace:
    parser = ArgumentParser()
    launch.add_arguments(parser)
    return parser.parse_args(argv)


def run(*argv: str) -> int:
    return launch.run(parsed(*argv))


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    target, drafter = tmp_path / "t", tmp_path / "d"
    target.mkdir()
    drafter.mkdir()
    (target / "config.json").write_text('{"num_attention_heads": 8}', encoding="utf-8")
    (drafter / "config.json").write_text(
        '{"architectures": ["DFlashDraftModel"], "block_size": 8}', encoding="utf-8"
    )
    return ["--target", str(target), "--drafter", str(drafter)]


@pytest.fixture
def venv(tmp_path: Path) -> list[str]:
    """An environment whose vllm is a script."""
    program = tmp_path / "venv" / "bin" / "vllm"
    program.parent.mkdir(parents=True)
    program.write_text(FAKE_VLLM.format(python=sys.executable), encoding="utf-8")
    program.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    return ["--venv", str(program.parents[1]), "--port", str(port), "--device", "cuda"]


def test_every_engine_is_a_subcommand() -> None:
    """They are named twice, so that `blockdraft --help` need not import them."""
    assert {name: engine.title for name, engine in ENGINES.items()} == ENGINE_TITLES


def test_print(pair: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--device", "cuda", "--print", "--block-size", "4", "--", "--seed", "1", "word")
    assert run("vllm", *pair, *flags) == 0
    told = capsys.readouterr()
    drafter = pair[3]
    assert told.out == (
        f"vllm serve {pair[1]} \\\n"
        f'    --speculative-config \'{{"method": "dflash", "model": "{drafter}", '
        '"num_speculative_tokens": 3}\' \\\n'
        "    --host 127.0.0.1 \\\n"
        "    --port 8000 \\\n"
        "    --seed 1 word\n"
    )
    assert (
        told.err
        == "note: blocks of 4 instead of the trained 8: cheaper steps, of at most 4 tokens\n"
    )


def test_print_as_json(pair: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("trtllm", *pair, "--print", "--json", "--tensor-parallel", "2") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["command"][-2:] == ["--tp_size", "2"]
    assert "max_draft_len: 7" in document["files"]["trtllm.yaml"]


def test_a_gpu_engine_can_be_printed_anywhere(
    pair: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blockdraft.launch.found_device", lambda: "cpu")
    assert run("sglang", *pair, "--print") == 0
    assert "the command is for a machine that has one" in capsys.readouterr().err
    assert run("vllm", *pair, "--print") == 0
    told = capsys.readouterr()
    assert "add --device cuda" in told.err and "--enforce-eager" in told.out
    with pytest.raises(ConfigError, match="CUDA, NPU or XPU devices only"):
        run("sglang", *pair)


def test_it_runs_until_it_is_told_to_end(
    pair: list[str], venv: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """It is sent SIGTERM, by its own child, once it is ready; the exit code is the engine's."""
    assert run("vllm", *pair, *venv) == 5
    told = capfd.readouterr()
    url = f"http://127.0.0.1:{venv[3]}"
    assert told.out == (
        f"vLLM is ready at {url}\nblockdraft bench --endpoint {url} --model {pair[1]}\n"
    )
    assert told.err.startswith("starting vLLM; it has 600 s to get ready (--timeout)\n")
    assert "serving\n" in told.err


def test_an_engine_that_dies_early(pair: list[str], venv: list[str]) -> None:
    with pytest.raises(EngineFault, match="its last lines: RuntimeError: out of memory"):
        run("vllm", *pair, *venv, "--", "--die")


def test_mistakes(pair: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="vllm is not on the PATH: pip install"):
        run("vllm", *pair, "--device", "cuda")
    with pytest.raises(ConfigError, match="trtllm-serve is not on the PATH: install"):
        run("trtllm", *pair, "--device", "cuda")
    with pytest.raises(ConfigError, match="--json goes with --print"):
        run("vllm", *pair, "--json")
    with pytest.raises(CheckpointError, match="is a DFlash drafter, not a target"):
        run("vllm", "--target", pair[3], "--drafter", pair[3])


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["ollama"],
        ["vllm", "--target", "t"],
        ["vllm", "--target", "t", "--drafter", "d", "--timeout", "0"],
        ["vllm", "--target", "t", "--drafter", "d", "--dtype", "float8"],
        ["vllm", "--target", "t", "--drafter", "d", "--unknown", "1"],
    ],
)
def test_mistakes_of_arguments_are_argparses(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        parsed(*argv)
    assert "error: " in capsys.readouterr().err
