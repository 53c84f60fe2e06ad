"""The rules that keep the tree readable, checked on the text of its files.

Nothing is imported from the package here: the rules are about what the sources say.
"""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
PACKAGE = SRC / "blockdraft"
SOURCES = sorted(PACKAGE.rglob("*.py"))

MODELS = ("builtin", "drafter", "target", "checkpoint", "native")
"""What a target and its drafter are made of."""

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "errors": (),
    "gguf_header": (),
    "json_values": (),
    "decoding": ("errors",),
    "builtin": ("errors",),
    "drafter": ("errors", "decoding"),
    "target": ("errors", "json_values", "gguf_header", "decoding", "builtin"),
    "checkpoint": ("errors", "json_values", "decoding", "builtin", "drafter", "target"),
    "native": ("errors", "json_values", "decoding", "builtin", "drafter", "target"),
    "engine": (
        "errors",
        "decoding",
        "builtin",
        "drafter",
        "target",
        "checkpoint",
        "native",
    ),
    "testing": ("errors", "decoding", "drafter", "target", "checkpoint"),
    "api": (
        "errors",
        "decoding",
        *MODELS,
        "engine",
    ),
    "llm": ("errors", "decoding", "drafter", "target", "native", "engine", "api"),
    "structured": ("errors", "json_values", "decoding", "target"),
    "parsing": ("errors", "json_values", "structured"),
    "data": (
        "errors",
        "json_values",
        "decoding",
        "target",
        "native",
        "engine",
        "api",
    ),
    "evaluation": ("errors", "json_values", "decoding"),
    "recipes": ("errors",),
    "training": (
        "errors",
        "json_values",
        "decoding",
        "builtin",
        "drafter",
        "target",
        "checkpoint",
        "native",
        "api",
        "data",
        "evaluation",
    ),
    "__init__": (
        "errors",
        "decoding",
        "drafter",
        "target",
        "checkpoint",
        "native",
        "engine",
        "api",
        "llm",
    ),
    "interop": (
        "errors",
        "json_values",
        "gguf_header",
        "decoding",
        "builtin",
        "drafter",
        "target",
        "checkpoint",
        "__init__",
    ),
    "check": (
        "errors",
        "json_values",
        "decoding",
        "builtin",
        "drafter",
        "target",
        "checkpoint",
        "native",
        "api",
        "data",
        "evaluation",
        "__init__",
        "interop",
    ),
    "launch": ("errors", "json_values", "gguf_header", "builtin"),
    "bench": (
        "errors",
        "decoding",
        *MODELS,
        "engine",
        "api",
        "data",
        "evaluation",
    ),
    "tuning": (
        "errors",
        "decoding",
        *MODELS,
        "engine",
        "api",
        "data",
        "evaluation",
        "launch",
        "bench",
    ),
    "serving": (
        "errors",
        "decoding",
        *MODELS,
        "engine",
        "api",
        "structured",
        "parsing",
        "__init__",
    ),
    "cli": (
        "errors",
        "json_values",
        "decoding",
        *MODELS,
        "engine",
        "testing",
        "api",
        "llm",
        "data",
        "evaluation",
        "recipes",
        "training",
        "structured",
        "parsing",
        "serving",
        "__init__",
        "interop",
        "check",
        "launch",
        "bench",
        "tuning",
    ),
}
"""For each part of the package, the parts below it that it may import."""

ONLY_IN: dict[str, tuple[str, ...]] = {
    "transformers": ("target", "native", "testing"),
    "accelerate": ("target",),
    "gguf": ("target", "interop"),
    "huggingface_hub": ("target", "checkpoint"),
    "rich": ("cli", "llm"),
    "argparse": ("cli",),
    "pyarrow": ("data",),
    "httpx": ("data", "bench"),
    "fastapi": ("serving",),
    "starlette": ("serving",),
    "uvicorn": ("serving",),
    "pydantic": ("serving",),
    "prometheus_client": ("serving",),
    "xgrammar": ("structured",),
    "datasets": ("data",),
    "matplotlib": ("training", "bench"),
    "wandb": ("training",),
}
"""Modules that stand for a whole concern, and the parts that own it."""

PURE_DEPENDENCIES = ("torch", "jaxtyping")
"""What `decoding` may import besides the standard library and `blockdraft.errors`."""

VAGUE_NAMES = ("utils", "util", "common", "helpers", "helper", "misc", "manager", "tools", "base")
MAX_LINES = 350
TEXT_SUFFIXES = (".py", ".md", ".toml", ".txt", ".json", ".jsonl", ".cfg", ".yml", ".yaml", "")

# Put together here so that this file does not hold them.
FORBIDDEN_TEXT = tuple(
    "".join(parts)
    for parts in (
        ("/wo", "rk/"),
        ("..", "/shared"),
        ("shar", "ed/"),
        ("/ro", "ot/"),
        ("/ho", "me/"),
    )
)


def part_of(path: Path) -> str:
    """The part of the package that a source file belongs to: a folder or a top-level module."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imports_of(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """The import statements of a file, at its top or anywhere inside it."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return tuple(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))


def imported_modules(path: Path) -> list[str]:
    """The absolute dotted names that a file imports, at its top or anywhere inside it."""
    package = ["blockdraft", *path.relative_to(PACKAGE).parts[:-1]]
    modules: list[str] = []
    for node in imports_of(path):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
            continue
        base = package[: len(package) - node.level + 1] if node.level else []
        source = ".".join([*base, node.module] if node.module else base)
        if source == "blockdraft":
            modules += [f"blockdraft.{alias.name}" for alias in node.names]
        else:
            modules.append(source)
    return modules


def imported_part(module: str) -> str | None:
    """The part of our package that a dotted name reaches into; None for other packages."""
    names = module.split(".")
    if names[0] != "blockdraft":
        return None
    return names[1] if len(names) > 1 and names[1] in MAY_IMPORT else "__init__"


def text_files() -> list[Path]:
    """Every text file that is tracked or would be."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout, so what is tracked is not known")
    paths = (ROOT / name for name in listing.stdout.splitlines())
    return sorted(path for path in paths if path.suffix in TEXT_SUFFIXES and path.is_file())


def test_rules_name_only_parts_that_are_ordered() -> None:
    seen: set[str] = set()
    for part, below in MAY_IMPORT.items():
        assert set(below) <= seen, f"{part} may import something that is not below it"
        seen.add(part)


def test_imports_point_down() -> None:
    wrong: list[str] = []
    for path in SOURCES:
        part = part_of(path)
        assert part in MAY_IMPORT, f"{part} is not in the layer table; say where it belongs"
        reached = {imported_part(module) for module in imported_modules(path)}
        upwards = reached - {None, part, *MAY_IMPORT[part]}
        if upwards:
            wrong.append(f"{path.relative_to(SRC)} must not import {sorted(map(str, upwards))}")
    assert not wrong, "\n".join(wrong)


def test_each_concern_has_one_owner() -> None:
    wrong: list[str] = []
    for path in SOURCES:
        roots = {module.split(".")[0] for module in imported_modules(path)}
        strays = {name for name in roots & ONLY_IN.keys() if part_of(path) not in ONLY_IN[name]}
        if strays:
            wrong.append(f"{path.relative_to(SRC)} must not import {sorted(strays)}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", sorted((PACKAGE / "decoding").glob("*.py")), ids=lambda p: p.name)
def test_the_algorithm_is_pure(path: Path) -> None:
    allowed = {*PURE_DEPENDENCIES, *sys.stdlib_module_names, "blockdraft"}
    roots = {module.split(".")[0] for module in imported_modules(path)}
    assert roots <= allowed, f"{path.name} imports {sorted(roots - allowed)}"


def test_modules_are_named_for_what_they_own() -> None:
    vague = [path for path in SOURCES if {path.stem, *path.parent.parts} & set(VAGUE_NAMES)]
    assert not vague


def test_modules_say_what_they_do_and_are_short() -> None:
    for path in SOURCES:
        text = path.read_text()
        name = path.relative_to(SRC)
        assert ast.get_docstring(ast.parse(text)), f"{name} has no docstring"
        assert text.count("\n") <= MAX_LINES, f"{name} is longer than {MAX_LINES} lines: split it"


def test_only_the_command_line_prints() -> None:
    for path in SOURCES:
        if part_of(path) == "cli":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            is_print = isinstance(called, ast.Name) and called.id == "print"
            assert not is_print, f"{path.relative_to(SRC)} prints; return a value instead"


def test_annotations_are_evaluated() -> None:
    """Shapes can't be checked where annotations are kept as strings."""
    for path in SOURCES:
        futures = [name for name in imported_modules(path) if name == "__future__"]
        assert not futures, f"{path.relative_to(SRC)} imports from __future__"


def test_private_names_stay_private() -> None:
    for path in SOURCES:
        for node in imports_of(path):
            if not isinstance(node, ast.ImportFrom):
                continue
            if node.level == 0 and (node.module or "").split(".")[0] != "blockdraft":
                continue
            names = [alias.name for alias in node.names if not alias.name.startswith("__")]
            private = [name for name in names if name.startswith("_")]
            assert not private, f"{path.relative_to(SRC)} imports {private}"


def test_sources_and_docs_are_ascii() -> None:
    for path in text_files():
        if path.is_relative_to(ROOT / "tests" / "data"):
            continue  # prompts as their authors wrote them
        text = path.read_bytes()
        assert text.isascii(), f"{path.relative_to(ROOT)} holds characters outside ASCII"


def test_no_file_names_the_machine_it_was_made_on() -> None:
    for path in text_files():
        text = path.read_text(encoding="utf-8")
        found = [word for word in FORBIDDEN_TEXT if word in text]
        assert not found, f"{path.relative_to(ROOT)} holds {found}"
