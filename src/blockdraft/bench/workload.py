"""The prompts of a bench: a file's or the built-in ones, and the order in which they are sent.

It sends nothing. How a line is read is `evaluation/prompts.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from blockdraft.bench.config import Arrival, RequestSettings
from blockdraft.bench.documents import parse_object
from blockdraft.errors import ConfigError
from blockdraft.evaluation import EvalPrompt, read_eval_prompts

BUILTIN = "built-in"
KNOWN_KEYS = ("id", "category", "system", "turns", "prompt", "prompt_ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Prompts in their order. `source` is a path or "built-in"; `sha256` is the whole file's.

    `ignored` are the keys of its lines that ask for nothing here.
    """

    source: str
    sha256: str
    prompts: tuple[EvalPrompt, ...]
    ignored: tuple[str, ...] = ()


class Job(NamedTuple):
    """One request to be sent; `number` counts from 0 within a level."""

    number: int
    prompt: EvalPrompt


def read_workload(path: Path | None, limit: int | None, settings: RequestSettings) -> Workload:
    """The first `limit` prompts of a file, of the built-in prompts without one.

    Raises ConfigError that names the line which can't be used.
    """
    chosen = path or Path(str(files("blockdraft.builtin") / "prompts.jsonl"))
    read = read_eval_prompts(chosen)
    prompts = read.prompts[:limit]
    for prompt in prompts:
        if settings.raw and prompt.system is not None:
            raise ConfigError(
                f"{read.where(prompt)}: its system text needs a chat template; drop --raw"
            )
    source = BUILTIN if path is None else str(path)
    ignored = _other_keys(chosen)
    return Workload(source=source, sha256=read.sha256, prompts=prompts, ignored=ignored)


def _other_keys(path: Path) -> tuple[str, ...]:
    """Of a file whose lines are known to be objects, in the order in which they first occur."""
    lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    rows = (parse_object(line.decode("utf-8")) for line in lines if line.strip())
    found = dict.fromkeys(key for row in rows if row is not None for key in row)
    return tuple(key for key in found if key not in KNOWN_KEYS)


def make_jobs(
    prompts: Sequence[EvalPrompt], arrival: Arrival, num_requests: int | None
) -> list[Job]:
    """`num_requests` jobs, the prompts in turn.

    Without a number: every prompt once, and at least two requests for each that runs at a time, so
    that a level is really reached.
    """
    if num_requests is None:
        num_requests = max(len(prompts), 2 * (arrival.concurrency or 0))
    return [Job(number, prompts[number % len(prompts)]) for number in range(num_requests)]


def warm_up_prompt(prompts: Sequence[EvalPrompt], number: int) -> EvalPrompt:
    """A prompt that is not in the workload, so that none of it is cached before it is measured."""
    first = prompts[0]
    if isinstance(first.content, str):
        content: str | tuple[int, ...] = f"Write one sentence about the number {number}."
    else:
        content = first.content[::-1]
    return EvalPrompt(line=0, id=f"warm-up {number}", category="", content=content)
