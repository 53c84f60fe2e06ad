"""The result of an export as text for people.

It writes nothing; `export.py` prints it.
"""

from pathlib import Path
from shlex import quote

from blockdraft.builtin import builtin_models
from blockdraft.interop.export import ExportReport

_ENGINES = {
    "hf": ("vllm", "sglang", "trtllm"),
    "speculators": ("vllm",),
    "gguf": ("llamacpp",),
}


def render_report(report: ExportReport) -> str:
    """Aligned lines, without a final newline."""
    tau = report.recorded_tau
    rows = {
        "wrote": report.out,
        "format": f"{report.format}, {report.outtype}",
        "from": f"{report.drafter} ({report.source_format})",
        "target": report.target,
        "drafter": f"{report.parameters:,} parameters, block {report.block_size}"
        f" (anchor and {report.num_drafts} drafts)",
        "recorded": "no acceptance length" if tau is None else f"acceptance length {tau}",
        "read back": "every tensor equal"
        if report.outtype != "q8_0"
        else "every shape equal; q8_0 rounds the weights",
    }
    lines = [f"{name:<11}{value}" for name, value in rows.items()]
    lines += [f"{'file':<11}{file.name}  {_size(file.num_bytes)}" for file in report.files]
    lines += [f"{'note':<11}{note}" for note in (*report.changes, *report.notes)]
    lines += [f"{'next':<11}{command}" for command in _next(report)]
    return "\n".join(lines)


def _next(report: ExportReport) -> list[str]:
    target, drafter = report.target, report.out
    if report.format == "gguf":
        target, drafter = f"{report.out}/target.gguf", f"{report.out}/drafter.gguf"
    pair = f"--target {quote(target)} --drafter {quote(drafter)} --print"
    lines = [f"blockdraft launch {engine} {pair}" for engine in _ENGINES[report.format]]
    return lines + _for_openvino(report) if report.format == "hf" else lines


def _for_openvino(report: ExportReport) -> list[str]:
    """It reads neither folder: both are converted first."""
    convert = "optimum-cli export openvino --task text-generation-with-past --weight-format fp32"
    name = Path(report.target).expanduser()
    target = next((str(m.path) for m in builtin_models() if m.name == report.target), str(name))
    target_ov, drafter_ov = f"{Path(report.out).name}-target-ov", f"{Path(report.out).name}-ov"
    return [
        f"{convert} --model {quote(target)} {quote(target_ov)}",
        f"{convert} --model {quote(report.out)} --trust-remote-code --disable-convert-tokenizer "
        f"{quote(drafter_ov)}",
        f"blockdraft launch openvino --target {quote(target_ov)} --drafter {quote(drafter_ov)} "
        "--print",
    ]


def _size(num_bytes: int) -> str:
    if num_bytes < 1e6:
        return f"{num_bytes / 1e3:.1f} kB"
    return f"{num_bytes / 1e6:.1f} MB"
