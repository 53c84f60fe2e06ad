"""Starts the ranks of a test as torchrun would.

On a CPU a rank now and then dies of corrupted memory inside torch ("double free or corruption",
about one run in twelve here; its cause is not known yet). All ranks are then started once more, in
an empty folder. A rank that fails by itself, with an error, fails the test at once.
"""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import cast

ATTEMPTS = 4


def start_ranks(worker: Path, world_size: int, out: Path, *arguments: Path) -> None:
    """Run `worker ARGUMENTS.. OUT` on all ranks, and fail with its words if it fails."""
    for attempt in range(ATTEMPTS):
        codes, words = _run(worker, world_size, (*arguments, out))
        crashed = any(code < 0 for code in codes)
        if not crashed or attempt == ATTEMPTS - 1:
            assert not any(codes), "\n".join(words)
            return
        shutil.rmtree(out)
        out.mkdir()


def _run(worker: Path, world_size: int, arguments: tuple[Path, ...]) -> tuple[list[int], list[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = cast(tuple[str, int], free.getsockname())[1]
    environment = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(world_size),
        "OMP_NUM_THREADS": "1",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, str(worker), *map(str, arguments)],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world_size)
    ]
    try:
        words = [process.communicate(timeout=150)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], words
