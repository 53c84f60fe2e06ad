"""Tests of `Peer` against workers that answer, refuse, crash and hang."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import environments
from blockdraft import SamplingParams, generate, load_drafter
from blockdraft.target.hf import HFTarget
from blockdraft.testing.tiny import tiny_model
from peers import PEERS, Peer, PeerError, PeerSetup

STUB = """
import os, signal, sys, time
sys.path.insert(0, os.getcwd())
from workers.protocol import Answer, Loaded, serve

def load(settings):
    if settings.dtype == "unloadable":
        raise OSError("no such model")
    notes = (settings.mode, settings.model, os.environ["OMP_NUM_THREADS"])
    return Loaded(versions={"toy": "1"}, notes=notes, answer=answer)

def answer(request):
    sys.stderr.write("last words\\n")
    match request.prompt_ids[0]:
        case 1: raise ValueError("refused")
        case 2: os.kill(os.getpid(), signal.SIGKILL)
        case 3: time.sleep(60)
    return Answer(token_ids=request.prompt_ids, seconds=0.25, steps=1)

serve(load)
"""

Environment = Callable[[str], Path]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """Makes a folder with a complete environment `hf`, whose interpreter runs a shell command."""

    def make(command: str) -> Path:
        python = environments.python_of(tmp_path, "hf")
        python.parent.mkdir(parents=True)
        python.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
        python.chmod(0o755)
        (tmp_path / "hf" / environments.COMPLETE_NAME).write_text(
            environments.pins_digest("hf"), encoding="ascii"
        )
        return tmp_path

    return make


@pytest.fixture
def stub(environment: Environment, tmp_path: Path) -> Path:
    (tmp_path / "stub.py").write_text(STUB, encoding="utf-8")
    return environment(f'exec "{sys.executable}" "{tmp_path / "stub.py"}"')


def setup(model: Path, dtype: str = "float32") -> PeerSetup:
    return PeerSetup(model=model, dtype=dtype, threads=1)


def test_peer_answers_and_survives_a_refusal(stub: Path) -> None:
    with Peer("hf", stub, setup(stub)) as peer:
        assert dict(peer.versions) == {"toy": "1"}
        assert peer.notes == ("plain", str(stub), "1")
        result = peer.run([5, 6, 7], 8, [6])
        assert (result.token_ids, result.seconds, result.tau) == ((5, 6), 0.25, 1.0)
        assert result.peak_memory_bytes > 0
        with pytest.raises(PeerError, match=r"^hf: ValueError: refused$"):
            peer.run([1], 8, [])
        assert peer.run([9], 8, []).token_ids == (9,)


def test_crash_tells_the_signal_and_the_last_words(stub: Path) -> None:
    peer = Peer("hf", stub, setup(stub))
    with pytest.raises(PeerError, match=r"SIGKILL; its last words: last words$"):
        peer.run([2], 8, [])
    with pytest.raises(PeerError, match=r"^hf: closed$"):
        peer.run([5], 8, [])
    peer.close()


def test_hanging_worker_is_ended(stub: Path) -> None:
    peer = Peer("hf", stub, setup(stub))
    with pytest.raises(PeerError, match=r"no answer within 0.2 s; its last words: last words$"):
        peer.run([3], 8, [], timeout_s=0.2)
    with pytest.raises(PeerError, match="closed"):
        peer.run([5], 8, [])


def test_load_failure_and_silent_end_are_errors(stub: Path) -> None:
    with pytest.raises(PeerError, match=r"^hf: .*no such model$"):
        Peer("hf", stub, setup(stub, "unloadable"))


def test_interpreter_that_fails_is_an_error(environment: Environment, tmp_path: Path) -> None:
    envs = environment("exit 3")
    with pytest.raises(PeerError, match=r"^hf: ended with status 3$"):
        Peer("hf", envs, setup(tmp_path))


def test_missing_environment_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"environments.py --envs"):
        Peer("vllm-dflash", tmp_path, setup(tmp_path))
    with pytest.raises(PeerError, match="choose from hf, hf-lookup"):
        Peer("unknown", tmp_path, setup(tmp_path))


def test_every_peer_has_pins_and_a_worker() -> None:
    names = {environment.name for environment in environments.ENVIRONMENTS}
    assert {spec.environment for spec in PEERS.values()} == names
    for spec in PEERS.values():
        assert (environments.PINS / f"{spec.environment}.txt").is_file()
        assert (environments.PINS.parent / "workers" / f"{spec.worker}.py").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hf", "hf-lookup"])
def test_hf_worker_agrees_with_the_reference_decoder(
    environment: Environment, tmp_path: Path, name: str
) -> None:
    model = tiny_model("llama", dtype=torch.float32)
    model.save_pretrained(tmp_path / "model")
    target = HFTarget(model, name="tiny")
    params = SamplingParams(max_new_tokens=12, stop_ids=(2, 3))
    prompt_ids = [5, 9, 5, 9, 5]
    expected = generate(target, load_drafter("none", target), prompt_ids, params)
    envs = environment(f'exec "{sys.executable}" "$@"')
    with Peer(name, envs, setup(tmp_path / "model")) as peer:
        assert peer.run(prompt_ids, 12, [2, 3]).token_ids == expected.token_ids
