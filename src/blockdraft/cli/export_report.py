"""The result of an export as text for people.

It writes nothing; `export.py` prints it.
"""

from blockdraft.interop.export import ExportReport

_ENGINES = {
    "hf": ("vllm", "sglang", "trtllm", "openvino"),
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
    pair = f"--target {target} --drafter {drafter} --print"
    return [f"blockdraft launch {engine} {pair}" for engine in _ENGINES[report.format]]


def _size(num_bytes: int) -> str:
    if num_bytes < 1e6:
        return f"{num_bytes / 1e3:.1f} kB"
    return f"{num_bytes / 1e6:.1f} MB"
