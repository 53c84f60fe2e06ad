"""The documents agree with the tree: links, file trees, commands, the example, the versions.

Prose is not judged here.
"""

import ast
import re
import tomllib
from pathlib import Path
from typing import cast

import pytest

import file_tree

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
DOCUMENT_IDS = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
README = (ROOT / "README.md").read_text()


def anchors(path: Path) -> set[str]:
    """The fragments that a heading of a Markdown file can be linked by."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def code_blocks(text: str, language: str = "") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def pins(name: str) -> dict[str, str]:
    """Package to version in a requirements file; names as pip compares them."""
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {package.lower().replace("_", "-"): version for package, version in pairs}


def project() -> dict[str, object]:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return cast("dict[str, object]", table)


@pytest.mark.parametrize("path", DOCUMENTS, ids=DOCUMENT_IDS)
def test_links_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if "://" in link:
            continue
        name, _, fragment = link.partition("#")
        linked = path.parent / name if name else path
        assert linked.exists(), f"{link} does not exist"
        assert not fragment or fragment in anchors(linked), f"{linked.name} has no #{fragment}"


@pytest.mark.parametrize("path", file_tree.documents(), ids=lambda path: path.name)
def test_file_tree_is_the_tree(path: Path) -> None:
    text = path.read_text()
    assert text == file_tree.with_tree(text, file_tree.documents()[path]), "run `make docs`"


@pytest.mark.parametrize("path", DOCUMENTS, ids=DOCUMENT_IDS)
def test_files_named_in_the_docs_exist(path: Path) -> None:
    """U06: no document points to a file that does not exist."""
    for name in re.findall(r"`((?:\w+/)+\w+\.(?:py|txt|md|toml))`", path.read_text()):
        places = (ROOT, ROOT / "src" / "blockdraft")
        assert any((place / name).exists() for place in places), f"{name} does not exist"


@pytest.mark.parametrize("path", DOCUMENTS, ids=DOCUMENT_IDS)
def test_commands_named_in_the_docs_exist(path: Path) -> None:
    """U06: every `make` word and every subcommand is a real one."""
    text = path.read_text()
    makefile = (ROOT / "Makefile").read_text()
    for word in re.findall(r"^make ([\w-]+)$|`make ([\w-]+)`", text, re.MULTILINE):
        target = "".join(word)
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target} does not exist"
    commands = re.findall(r"(?:^|`)blockdraft ([a-z]+)\b", text, re.MULTILINE)
    for command in commands:
        file = ROOT / "src" / "blockdraft" / "cli" / f"{command}.py"
        assert file.exists(), f"blockdraft {command} does not exist"


@pytest.mark.parametrize(
    "path",
    # Those two are about other engines, whose flags are theirs; tests of `launch` look at them.
    [path for path in GUIDES if path.stem not in ("integrations", "scaling")],
    ids=lambda path: path.name,
)
def test_flags_named_in_the_docs_exist(path: Path) -> None:
    """U06: every flag that a user is told of is one of the command line's."""
    command_line = (ROOT / "src" / "blockdraft" / "cli").glob("*.py")
    scripts = [*(ROOT / "scripts").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    sources = "".join(file.read_text() for file in [*command_line, *scripts])
    for flag in re.findall(r"(?:^|[ `(])(--[a-z][a-z-]+)", path.read_text(), re.MULTILINE):
        assert f'"{flag}"' in sources, f"{flag} is not a flag of any command"


def test_python_example_is_short_and_imports_public_names() -> None:
    examples = code_blocks(README, "python")
    for example in examples:
        assert len([line for line in example.splitlines() if line.strip()]) <= 10
    init = ast.parse((ROOT / "src" / "blockdraft" / "__init__.py").read_text())
    public = {
        name.value
        for node in ast.walk(init)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for name in ast.walk(node.value)
        if isinstance(name, ast.Constant)
    }
    imported = {
        alias.name
        for example in examples
        for node in ast.walk(ast.parse(example))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported <= public


def test_readme_is_short() -> None:
    assert README.count("\n") <= 180


def test_changelog_has_the_version() -> None:
    assert f"## [{project()['version']}]" in (ROOT / "CHANGELOG.md").read_text()


def test_lower_bounds_are_tested_versions() -> None:
    """Every claimed lower bound is a version that the tests run on: pinned, or in lowest.txt."""
    newest, lowest = pins("constraints.txt"), pins("lowest.txt")
    for requirement in cast("list[str]", project()["dependencies"]):
        match = re.match(r"([\w-]+)>=([\d.]+)", requirement)
        assert match, f"{requirement} claims no lower bound"
        name, bound = match.groups()
        tested = lowest.get(name, newest.get(name, ""))
        padded = f"{tested}.".startswith(f"{bound}.")
        assert padded, f"{name}: {bound} is claimed, {tested} is tested"


def test_everything_in_the_extras_is_pinned() -> None:
    extras = cast("dict[str, list[str]]", project()["optional-dependencies"])
    newest = pins("constraints.txt")
    for requirement in [entry for entries in extras.values() for entry in entries]:
        name = re.split(r"[\[><=]", requirement)[0]
        assert name == "blockdraft" or name in newest, f"{name} is not pinned"
