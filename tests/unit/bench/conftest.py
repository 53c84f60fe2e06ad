"""An engine that a script stands in for, in any dialect, on a loopback port."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from scripted_engine import ScriptedEngine


@pytest.fixture
def start() -> "Iterator[Callable[[str], ScriptedEngine]]":
    """Gives the function that starts an engine of a dialect; all are ended with the test."""
    from scripted_engine import ScriptedEngine

    started: list[ScriptedEngine] = []

    def begin(dialect: str) -> ScriptedEngine:
        started.append(ScriptedEngine(dialect))
        return started[-1]

    yield begin
    for engine in started:
        engine.stop()


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """Seven prompts with an id and a category each."""
    path = tmp_path / "prompts.jsonl"
    kinds = ("math", "chat")
    lines = [
        f'{{"id": "p{n}", "category": "{kinds[n % 2]}", "turns": ["question {n}"]}}'
        for n in range(7)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path
