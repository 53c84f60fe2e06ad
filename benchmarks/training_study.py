"""One training, one change at a time: what each choice does to the simulated acceptance length.

    python benchmarks/training_study.py STUDY.toml --out study --table

A study file names a recipe, overrides for all its runs, and variants with the overrides of each.
Every run is an ordinary `blockdraft train`; finished ones are not run again. The acceptance length
is that of the last simulation, over the same held-out answers in every run.
"""

import argparse
import json
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

RESULT_FILE = "result.json"


class Variant(NamedTuple):
    """A run of a study: its name, what it changes, and why one would."""

    name: str
    overrides: tuple[str, ...]
    note: str


class Study(NamedTuple):
    """A recipe, what all runs change in it, and the runs."""

    recipe: str
    overrides: tuple[str, ...]
    variants: tuple[Variant, ...]


def read_study(path: Path) -> Study:
    """The study in a TOML file."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    variants = [
        Variant(
            cast(str, one["name"]),
            tuple(cast("list[str]", one.get("set", []))),
            cast(str, one.get("note", "")),
        )
        for one in cast("list[dict[str, object]]", table["variant"])
    ]
    names = [variant.name for variant in variants]
    if len(set(names)) != len(names):
        raise SystemExit(f"{path} names a variant twice")
    return Study(
        cast(str, table["recipe"]), tuple(cast("list[str]", table["set"])), tuple(variants)
    )


def run_variant(study: Study, variant: Variant, folder: Path, extra: Sequence[str]) -> None:
    """Train one variant, unless its result is there."""
    run = folder / variant.name
    if (run / RESULT_FILE).exists():
        return
    command = [sys.executable, "-m", "blockdraft.cli.main", "train", study.recipe]
    command += ["--out", str(run), *extra]
    for override in (*study.overrides, *variant.overrides):
        command += ["--set", override]
    started = time.monotonic()
    with (folder / f"{variant.name}.log").open("w", encoding="utf-8") as log:
        code = subprocess.run(command, stdout=log, stderr=log, check=False).returncode
    if code:
        sys.stderr.write(f"{variant.name} ended with {code}: see {variant.name}.log\n")
        return
    result = {"seconds": time.monotonic() - started, **read_result(run / "metrics.jsonl")}
    (run / RESULT_FILE).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    sys.stderr.write(f"{variant.name}: {json.dumps(result)}\n")


def read_result(metrics: Path) -> dict[str, object]:
    """Last simulated acceptance, seconds of the steps alone, their number, anchors a second."""
    records = [
        cast("dict[str, object]", json.loads(line)) for line in metrics.read_text().splitlines()
    ]
    steps = [record for record in records if record["kind"] == "train"]
    simulated = [record for record in records if record["kind"] == "simulated"][-1]
    seconds = sum(cast(float, record["seconds"]) for record in steps)
    anchors = sum(
        cast(float, record["seconds"]) * cast(float, record["anchors_per_second"])
        for record in steps
    )
    taus = {k: v for k, v in simulated.items() if k.startswith("tau")}
    return {
        "steps": len(steps),
        "train_seconds": round(seconds, 1),
        "anchors": round(anchors),
        "anchors_per_second": round(anchors / seconds, 1),
        **taus,
    }


def print_table(study: Study, folder: Path) -> None:
    """Markdown: one row a finished run, in the order of the study."""
    rows: list[tuple[Variant, Mapping[str, float]]] = []
    for variant in study.variants:
        path = folder / variant.name / RESULT_FILE
        if path.exists():
            rows.append((variant, cast("dict[str, float]", json.loads(path.read_text()))))
    sys.stdout.write("| run | change | tau | steps | anchors/s | training, s |\n")
    sys.stdout.write("|---|---|---:|---:|---:|---:|\n")
    for variant, result in rows:
        change = variant.note or ", ".join(f"`{o}`" for o in variant.overrides) or "the base run"
        sys.stdout.write(
            f"| {variant.name} | {change} | {result['tau']:.3f} | {result['steps']} | "
            f"{result['anchors_per_second']:.0f} | {result['train_seconds']:.0f} |\n"
        )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("study", type=Path, help="TOML file of the study")
    parser.add_argument("--out", type=Path, required=True, help="folder of all runs")
    parser.add_argument("--only", help="names of variants to run, separated by commas")
    parser.add_argument("--table", action="store_true", help="print what is there, run nothing")
    parser.add_argument("--threads", type=int, help="CPU threads of torch in each run")
    args = parser.parse_args(argv)
    study = read_study(args.study)
    args.out.mkdir(parents=True, exist_ok=True)
    if not args.table:
        wanted = None if args.only is None else set(cast(str, args.only).split(","))
        extra = [] if args.threads is None else ["--threads", str(args.threads)]
        for variant in study.variants:
            if wanted is None or variant.name in wanted:
                run_variant(study, variant, args.out, extra)
    print_table(study, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
