"""The server of a soak as a process: started, watched from outside (memory, files), and ended.

It asks only what an operator can: /health, /metrics, /proc and the log.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import httpx

START_SECONDS = 180.0
END_SECONDS = 90.0
_SERIES = re.compile(r"^([a-zA-Z_:]+)\{([^}]*)\} (\S+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the process held `seconds` after the first sample; sizes in MiB."""

    seconds: float
    rss: float
    children_rss: float
    num_files: int
    num_threads: int


class ServerProcess:
    """`blockdraft serve` with these arguments, on any free port."""

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        self.log = folder / "server.jsonl"
        self.url = ""
        self._errors = folder / "stderr"
        settings = ["--port", "0", "--log-format", "json", "--log-file", str(self.log)]
        command = [sys.executable, "-m", "blockdraft.cli.main", "serve", *arguments, *settings]
        with self._errors.open("wb") as stderr:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=stderr)
        self._began = time.monotonic()

    async def up(self) -> None:
        """Wait until it serves; RuntimeError with what it said where it does not."""
        until = time.monotonic() + START_SECONDS
        while not self.url:
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the server did not start: {self._errors.read_text()[-2000:]}")
            for line in self.log_lines():
                if line["event"] == "serving":
                    self.url = str(line["url"])
            await asyncio.sleep(0.1)
        self._began = time.monotonic()

    def end(self) -> int:
        """Its exit code after SIGTERM."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(END_SECONDS)

    def kill(self) -> None:
        """End it in any case."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def sample(self) -> Sample:
        """What it holds now."""
        pid = self._process.pid
        proc = Path("/proc") / str(pid)
        children: list[int] = []
        for task in (proc / "task").iterdir():
            children += [int(child) for child in (task / "children").read_text().split()]
        return Sample(
            seconds=time.monotonic() - self._began,
            rss=_rss(pid),
            children_rss=sum(_rss(child) for child in children),
            num_files=len(os.listdir(proc / "fd")),
            num_threads=len(os.listdir(proc / "task")),
        )

    def log_lines(self) -> list[dict[str, object]]:
        """All lines of its log."""
        if not self.log.exists():
            return []
        whole = self.log.read_text(encoding="utf-8").rpartition("\n")[0]
        return [cast("dict[str, object]", json.loads(line)) for line in whole.splitlines()]


def _rss(pid: int) -> float:
    try:
        pages = int((Path("/proc") / str(pid) / "statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass(frozen=True, slots=True)
class Metrics:
    """One reading of /metrics."""

    values: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])

    def total(self, name: str, label: str = "") -> float:
        """The sum of the series of this name whose labels hold `label`."""
        return sum(v for (n, labels), v in self.values.items() if n == name and label in labels)


async def read_metrics(client: httpx.AsyncClient) -> Metrics:
    """Raises httpx.HTTPError where the server does not answer."""
    text = (await client.get("/metrics")).raise_for_status().text
    found = (_SERIES.match(line) for line in text.splitlines())
    return Metrics({(m[1], m[2]): float(m[3]) for m in found if m is not None})


def access_counts(lines: Sequence[dict[str, object]]) -> tuple[Counter[str], Counter[int]]:
    """How often each request id stands in the access log, and each status."""
    asked = [line for line in lines if line["event"] == "request"]
    ids = Counter(str(line["id"]) for line in asked if line["id"])
    return ids, Counter(cast(int, line["status"]) for line in asked)
