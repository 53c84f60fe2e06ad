"""`CompileProcess`: the process that compiles grammars, seen from the one that decodes.

It starts it, sends jobs and waits a bounded time for each; it keeps no result.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

from blockdraft.errors import ConfigError, RequestError
from blockdraft.structured.compile_request import CompileJob
from blockdraft.structured.frames import OK, READY, receive_frame, send_frame

START_SECONDS = 120.0
STOP_SECONDS = 5.0
GRACE_SECONDS = 5.0
MIB = 2**20

_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from blockdraft.structured.worker import main
main(int(sys.argv[1]))
"""


class CompileProcess:
    """Starts at once, is ready some seconds later, and is started again should it die."""

    def __init__(self, vocabulary_json: str) -> None:
        self._vocabulary = vocabulary_json.encode()
        self._lock = threading.Lock()
        self._closed = False
        self._is_ready = False
        self._start()

    @property
    def process_id(self) -> int:
        return self._process.pid

    def compile(self, job: CompileJob) -> bytes:
        """The serialized grammar; blocks for `job.wall_seconds` at most once it has started.

        Raises RequestError saying why there is none, ConfigError when the process can't run.
        """
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                self._hand_over(theirs)
            started = time.monotonic()
            ours.settimeout(job.wall_seconds + GRACE_SECONDS)
            answer = _exchange(ours, job)
        if answer is None:
            raise RequestError(_why_killed(job, time.monotonic() - started))
        if answer[:1] != OK:
            raise RequestError(_refusal(answer[1:].decode(errors="replace"), job))
        return answer[1:]

    def close(self) -> None:
        """End the process; a compilation that runs fails."""
        with self._lock:
            self._closed = True
            self._stop()

    def _hand_over(self, theirs: socket.socket) -> None:
        with self._lock:
            if self._closed:
                raise ConfigError("the grammar compiler is closed")
            try:
                self._send(theirs)
            except OSError:  # it died, for want of memory say: one more try with a new one
                self._stop()
                self._start()
                self._send(theirs)

    def _send(self, theirs: socket.socket) -> None:
        if not self._is_ready:
            self._wait_until_ready()
        socket.send_fds(self._control, [b"j"], [theirs.fileno()])

    def _start(self) -> None:
        self._control, theirs = socket.socketpair()
        self._is_ready = False
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), json.dumps(sys.path)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},  # it needs no GPU
            )
        # A socket's buffer does not hold the vocabulary, and nobody reads until it has started.
        self._greeting = threading.Thread(target=self._greet, args=(self._control,), daemon=True)
        self._greeting.start()

    def _greet(self, control: socket.socket) -> None:
        with suppress(OSError):  # seen again by whoever waits for the answer
            send_frame(control, self._vocabulary)

    def _wait_until_ready(self) -> None:
        self._control.settimeout(START_SECONDS)
        self._greeting.join(START_SECONDS)
        try:
            answer = receive_frame(self._control, len(READY))
        except OSError:
            answer = None
        if answer != READY:
            code = self._process.poll()
            self._stop()
            raise ConfigError(
                f"the process that compiles grammars did not start (exit code {code}); try "
                f"{sys.executable} -c 'import xgrammar'"
            )
        self._is_ready = True

    def _stop(self) -> None:
        if not self._is_ready:
            self._process.kill()  # it reads nothing yet
        self._is_ready = False
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _exchange(channel: socket.socket, job: CompileJob) -> bytes | None:
    try:
        send_frame(channel, job.to_json())
        return receive_frame(channel, job.max_compiled_bytes + MIB)
    except OSError:  # it was killed while we wrote, or does not answer in time
        return None


def _why_killed(job: CompileJob, seconds: float) -> str:
    if seconds >= 0.9 * job.seconds:
        return (
            f"the {job.title} takes more than {job.seconds:g} s of computing to compile; make it "
            "simpler (fewer alternatives, smaller repeat counts, less nesting)"
        )
    return (
        f"the {job.title} is too much for the grammar compiler, which died of it; make it simpler"
    )


def _refusal(message: str, job: CompileJob) -> str:
    if "bad_alloc" in message:
        return (
            f"the {job.title} takes more than {job.max_bytes // MIB} MiB to compile; make it "
            "simpler (fewer alternatives, smaller repeat counts, less nesting)"
        )
    return f"the {job.title} can't be compiled: {message}"
