"""Exports a pair for OpenVINO GenAI and compares its text and acceptance on a CPU with ours.

python benchmarks/engine_openvino.py --envs DIR --out DIR [--hf DIR]

It makes the environment (see environments.py) and lets `optimum-cli` convert the target and the HF
folder of the built-in drafter. A refusal is recorded as the error it is.
"""

import argparse
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import environments
from engine_answers import EngineAnswer
from engine_export import export_drafter
from engine_ours import OurSide, compared, load_ours, measured
from engine_record import Recorder
from engine_server import EngineFailed, last_error
from model_copy import DTYPES, builtin_model
from peers import Peer, PeerError, PeerSetup

WEIGHT_FORMATS = {"float32": "fp32", "bfloat16": None}
"""What `optimum-cli` is told of the weights; None leaves them as they are in the folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What every run is given; `drafter` is the HF folder."""

    envs: Path
    out: Path
    drafter: Path
    num_prompts: int
    num_tokens: int
    threads: int


def convert_command(cli: Path, source: Path, out: Path, dtype: str, *, drafter: bool) -> list[str]:
    """`optimum-cli export openvino` for a target, or for a drafter, which has no tokenizer."""
    command = [str(cli), "export", "openvino", "--model", str(source)]
    command += ["--task", "text-generation-with-past"]
    if WEIGHT_FORMATS[dtype] is not None:
        command += ["--weight-format", str(WEIGHT_FORMATS[dtype])]
    if drafter:
        command += ["--trust-remote-code", "--disable-convert-tokenizer"]
    return [*command, str(out)]


def convert(setup: Setup, source: Path, out: Path, dtype: str, *, drafter: bool) -> Path:
    """The folder with OpenVINO's model, kept if it is there. Raises EngineFailed."""
    if (out / "openvino_model.xml").is_file():
        return out
    cli = environments.python_of(setup.envs, "openvino").with_name("optimum-cli")
    command = convert_command(cli, source, out, dtype, drafter=drafter)
    variables = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(setup.threads)}
    made = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    out.with_suffix(".log").write_text(made.stdout + made.stderr, encoding="utf-8")
    if made.returncode:
        raise EngineFailed(last_error(made.stderr))
    return out


def run_dtype(setup: Setup, dtype: str, record: Recorder) -> None:
    """Plain and drafted answers of OpenVINO, against ours to the same ids."""
    target = builtin_model(setup.envs / "models", DTYPES[dtype])
    record.say(f"{dtype}: converting")
    try:
        theirs = convert(setup, target, setup.out / f"target-{dtype}", dtype, drafter=False)
        draft = convert(setup, setup.drafter, setup.out / f"drafter-{dtype}", dtype, drafter=True)
    except EngineFailed as error:
        record.keep(f"openvino conversion {dtype}", {"error": str(error)})
        return
    record.say(f"{dtype}: our own answers")
    side = load_ours(target, dtype, num_prompts=setup.num_prompts, max_new_tokens=setup.num_tokens)
    our_drafted = side.drafted(str(setup.drafter))
    record.keep(f"ours plain {dtype}", measured(side.plain))
    record.keep(f"ours hf {dtype}", measured(our_drafted.answers))
    plain: tuple[EngineAnswer, ...] | None = None
    for peer, drafter in (("openvino", None), ("openvino-dflash", draft)):
        name = f"{peer} {dtype}"
        ours_too = None if drafter is None else our_drafted
        record.say(f"{name}: answering")
        try:
            answers, versions = _ask(setup, side, peer, theirs, drafter, dtype)
        except PeerError as error:
            record.keep(name, {"error": str(error)})
            continue
        made = compared(side, answers, their_plain=plain, our_drafted=ours_too)
        record.keep(name, {**made, "versions": versions})
        plain = plain or answers


def _ask(
    setup: Setup, side: OurSide, name: str, target: Path, drafter: Path | None, dtype: str
) -> tuple[tuple[EngineAnswer, ...], dict[str, str]]:
    loaded = PeerSetup(model=target, dtype=dtype, threads=setup.threads, drafter=drafter)
    stop_ids = side.target.spec.stop_ids
    answers: list[EngineAnswer] = []
    with Peer(name, setup.envs, loaded) as peer:
        for prompt in side.prompts:
            made = peer.run(prompt.ids, setup.num_tokens, stop_ids)
            accepted = None
            if drafter is not None and made.steps is not None:
                accepted = len(made.token_ids) - 1 - made.steps
            answers.append(
                EngineAnswer(token_ids=made.token_ids, seconds=made.seconds, num_accepted=accepted)
            )
        return tuple(answers), dict(peer.versions)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--envs", type=Path, default=environments.default_folder())
    parser.add_argument("--out", type=Path, required=True, help="folder for results and models")
    parser.add_argument("--hf", type=Path, help="the drafter as an HF folder (default: exported)")
    parser.add_argument("--dtypes", nargs="+", choices=sorted(DTYPES), default=["float32"])
    parser.add_argument("--prompts", type=int, default=8, help="the first N of GSM8K test")
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args(argv)
    envs: Path = args.envs.absolute()
    out: Path = args.out.absolute()
    record = Recorder(out)
    openvino = next(e for e in environments.ENVIRONMENTS if e.name == "openvino")
    try:
        environments.make(openvino, envs, record.say)
    except environments.EnvironmentFailed as error:
        record.keep("openvino environment", {"error": str(error)})
        return 1
    hf: Path | None = args.hf
    if hf is None:
        hf = export_drafter("hf", builtin_model(envs / "models", DTYPES["bfloat16"]), out / "hf")
    setup = Setup(
        envs=envs,
        out=out,
        drafter=hf.absolute(),
        num_prompts=args.prompts,
        num_tokens=args.max_new_tokens,
        threads=args.threads,
    )
    for dtype in args.dtypes:
        run_dtype(setup, dtype, record)
    return record.num_errors


if __name__ == "__main__":
    raise SystemExit(main())
