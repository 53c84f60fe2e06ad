"""The built-in drafter's export for an engine, made by `blockdraft export` in a process of its own.

It writes nothing itself, and keeps an export that is there.
"""

import subprocess
import sys
from pathlib import Path

DRAFTER = "smollm2"


class ExportFailed(Exception):
    """`blockdraft export` said no; the message is what it said."""


def export_command(form: str, target: Path, out: Path) -> list[str]:
    """The command; `form` is hf, speculators or gguf."""
    command = [sys.executable, "-m", "blockdraft.cli.main", "export", "--format", form]
    return [*command, "--target", str(target), "--drafter", DRAFTER, "--out", str(out)]


def export_drafter(form: str, target: Path, out: Path) -> Path:
    """The folder `out` with the export. Raises ExportFailed."""
    if not out.exists():
        command = export_command(form, target, out)
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            lines = [line for line in made.stderr.splitlines() if line.strip()]
            raise ExportFailed(f"{' '.join(command[3:])}: {lines[-1] if lines else 'no reason'}")
    return out
