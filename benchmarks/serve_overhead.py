"""What HTTP costs: tokens a second through the server against the offline engine, in one run; and
what taking prompts in by chunks does to the first token and to those who decode meanwhile.

    python benchmarks/serve_overhead.py --threads 2
    python benchmarks/serve_overhead.py --threads 2 --json > overhead.json

Server and offline engine have the same pair, dtype, threads, slots and prompts, take turns in every
round, and stream. The client runs on the same machine, and its processor time counts against the
server. Rounds are medians; the first one warms up.
"""

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import torch

import ours
from blockdraft.api import load_drafter
from blockdraft.engine import BuiltEngine
from blockdraft.native import NativeTarget
from prompts import encode, read_set
from soak_process import ServerProcess

_TOKENS = re.compile(rb'"completion_tokens": ?(\d+)')
LONG_PROMPT = 1500
WHOLE = 4096
"""A chunk that takes any prompt of this benchmark in at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Tokens a second over all requests of a round, medians; `ratio` of each round's ratio."""

    width: str
    concurrency: int
    offline: float
    http: float
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunking:
    """A long prompt arrives while others decode; milliseconds, medians over arrivals.

    `gap` is the longest pause of any running stream while the prompt is taken in.
    """

    chunk: int
    num_running: int
    prompt_tokens: int
    first_token: float
    gap: float
    usual_gap: float


@dataclass(frozen=True, slots=True)
class Streamed:
    """One streamed answer: its tokens, and when each piece of it came."""

    num_tokens: int
    arrivals: tuple[float, ...]


async def stream(url: str, prompt: Sequence[int], max_tokens: int) -> Streamed:
    """Ask for a completion and read it to its end, with as little work as can be."""
    address = urlsplit(url)
    body = json.dumps(
        {
            "prompt": list(prompt),
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    status = await reader.readline()
    if b" 200 " not in status:
        raise RuntimeError(f"the server answered {status!r}: {await reader.read(500)!r}")
    arrivals: list[float] = []
    last = b""
    async for line in reader:
        if line.startswith(b"data: {"):
            arrivals.append(time.perf_counter())
            last = line
    writer.close()
    found = _TOKENS.search(last)
    assert found is not None, "the last event has no usage"
    return Streamed(int(found[1]), tuple(arrivals[:-1]))


async def http_rate(
    url: str, work: Sequence[Sequence[int]], max_tokens: int, concurrency: int
) -> float:
    """Tokens a second of a closed loop with so many requests at a time."""
    left = list(reversed(work))

    async def one_after_another() -> list[int]:
        counts: list[int] = []
        while left:
            counts.append((await stream(url, left.pop(), max_tokens)).num_tokens)
        return counts

    started = time.perf_counter()
    # Each loop counts for itself: `total += await ..` reads the total before it waits.
    counts = await asyncio.gather(*(one_after_another() for _ in range(concurrency)))
    return sum(map(sum, counts)) / (time.perf_counter() - started)


def offline_rate(built: BuiltEngine, work: Sequence[Sequence[int]], max_tokens: int) -> float:
    """The same work on an engine in this process."""
    started = time.perf_counter()
    answers = ours.run_all(built, work, max_tokens, ignore_eos=True)
    seconds = time.perf_counter() - started
    return sum(len(commit.ids) for answer in answers for commit in answer) / seconds


async def measure_overhead(
    args: argparse.Namespace, target: NativeTarget, prompts: Sequence[Sequence[int]]
) -> list[Overhead]:
    """Offline and HTTP in turn, for each width and concurrency."""
    rows: list[Overhead] = []
    for width in args.widths:
        for concurrency in args.concurrency:
            count = max(args.requests, 2 * concurrency)
            work = [prompts[i % len(prompts)] for i in range(count)]
            drafter = None if width == "off" else load_drafter("smollm2", target)
            built = ours.make_engine(target, drafter, width, slots=concurrency)
            settings = ["--width", width, "--slots", str(concurrency), "--no-prefix-reuse"]
            with tempfile.TemporaryDirectory() as folder:
                server = ServerProcess([*_pair(args), *settings], Path(folder))
                try:
                    await server.up()
                    rounds: list[tuple[float, float]] = []
                    for _ in range(args.repeats + 1):
                        offline = offline_rate(built, work, args.max_tokens)
                        http = await http_rate(server.url, work, args.max_tokens, concurrency)
                        rounds.append((offline, http))
                finally:
                    server.kill()
            rounds = rounds[1:]
            rows.append(
                Overhead(
                    width=width,
                    concurrency=concurrency,
                    offline=median(r[0] for r in rounds),
                    http=median(r[1] for r in rounds),
                    ratio=median(r[1] / r[0] for r in rounds),
                )
            )
            sys.stderr.write(f"{rows[-1]}\n")
    return rows


async def measure_chunks(
    args: argparse.Namespace, prompts: Sequence[Sequence[int]]
) -> list[Chunking]:
    """A long prompt among running streams, by chunks and at once."""
    rows: list[Chunking] = []
    for chunk in (*args.chunks, WHOLE):
        with tempfile.TemporaryDirectory() as folder:
            settings = ["--width", "off", "--prefill-chunk", str(chunk), "--no-prefix-reuse"]
            server = ServerProcess([*_pair(args), *settings], Path(folder))
            try:
                await server.up()
                arrivals = [
                    await _arrive(server.url, prompts, args.running, seed)
                    for seed in range(args.repeats + 1)
                ]
            finally:
                server.kill()
        first, gap, usual = (median(a[k] for a in arrivals[1:]) for k in range(3))
        rows.append(
            Chunking(
                chunk=chunk,
                num_running=args.running,
                prompt_tokens=LONG_PROMPT,
                first_token=1000 * first,
                gap=1000 * gap,
                usual_gap=1000 * usual,
            )
        )
        sys.stderr.write(f"{rows[-1]}\n")
    return rows


async def _arrive(
    url: str, prompts: Sequence[Sequence[int]], num_running: int, seed: int
) -> tuple[float, float, float]:
    """Seconds to the long prompt's first token, the longest and the median pause meanwhile."""
    running = [
        asyncio.create_task(stream(url, prompts[i % len(prompts)], 160)) for i in range(num_running)
    ]
    await asyncio.sleep(1.5)
    flat = [token for prompt in prompts for token in prompt]
    long = (flat * (1 + (LONG_PROMPT + seed) // len(flat)))[seed : LONG_PROMPT + seed]
    asked = time.perf_counter()
    first = (await stream(url, long, 2)).arrivals[0]
    streams = await asyncio.gather(*running)
    gaps = [
        (later - earlier, earlier < first and later > asked)
        for one in streams
        for earlier, later in zip(one.arrivals, one.arrivals[1:], strict=False)
    ]
    during = [gap for gap, overlaps in gaps if overlaps]
    return first - asked, max(during, default=0.0), median(gap for gap, _ in gaps)


def _pair(args: argparse.Namespace) -> list[str]:
    return ["--target", "smollm2", "--dtype", args.dtype, "--threads", str(args.threads)]


def print_tables(overhead: Sequence[Overhead], chunks: Sequence[Chunking]) -> None:
    """Markdown."""
    out = sys.stdout.write
    out("| width | requests at a time | offline tok/s | HTTP tok/s | ratio |\n")
    out("|---|---:|---:|---:|---:|\n")
    for row in overhead:
        out(f"| {row.width} | {row.concurrency} | {row.offline:.1f} | {row.http:.1f} | ")
        out(f"{row.ratio:.3f} |\n")
    out("\n| prompt tokens a step | first token, ms | longest pause, ms | usual pause, ms |\n")
    out("|---:|---:|---:|---:|\n")
    for row in chunks:
        name = "all" if row.chunk == WHOLE else str(row.chunk)
        out(f"| {name} | {row.first_token:.0f} | {row.gap:.0f} | {row.usual_gap:.0f} |\n")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--widths", nargs="+", default=["off", "fixed:8"])
    parser.add_argument("--concurrency", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--requests", type=int, default=4, help="of a round, at least")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--running", type=int, default=4, help="streams beside the long prompt")
    parser.add_argument("--chunks", nargs="+", type=int, default=[64])
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    target = ours.load_native("smollm2", args.dtype)
    assert target.text is not None
    prompts = [prompt.ids for prompt in encode(read_set("gsm8k", 8), target.text)]
    overhead = asyncio.run(measure_overhead(args, target, prompts))
    chunks = asyncio.run(measure_chunks(args, prompts))
    if args.json:
        document = {
            "overhead": [asdict(row) for row in overhead],
            "chunks": [asdict(row) for row in chunks],
            "settings": vars(args),
        }
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        print_tables(overhead, chunks)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
