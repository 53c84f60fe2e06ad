"""The process that compiles grammars: it forks a child for each, which may be killed at any time.

It imports xgrammar and reads the vocabulary once. A child limits its own memory and time, so that
it ends even when nobody waits for it; `compile_process` is the other side.
"""

import os
import resource
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import xgrammar

from blockdraft.structured.compile_job import compile_job
from blockdraft.structured.compile_request import CompileJob, CompileRefusal
from blockdraft.structured.frames import OK, READY, REFUSED, receive_frame, send_frame

NICE = 3
MAX_REQUEST_BYTES = 1 << 28


def serve(control: socket.socket) -> None:
    """Read the vocabulary, then start a child for each socket that comes, until `control` ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the server, which closes us
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are not waited for
    with suppress(OSError):
        os.nice(NICE)  # decoding goes first
    vocabulary = receive_frame(control, MAX_REQUEST_BYTES)
    if vocabulary is None:
        return
    info = xgrammar.TokenizerInfo.deserialize_json(vocabulary.decode())
    send_frame(control, READY)
    while True:
        _, sockets, _, _ = socket.recv_fds(control, 1, 1)
        if not sockets:
            return
        answers = socket.socket(fileno=sockets[0])
        if os.fork() == 0:
            control.close()
            _run_child(answers, info)
        answers.close()


def _run_child(answers: socket.socket, info: xgrammar.TokenizerInfo) -> NoReturn:
    try:
        body = receive_frame(answers, MAX_REQUEST_BYTES)
        if body is not None:
            send_frame(answers, _answer(CompileJob.from_json(body), info))
    finally:
        os._exit(0)  # never back into the parent's loop, whatever happened


def _answer(job: CompileJob, info: xgrammar.TokenizerInfo) -> bytes:
    _limit(job)
    with tempfile.TemporaryFile() as warnings:
        # xgrammar says on stderr what it leaves out of a grammar, and nowhere else.
        os.dup2(warnings.fileno(), sys.stderr.fileno())

        def read_warnings() -> str:
            warnings.seek(0)
            return warnings.read().decode(errors="replace")

        try:
            return OK + compile_job(job, info, read_warnings)
        except CompileRefusal as refusal:
            return REFUSED + str(refusal).encode()
        except MemoryError:
            return REFUSED + b"std::bad_alloc"


def _limit(job: CompileJob) -> None:
    # Left to themselves these two signals kill, even inside a native call.
    signal.setitimer(signal.ITIMER_PROF, job.seconds)
    signal.setitimer(signal.ITIMER_REAL, job.wall_seconds)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pages = Path("/proc/self/statm")
    if pages.exists():  # elsewhere address space can't be limited
        held = int(pages.read_text().split()[0]) * resource.getpagesize()
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (held + job.max_bytes, held + job.max_bytes))


def main(descriptor: int) -> None:
    """Serve on an inherited socket."""
    with socket.socket(fileno=descriptor) as control:
        serve(control)
    os._exit(0)  # nothing to tidy up, and torch takes a second to do it
