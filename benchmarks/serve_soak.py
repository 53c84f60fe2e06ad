"""Minutes of mixed load on a real server, by clients that come, leave, dawdle and err at random.

python benchmarks/serve_soak.py --seconds 1800 --json soak.json

Without --target and --drafter it serves a tiny random pair. Exit code 1: something was not as it
must be, and the table says what.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from soak_answers import known_answers
from soak_model import save_models
from soak_process import ServerProcess
from soak_report import Report, render
from soak_run import Load, Plan, soak

SETTINGS = (
    *("--threads", "1", "--width", "fixed:6", "--slots", "4"),
    *("--max-context", "1024", "--kv-memory", "600KB"),
)
"""Four slots share the rows of about one longest request, so that others wait for rows."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of load (default 60)")
    parser.add_argument("--clients", type=int, default=10, help="at a time (default 10)")
    parser.add_argument("--seed", type=int, default=0, help="of what is asked, and when")
    parser.add_argument("--known", type=int, default=24, help="requests with a known answer")
    parser.add_argument("--target", type=Path, help="a folder; needs --drafter")
    parser.add_argument("--drafter", type=Path)
    parser.add_argument("--json", type=Path, help="write the report to this file too")
    args = parser.parse_args(argv)
    if (args.target is None) != (args.drafter is None):
        parser.error("give both --target and --drafter, or neither")
    torch.set_num_threads(1)
    load = Load(seconds=args.seconds, clients=args.clients, seed=args.seed)
    report = run(load, args.known, None if args.target is None else (args.target, args.drafter))
    if args.json is not None:
        args.json.write_text(json.dumps(asdict(report), indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(render(report))
    return 1 if report.complaints else 0


def run(load: Load, num_known: int, pair: tuple[Path, Path] | None = None) -> Report:
    """One soak from beginning to end; its files are gone afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        target, drafter = pair or save_models(folder)
        known = known_answers(target, num_known, load.seed)
        models = ("--target", str(target), "--drafter", str(drafter), "--dtype", "float32")
        queue = ("--max-waiting", str(load.clients))
        server = ServerProcess([*models, *SETTINGS, *queue], folder)
        try:
            return asyncio.run(soak(server, Plan(load=load, known=tuple(known))))
        finally:
            server.kill()


if __name__ == "__main__":
    sys.exit(main())
