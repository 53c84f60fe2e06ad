"""Write the support table in docs/targets.md: every family, how it is rolled back, what tests it.

It needs the package installed, and builds the tiny model of every family. It only rewrites what
stands between the two marker lines; `make docs` runs it, a test checks it.
"""

import re
from pathlib import Path
from typing import Any, cast

from blockdraft.builtin.published import published_drafters
from blockdraft.native.config import why_not_native
from blockdraft.target.caches import LayerKind, layer_kinds
from blockdraft.target.hf import HFTarget
from blockdraft.target.quiet import quiet
from blockdraft.testing.families import GRID, TinyFamily, family_config, family_model

PAGE = Path(__file__).resolve().parent.parent / "docs" / "targets.md"
BEGIN = "<!-- support table: written by `make docs` -->"
END = "<!-- end of the support table -->"

PUBLISHED = {
    "llama3": r"Llama-3\.",
    "qwen2": r"Qwen2(\.5)?-",
    "qwen3": r"Qwen3-(4B|8B)$",
    "qwen3_moe": r"Qwen3-(Coder-)?30B-A3B",
    "qwen3_next": r"Qwen3-(Coder-)?Next",
    "qwen3_5_vl": r"Qwen3\.[56]-[0-9.]+B$",
    "qwen3_5_moe_vl": r"Qwen3\.[56]-[0-9]+B-A[0-9]+B",
    "gpt_oss": r"gpt-oss-",
    "gemma4_unified": r"gemma-4-12B",
    "gemma4_moe_vl": r"gemma-4-(26B-A4B|31B)",
    "kimi_k25": r"Kimi-K2\.[567]",
    "glm5": r"GLM-5(\.1)?(-FP8)?$",
    "glm5_next": r"GLM-5\.3-Flash",
    "minimax_m2": r"MiniMax-M2\.",
    "muse_glimmer": r"Muse-Glimmer",
    "muse_spark": r"Muse-Spark",
    "laguna": r"Laguna",
    "lfm2": r"LFM2(\.5)?-1\.2B",
    "deepseek_v4": r"DeepSeek-V4",
}
"""Which targets of published drafters are of which family, by the name behind the owner's."""

WORDS: dict[str, tuple[LayerKind, ...]] = {
    "cut": ("full", "window", "indexed", "mixed", "mixed_window"),
    "windows kept": ("window", "mixed_window"),
    "index cut": ("indexed",),
    "replay": ("recurrent", "mixed", "mixed_window"),
}
"""The words that `docs/targets.md` explains, for the kinds of layers that each is of."""


def is_of(family: TinyFamily, target: str) -> bool:
    """Whether a published drafter's target is of this family."""
    pattern = PUBLISHED.get(family.key)
    return pattern is not None and re.search(pattern, target.rpartition("/")[2]) is not None


def drafters_of(family: TinyFamily) -> list[str]:
    """The published drafters of the family's models, replaced ones once."""
    found = [one.id for one in published_drafters() if one.weights and is_of(family, one.target)]
    return list(dict.fromkeys(found))


def elsewhere() -> list[str]:
    """The targets of published drafters that are of no family in the table."""
    targets = dict.fromkeys(one.target for one in published_drafters())
    return [one for one in targets if not any(is_of(family, one) for family in GRID)]


def rollback(family: TinyFamily) -> str:
    """How the layers of the family are rolled back, as its adapter does it."""
    with quiet():
        target = HFTarget(family_model(family), name=family.key)
    text: Any = cast(Any, family_config(family)).get_text_config(decoder=True)
    found = set(layer_kinds(family.key, text))
    words = [word for word, kinds in WORDS.items() if found.intersection(kinds)]
    if target.feeds_by_rows:
        words.append("row by row")
    return ", ".join(words)


def adapter(family: TinyFamily) -> str:
    return "transformers" if family.vision is None else "transformers, text part"


def native(family: TinyFamily) -> str:
    """Whether the native engine takes the family."""
    return "yes" if why_not_native(family_config(family)) is None else "no"


def name(family: TinyFamily) -> str:
    """The family with its examples as a cell."""
    lines = [family.title, *(f"`{example}`" for example in family.examples)]
    if family.newer_than is not None:
        lines.append(f"(transformers newer than {family.newer_than})")
    return "<br>".join(lines)


def row(family: TinyFamily) -> str:
    """A row of the table of what works."""
    cells = [
        name(family),
        family.layers,
        adapter(family),
        rollback(family),
        drafters(family),
        native(family),
        f"`{family.key}`",
    ]
    return f"| {' | '.join(cells)} |"


def refused_row(family: TinyFamily) -> str:
    """A row of the table of what is refused."""
    cells = [name(family), family.refused, drafters(family), f"`{family.key}`"]
    return f"| {' | '.join(map(str, cells))} |"


def drafters(family: TinyFamily) -> str:
    """Its published drafters as a cell."""
    names = [f"`{drafter}`" for drafter in drafters_of(family)]
    if not family.taps:
        names.append("(can't be tapped)")
    return "<br>".join(names) or "-"


def table_lines() -> list[str]:
    """Both tables, and the published targets that are in neither."""
    lines = [
        "| family, examples | layers | adapter | roll back | published drafters | native | test |",
        "|---|---|---|---|---|---|---|",
        *(row(family) for family in GRID if family.refused is None),
        "",
        "Refused when they are loaded:",
        "",
        "| family, examples | reason | published drafters | test |",
        "|---|---|---|---|",
        *(refused_row(family) for family in GRID if family.refused is not None),
        "",
        "Targets of published drafters whose family is not known here (tried out when they are "
        "loaded, as any model is):",
        "",
    ]
    lines.append(", ".join(f"`{target}`" for target in elsewhere()) + ".")
    return lines


def with_table(text: str) -> str:
    """`text` with the tables between its markers replaced."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"target_table: the lines '{BEGIN}' and '{END}' are missing")
    lines = "\n".join(table_lines())
    return f"{before}{BEGIN}\n\n{lines}\n\n{END}{after}"


def main() -> None:
    PAGE.write_text(with_table(PAGE.read_text()))


if __name__ == "__main__":
    main()
