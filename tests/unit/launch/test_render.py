"""A plan as text: what a shell makes of it is the command itself."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from blockdraft.launch import LaunchPlan, as_document, bench_command, render_shell
from blockdraft.launch.order import PlannedFile, Requirement

PLAN = LaunchPlan(
    engine="fake",
    program=("fake", "serve", "a model"),
    arguments=("--config", '{"k": 7}', "--eager", "-m", "x", "rest"),
    needs=Requirement(program="fake", module=None, install="pip install fake"),
    host="::",
    port=8000,
    block_size=8,
    env=(("SPACE", "1 2"),),
    files=(PlannedFile(name="a.yaml", text="key: '$HOME'\n"),),
    notes=("mind this",),
)
TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=6)


def test_one_flag_a_line() -> None:
    assert render_shell(PLAN) == (
        "cat > a.yaml <<'END_OF_FILE'\n"
        "key: '$HOME'\n"
        "END_OF_FILE\n"
        "SPACE='1 2' fake serve 'a model' \\\n"
        "    --config '{\"k\": 7}' \\\n"
        "    --eager \\\n"
        "    -m x rest\n"
    )
    bare = replace(PLAN, env=(), files=(), arguments=("first", "--x"))
    assert render_shell(bare) == "fake serve 'a model' \\\n    first \\\n    --x\n"


def test_a_shell_reads_back_files_and_environment(tmp_path: Path) -> None:
    printing = replace(PLAN, program=("sh", "-c", 'echo "$SPACE"; cat a.yaml'), arguments=())
    got = subprocess.run(
        ["sh", "-c", render_shell(printing)], cwd=tmp_path, capture_output=True, text=True
    )
    assert got.stdout == "1 2\nkey: '$HOME'\n"


def shell_reads(arguments: tuple[str, ...]) -> list[str]:
    program = ("sh", "-c", """for word; do printf '%s\\0' "$word"; done""", "sh")
    text = render_shell(replace(PLAN, program=program, arguments=arguments, env=(), files=()))
    got = subprocess.run(["sh", "-c", text], capture_output=True, check=True)
    return got.stdout.decode().split("\0")[:-1]


@settings(deadline=None)
@given(st.lists(TEXT, max_size=3))
def test_a_shell_reads_back_the_words(arguments: list[str]) -> None:
    assert shell_reads(tuple(arguments)) == arguments


def test_the_document() -> None:
    document = as_document(PLAN)
    assert json.loads(json.dumps(document)) == {
        "engine": "fake",
        "command": [
            "fake",
            "serve",
            "a model",
            "--config",
            '{"k": 7}',
            "--eager",
            "-m",
            "x",
            "rest",
        ],
        "env": {"SPACE": "1 2"},
        "files": {"a.yaml": "key: '$HOME'\n"},
        "url": "http://[::1]:8000",
        "health_url": "http://[::1]:8000/health",
        "block_size": 8,
        "drafts": 7,
        "needs": "pip install fake",
        "notes": ["mind this"],
    }


def test_the_line_that_measures() -> None:
    assert bench_command("http://127.0.0.1:1", "a b") == (
        "blockdraft bench --endpoint http://127.0.0.1:1 --model 'a b'"
    )
