"""Write docs/published.md: the registry of published drafters as a table, with what is not known.

It needs the package installed. `make docs` runs it, a test checks it.
"""

from pathlib import Path

from blockdraft.builtin.published import default_drafter, published_drafters
from blockdraft.builtin.published_entry import PublishedDrafter

PAGE = Path(__file__).resolve().parent.parent / "docs" / "published.md"

HEAD = """# Published drafters

<!-- written by `make docs` from src/blockdraft/builtin/published.toml -->

Every drafter checkpoint that is known to be published, as `blockdraft models --published` lists
them. Nothing here is guessed: what is not known is a dash, and the notes below the table say so.
Parameters follow from the shapes, and agree with what is stated; the size is the stated one of the
files. A test builds every configuration whose shapes are known, without weights, and compares
names, shapes and totals.

`blockdraft generate --target OWNER/NAME` (and `eval`, `verify`, `serve`, `demo`) takes the drafter
marked with a star when no `--drafter` is given. It says which one and how large it is, and
downloads it only after a yes on the terminal or with `--yes`. A target in a folder gets a
suggestion, never a drafter. One that is in the hub's cache is used as it lies there, by its commit:
z-lab replaces files in place, and newer ones are not fetched unasked. Pin what works for you with
`--drafter-revision`.

Layouts: v1 and v2 (DFlash 2) load as they are; speculators: read them with `blockdraft export
--format hf` first (see [export](export.md)); other: not read.

"""

COLUMNS = "| target | drafter | layout | block | layers | hidden, feed-forward | heads | taps |"
MORE = " mask id | thinking | parameters | size |"


def row(one: PublishedDrafter) -> str:
    """A row of the table."""
    default = default_drafter(one.target)
    star = " *" if default is not None and default.chosen is one else ""
    taps = None if one.taps is None else ", ".join(map(str, one.taps))
    if taps is None and one.num_taps is not None:
        taps = f"{one.num_taps} layers"
    number = one.num_parameters
    cells = [
        one.target,
        f"`{one.id}`{star}{' (replaced)' if one.replaced else ''}",
        one.format,
        one.block_size,
        one.layers_text,
        _joined(one.hidden_size, one.intermediate_size),
        _joined(one.num_heads, one.num_kv_heads, one.head_dim),
        taps,
        one.mask_token_id,
        one.thinking,
        None if number is None else f"{number / 1e9:.3f} B",
        one.stated_size,
    ]
    return f"| {' | '.join('-' if cell is None else str(cell) for cell in cells)} |"


def _joined(*sizes: int | None) -> str | None:
    """Sizes with slashes; None when none of them is known."""
    if all(size is None for size in sizes):
        return None
    return "/".join("?" if size is None else str(size) for size in sizes)


def note(one: PublishedDrafter) -> str:
    """What is to be said of an entry."""
    parts = [f"- `{one.id}`"]
    if one.replaced:
        parts.append(" (replaced)")
    if one.revision is not None:
        parts.append(f", revision `{one.revision[:12]}`")
    if one.gated:
        parts.append(", gated")
    if one.licence is not None:
        parts.append(f", {one.licence}")
    parts.append(f": {one.notes}")
    if one.mirrors:
        parts.append(f" Also as {', '.join(f'`{name}`' for name in one.mirrors)}.")
    return "".join(parts)


def page() -> str:
    """The whole document."""
    entries = published_drafters()
    columns = COLUMNS + MORE
    lines = [columns, "|---" * (columns.count("|") - 1) + "|", *map(row, entries)]
    lines += ["", "## Notes", "", *map(note, entries)]
    return HEAD + "\n".join(lines) + "\n"


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
