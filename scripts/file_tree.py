"""Write the file trees of the docs: every file of the package with its docstring's first line.

It only rewrites what stands between the two marker lines; `make docs` runs it, a test checks it.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "blockdraft"
BEGIN = "<!-- file tree: written by `make docs` -->"
END = "<!-- end of file tree -->"


def summary(path: Path) -> str:
    """The first line of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return docstring.partition("\n")[0].removesuffix(".")


def line(name: str, path: Path) -> str:
    return f"{name:<24} {summary(path)}"


def package_lines() -> list[str]:
    """The folders of the package and its top-level modules, one line each."""
    folders = sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))
    modules = sorted(path for path in PACKAGE.glob("*.py") if path.name != "__init__.py")
    lines = [line("src/blockdraft/", PACKAGE / "__init__.py")]
    lines += [line(f"  {path.name}", path) for path in modules]
    lines += [line(f"  {folder.name}/", folder / "__init__.py") for folder in folders]
    return lines


def file_lines() -> list[str]:
    """Every module of the package, folder by folder."""
    lines: list[str] = []
    for head in package_lines():
        lines.append(head)
        name = head.split()[0]
        if not name.endswith("/") or name.startswith("src"):
            continue
        folder = PACKAGE / name
        modules = sorted(path for path in folder.rglob("*.py") if path != folder / "__init__.py")
        lines += [line(f"    {path.relative_to(folder)}", path) for path in modules]
    return lines


def with_tree(text: str, lines: list[str]) -> str:
    """`text` with the tree between its markers replaced."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"file_tree: the lines '{BEGIN}' and '{END}' are missing")
    tree = "\n".join(lines)
    return f"{before}{BEGIN}\n```\n{tree}\n```\n{END}{after}"


def documents() -> dict[Path, list[str]]:
    """The documents that hold a tree, and the lines each should show."""
    return {
        ROOT / "README.md": package_lines(),
        ROOT / "docs" / "architecture.md": file_lines(),
    }


def main() -> None:
    for path, lines in documents().items():
        path.write_text(with_tree(path.read_text(), lines))


if __name__ == "__main__":
    main()
