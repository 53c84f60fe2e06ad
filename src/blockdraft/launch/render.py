"""A `LaunchPlan` as text: shell lines that can be pasted, or one JSON document.

It prints nothing.
"""

import shlex

from blockdraft.launch.order import LaunchPlan

END = "END_OF_FILE"


def render_shell(plan: LaunchPlan) -> str:
    """Shell lines that write the plan's files here and start the engine, one flag a line."""
    lines: list[str] = []
    for file in plan.files:
        assert END not in file.text.splitlines()
        lines += [f"cat > {shlex.quote(file.name)} <<'{END}'", file.text.rstrip("\n"), END]
    words = [f"{name}={shlex.quote(value)}" for name, value in plan.env]
    command = [*words, shlex.join(plan.program)]
    for word in plan.arguments:
        if word.startswith("-") or len(command) == len(words) + 1:
            command.append(shlex.quote(word))
        else:
            command[-1] += f" {shlex.quote(word)}"
    first, rest = command[: len(words) + 1], command[len(words) + 1 :]
    lines.append(" \\\n    ".join([" ".join(first), *rest]))
    return "\n".join(lines) + "\n"


def as_document(plan: LaunchPlan) -> dict[str, object]:
    """The plan for other programs; files are to be written where the command is run."""
    return {
        "engine": plan.engine,
        "command": list(plan.command),
        "env": dict(plan.env),
        "files": {file.name: file.text for file in plan.files},
        "url": plan.url,
        "health_url": plan.health_url,
        "block_size": plan.block_size,
        "drafts": plan.block_size - 1,
        "needs": plan.needs.install,
        "notes": list(plan.notes),
    }


def bench_command(url: str, model: str) -> str:
    """What measures the engine once it is up."""
    return f"blockdraft bench --endpoint {shlex.quote(url)} --model {shlex.quote(model)}"
