"""`blockdraft report`: a bench's results as a page, or two runs compared.

Arguments only; pages and comparisons are the package `bench/report`, words `comparison_report.py`.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

SUMMARY = "make the page of a bench again, or compare two runs and flag regressions"
EPILOG = """examples:
  blockdraft report results
  blockdraft report results/results.json --out page.html
  blockdraft report before/results.json after/results.json
  blockdraft report before after --fail-on-regression --json

A FILE is the results.json that `blockdraft bench --out DIR` wrote, or that DIR; also of a run that
was broken off. One FILE: the page is written (default: report.html beside it) and the answers are
printed. Two: the first is before, the second after; each figure of each lane and load is compared,
and a change counts where the ranges of the two don't touch. Runs of another model, other prompts or
other settings of the answers are refused; on another machine or with other threads or dtype, only
ratios within a run are compared. docs/report.md says how to read both.

Exit code 1 with --fail-on-regression where a figure became worse. 2: a FILE can't be read, or the
two runs can't be compared.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="one results.json, or two to compare"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the page to write (default: beside FILE)"
    )
    parser.add_argument(
        "--fail-on-regression",
        action="store_true",
        help="of two runs: exit code 1 where something became worse",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(args: Namespace) -> int:
    from blockdraft.cli.comparison_report import compare_files, report_file
    from blockdraft.errors import ConfigError

    files: list[Path] = args.files
    if len(files) > 2:
        raise ConfigError(f"{len(files)} files were given; give one, or two to compare")
    if len(files) == 1:
        if args.fail_on_regression:
            raise ConfigError("--fail-on-regression compares two runs; give the second FILE")
        return report_file(files[0], args.out, as_json=args.json)
    if args.out is not None:
        raise ConfigError("--out writes the page of one run; give one FILE, or drop --out")
    return compare_files(files[0], files[1], fails=args.fail_on_regression, as_json=args.json)
