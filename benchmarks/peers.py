"""`Peer`: another system in its own process and environment that answers one request at a time.

It measures nothing itself (workers do) and neither chooses prompts nor order.
"""

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import IO, Self, TypedDict, cast

import environments
from workers.protocol import Request, Settings, request_line, settings_line

WORKERS = Path(__file__).parent
START_TIMEOUT_S = 600.0
REQUEST_TIMEOUT_S = 600.0
LOG_TAIL_BYTES = 2000


class PeerError(Exception):
    """A peer can't start, refused a request, ended or took too long; one line, with its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSpec:
    """How a peer is run: environment, worker module, the worker's mode.

    `preload` is a shared library, relative to the environment, that the peer's own guide wants in
    LD_PRELOAD for best performance; `variables` are environment variables, likewise.
    """

    environment: str
    worker: str
    mode: str
    preload: str | None = None
    variables: tuple[tuple[str, str], ...] = ()


def _vllm(mode: str) -> PeerSpec:
    # Its guide recommends Intel's OpenMP, and a short wait, so that it does not burn idle cores.
    return PeerSpec(
        environment="vllm",
        worker="vllm_cpu",
        mode=mode,
        preload="lib/libiomp5.so",
        variables=(("KMP_BLOCKTIME", "1"),),
    )


PEERS: Mapping[str, PeerSpec] = MappingProxyType(
    {
        "hf": PeerSpec(environment="hf", worker="hf", mode="plain"),
        "hf-lookup": PeerSpec(environment="hf", worker="hf", mode="lookup"),
        "dflash": PeerSpec(environment="dflash", worker="dflash_reference", mode="dflash"),
        "llamacpp": PeerSpec(environment="llamacpp", worker="llamacpp", mode="plain"),
        "llamacpp-dflash": PeerSpec(environment="llamacpp", worker="llamacpp", mode="dflash"),
        "vllm": _vllm("plain"),
        "vllm-compiled": _vllm("plain-compiled"),
        "vllm-dflash": _vllm("dflash"),
        "vllm-dflash-compiled": _vllm("dflash-compiled"),
        "openvino": PeerSpec(environment="openvino", worker="openvino_pipeline", mode="plain"),
        "openvino-dflash": PeerSpec(
            environment="openvino", worker="openvino_pipeline", mode="dflash"
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSetup:
    """What a peer loads.

    `model` and `drafter` are Hugging Face folders, for llama.cpp GGUF files (`dtype` is then the
    file's), for OpenVINO what `optimum-cli` made of the folders. Peers without drafting take no
    `drafter`. `draft_len`: drafts a step, None for the peer's default. `context_len` bounds prompt
    plus answer, in tokens.
    """

    model: Path
    dtype: str
    threads: int
    drafter: Path | None = None
    draft_len: int | None = None
    context_len: int = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerResult:
    """One answer.

    `token_ids` end with the stop token, if one came. `seconds` run from request start to last
    token, prefill inside. `steps` are target passes after the prefill; `tau` is
    (tokens - 1) / steps; None where the peer does not tell or made no step. `peak_memory_bytes` is
    the process's largest resident size so far, loading included.
    """

    token_ids: tuple[int, ...]
    seconds: float
    steps: int | None
    tau: float | None
    peak_memory_bytes: int


class Peer:
    """A running worker. It idles between requests, and ends with `close` or the `with` block.

    Raises PeerError when the environment is missing or the peer can't load within `timeout_s`.
    """

    def __init__(
        self, name: str, envs: Path, setup: PeerSetup, *, timeout_s: float = START_TIMEOUT_S
    ) -> None:
        spec = _spec(name)
        if not environments.is_complete(envs, spec.environment):
            raise PeerError(
                f"{name}: no complete environment {envs / spec.environment}: run "
                f"`python benchmarks/environments.py --envs {envs} {spec.environment}`"
            )
        self.name = name
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        self._process = _start(spec, envs.absolute(), setup, self._log)
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read_lines, daemon=True)
        self._reader.start()
        try:
            self._send(settings_line(_settings(spec, setup)))
            ready = cast(_Ready, self._receive(timeout_s))
        except BaseException:
            self.close()
            raise
        self.versions: Mapping[str, str] = MappingProxyType(ready["versions"])
        self.notes: tuple[str, ...] = tuple(ready["notes"])

    def run(
        self,
        prompt_ids: Sequence[int],
        max_new_tokens: int,
        stop_ids: Sequence[int],
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> PeerResult:
        """Answer one prompt, greedily.

        Raises PeerError; after a time-out or a crash, though not after a refusal, the peer is
        closed and every further call raises.
        """
        request = Request(
            prompt_ids=tuple(prompt_ids), max_new_tokens=max_new_tokens, stop_ids=tuple(stop_ids)
        )
        self._send(request_line(request))
        reply = cast(_Reply, self._receive(timeout_s))
        return PeerResult(
            token_ids=tuple(reply["token_ids"]),
            seconds=reply["seconds"],
            steps=reply["steps"],
            tau=reply["tau"],
            peak_memory_bytes=reply["peak_memory_bytes"],
        )

    def close(self) -> None:
        """End the worker and its children; harmless when they have ended."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)  # its group is its own
            self._process.wait()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._reader.join()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _read_lines(self) -> None:
        """In a thread of its own: everything the worker says, then "" when it has ended."""
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put("")

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise self._ended() from error

    def _receive(self, timeout_s: float) -> dict[str, object]:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty as error:
            problem = PeerError(f"{self.name}: no answer within {timeout_s:g} s{self._log_tail()}")
            self.close()
            raise problem from error
        if not line:
            raise self._ended()
        reply = cast(dict[str, object], json.loads(line))
        if "error" in reply:
            raise PeerError(f"{self.name}: {reply['error']}")
        return reply

    def _ended(self) -> PeerError:
        """Why the worker is gone, with its last words; closes what is left."""
        if self._log.closed:
            return PeerError(f"{self.name}: closed")
        status = self._process.wait()
        cause = f"status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
        problem = PeerError(f"{self.name}: ended with {cause}{self._log_tail()}")
        self.close()
        return problem

    def _log_tail(self) -> str:
        end = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, end - LOG_TAIL_BYTES))
        lines = self._log.read().decode("utf-8", errors="replace").split("\n")
        last = [line.strip() for line in lines if line.strip()][-3:]
        return f"; its last words: {' | '.join(last)}" if last else ""


class _Ready(TypedDict):
    versions: dict[str, str]
    notes: list[str]


class _Reply(TypedDict):
    token_ids: list[int]
    seconds: float
    steps: int | None
    tau: float | None
    peak_memory_bytes: int


def _spec(name: str) -> PeerSpec:
    if name not in PEERS:
        raise PeerError(f"no peer {name!r}: choose from {', '.join(PEERS)}")
    return PEERS[name]


def _settings(spec: PeerSpec, setup: PeerSetup) -> Settings:
    return Settings(
        mode=spec.mode,
        model=str(setup.model.absolute()),
        dtype=setup.dtype,
        threads=setup.threads,
        drafter=None if setup.drafter is None else str(setup.drafter.absolute()),
        draft_len=setup.draft_len,
        context_len=setup.context_len,
    )


def _start(spec: PeerSpec, envs: Path, setup: PeerSetup, log: IO[bytes]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [environments.python_of(envs, spec.environment), "-m", f"workers.{spec.worker}"],
        cwd=WORKERS,
        env=_variables(spec, envs / spec.environment, setup.threads),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )


def _variables(spec: PeerSpec, environment: Path, threads: int) -> dict[str, str]:
    """The caller's variables, without what would lead Python out of the peer's environment."""
    kept = {key: text for key, text in os.environ.items() if not key.startswith("PYTHON")}
    kept |= {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    if spec.preload is not None:
        kept["LD_PRELOAD"] = str(environment / spec.preload)
    return kept | dict(spec.variables)
