"""Checks the YAML that `blockdraft launch trtllm` writes with TensorRT-LLM's own configuration.

python benchmarks/engine_trtllm.py --out DIR [--hf DIR] [--source llm_args.py]

It tries the installed package, then the class in the text of `llm_args.py` of that project (where
it is given), then the published fields (trtllm_schema.py). Broken sections have to be refused by
each. Nothing is loaded or run.
"""

import argparse
import importlib
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import torch
import yaml

from engine_export import export_drafter
from engine_record import Recorder
from model_copy import builtin_model
from trtllm_schema import VERSION, InvalidConfig, Model, check_class, check_table, load_class

Section = Mapping[str, object]
Check = Callable[[Section], None]

BROKEN: Mapping[str, Section] = {
    "unknown field": {"num_speculative_tokens": 7},
    "another kind": {"decoding_type": "dflash"},
    "negative length": {"max_draft_len": -1},
    "length as a word": {"max_draft_len": "seven"},
    "layer ids as a word": {"target_layer_ids": "1,8"},
    "unknown backend": {"attention_backend": "FLASH"},
    "no requests at all": {"max_concurrency": 0},
    "rate above 1": {"acceptance_rate_threshold": 1.5},
}
"""Changes to a valid section that have to be refused."""


class LaunchFailed(Exception):
    """`blockdraft launch` did not print a YAML with a speculative section."""


def launch_yaml(target: Path, drafter: Path) -> str:
    """What `blockdraft launch trtllm --print` writes for the pair."""
    command = [sys.executable, "-m", "blockdraft.cli.main", "launch", "trtllm", "--print"]
    command += ["--target", str(target), "--drafter", str(drafter)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise LaunchFailed(made.stderr.strip().rpartition("\n")[2])
    return made.stdout


def speculative_section(text: str) -> Section:
    """The section `speculative_config` out of a YAML file, or out of a printed script with one.

    Raises LaunchFailed where there is none.
    """
    lines = text.splitlines()
    starts = [place for place, line in enumerate(lines) if line.startswith("speculative_config:")]
    if not starts:
        raise LaunchFailed("there is no speculative_config in what was printed")
    kept = [lines[starts[0]]]
    for line in lines[starts[0] + 1 :]:
        if not line.startswith(" "):
            break
        kept.append(line)
    loaded = cast(Mapping[str, Section], yaml.safe_load("\n".join(kept)))
    return loaded["speculative_config"]


def find_checks(source: Path | None) -> tuple[dict[str, Check], str | None]:
    """All ways to check that are to be had here, and why the package can't be imported."""
    checks: dict[str, Check] = {"published fields": check_table}
    error: str | None = None
    try:
        module = importlib.import_module("tensorrt_llm.llmapi.llm_args")
        checks["package"] = _by(cast(Model, module.DFlashDecodingConfig))
    except Exception as problem:  # noqa: BLE001  whatever its import raises is the result
        error = f"{type(problem).__name__}: {problem}"
    if source is not None:
        checks["its class alone"] = _by(load_class(source))
    return checks, error


def _by(model: Model) -> Check:
    return lambda section: check_class(section, model)


def verdicts(section: Section, check: Check) -> Mapping[str, object]:
    """What `check` says to the section and to each broken form of it."""
    said: dict[str, object] = {"accepted": True}
    try:
        check(section)
    except InvalidConfig as error:
        said = {"accepted": False, "error": str(error)}
    refused: dict[str, object] = {}
    for name, change in BROKEN.items():
        try:
            check({**section, **change})
        except InvalidConfig as error:
            refused[name] = str(error)
        else:
            refused[name] = None
    return {**said, "broken": refused}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for results")
    parser.add_argument("--hf", type=Path, help="the drafter as an HF folder (default: exported)")
    parser.add_argument("--target", type=Path, help="a target's folder (default: the built-in one)")
    parser.add_argument("--yaml", type=Path, help="check this file instead of launch's")
    parser.add_argument("--source", type=Path, help="TensorRT-LLM's llmapi/llm_args.py")
    args = parser.parse_args(argv)
    out: Path = args.out.absolute()
    record = Recorder(out)
    if args.yaml is not None:
        text = args.yaml.read_text(encoding="utf-8")
    else:
        target: Path = args.target or builtin_model(out, torch.bfloat16)
        hf: Path = args.hf or export_drafter("hf", target, out / "hf")
        text = launch_yaml(target.absolute(), hf.absolute())
    section = speculative_section(text)
    checks, error = find_checks(args.source)
    record.keep("trtllm package", {"error": error} if error else {"imported": True})
    record.keep("trtllm yaml", {"schema": VERSION, "section": dict(section)})
    fit = True
    for name, check in checks.items():
        said = verdicts(section, check)
        record.keep(f"trtllm {name}", said)
        broken = cast(Mapping[str, object], said["broken"])
        fit = fit and bool(said["accepted"]) and None not in broken.values()
    return 0 if fit else 1


if __name__ == "__main__":
    raise SystemExit(main())
