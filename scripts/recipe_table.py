"""Write the reference of recipe settings in docs/training.md: every table, key, default, meaning.

Keys, kinds and defaults are read from the dataclasses of `training/config.py` without importing
them. It only rewrites what stands between the two marker lines; `make docs` runs it, a test checks
it.
"""

import ast
from pathlib import Path
from typing import NamedTuple, cast

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "blockdraft"
PAGE = ROOT / "docs" / "training.md"
BEGIN = "<!-- recipe settings: written by `make docs` -->"
END = "<!-- end of recipe settings -->"

QUOTE = '"'
KINDS = {"str": "text", "int": "integer", "float": "number", "bool": "true, false"}

MEANINGS = {
    "data.answers": "folders of `blockdraft data regenerate`; several count as one",
    "data.heldout": "a folder of answers to hold out instead of a share; not with cached features",
    "data.heldout_share": "share of the answers that is never trained on: whole conversations, "
    "chosen by a hash of their ids, categories in turn",
    "data.heldout_answers": "at most so many of them",
    "data.features": "caches of `blockdraft data features`, one for each of `answers`; empty = on "
    "the fly",
    "data.limit": "only the first so many answers",
    "data.accept_other_target": "take answers that are recorded as those of another target or "
    "chat template; else they are refused",
    "data.samples.max_tokens": "longest sample, prompt included",
    "data.samples.min_answer_tokens": "shorter answers are bad ones; 2 at least, anchor and label",
    "data.samples.on_long": 'a sample that is longer: "cut" keeps its beginning, "skip" leaves it '
    'out, "refuse" ends the run',
    "data.samples.on_bad": "a short answer, no prompt, ids outside the vocabulary",
    "data.samples.categories": "only these; empty = all",
    "target.model": "built-in name, folder, hub id or GGUF file",
    "target.dtype": '"auto" = bfloat16; nothing is chosen by timing, so that every process '
    "computes the same features",
    "target.engine": '"auto" = the native decoder where it fits',
    "target.revision": "commit, tag or branch of a hub id",
    "drafter.num_layers": "depth",
    "drafter.block_size": "tokens of a block, anchor included; not set = 16, or the checkpoint's",
    "drafter.num_taps": "tapped target layers, spread from the second to the third-last",
    "drafter.taps": "the tapped layers by number (zero-based) instead",
    "drafter.mask_token": "text or id of the token in masked slots; not set = the first embedding "
    "row without a text, else an unused special token",
    "drafter.intermediate_size": "width of the feed-forward; not set = the target's",
    "drafter.layer_types": "one for each layer; empty = all full",
    "drafter.sliding_window": "how far `sliding_attention` layers see, in tokens",
    "drafter.is_causal": "whether slots see only slots before them; not set = by the kind of layer",
    "drafter.draft_vocab_size": "the most frequent tokens of the answers that can be drafted; not "
    "set = all, or the checkpoint's",
    "drafter.init": '"scratch" (random), "target" (copies of its layers), or the folder or name of '
    "a drafter to go on from",
    "drafter.init_layers": 'with "target": which layers, one for each; empty = spread',
    "anchors.per_sample": "at most so many anchors of a sample in an epoch",
    "anchors.stride": "at most one anchor for so many answer tokens",
    "packing.row_tokens": "a packed row ends before it holds more tokens",
    "packing.row_anchors": "or more anchors",
    "packing.rows_per_step": "rows of one optimizer step, over all processes",
    "packing.shuffle": "a new order every epoch; off = that of the answers",
    "loss.name": "see [losses](#losses-and-weights)",
    "loss.weighting": "how slots weigh against each other",
    "loss.gamma": 'of "decay"; not set = 7, 5, 4 for blocks of 16, 10, 8',
    "loss.dpace_alpha": 'smoothing of "dpace"',
    "loss.lk_eta": 'of "lk"',
    "optimizer.name": '"muon" = Muon for the matrices of linear layers, AdamW for the rest',
    "optimizer.lr": "AdamW's rate",
    "optimizer.muon_lr": "Muon's rate",
    "optimizer.weight_decay": "of matrices only",
    "optimizer.betas": "AdamW's",
    "optimizer.eps": "AdamW's",
    "optimizer.momentum": "Muon's",
    "optimizer.ns_steps": "Newton-Schulz iterations of Muon",
    "optimizer.ns_dtype": "what they compute in; see [numbers of ranks](#numbers-of-ranks)",
    "optimizer.adamw_names": "linear layers whose names begin so are left to AdamW, at `lr`",
    "schedule.kind": 'after a linear warm-up; "wsd" = constant, then a decay at the end',
    "schedule.warmup_ratio": "length of the warm-up as a share of the run",
    "schedule.warmup_steps": "the same in steps, instead",
    "schedule.min_ratio": "share of the rate at the end",
    "schedule.decay_ratio": 'share of the run in which "wsd" decays',
    "schedule.decay": "its form: 1 - sqrt, or a straight line",
    "eval.simulate_every": "steps between simulated tau over the held-out answers; 0 = never",
    "eval.decode_every": "steps between real decoding of `prompts`; 0 = never",
    "eval.prompts": "file of prompts, as `blockdraft eval` reads it",
    "eval.decode_limit": "its first so many",
    "eval.max_new_tokens": "of each answer then",
    "run.epochs": "passes over the answers",
    "run.steps": "optimizer steps instead of epochs",
    "run.seed": "of first weights, order and anchors",
    "run.precision": '"bfloat16" = products in it (autocast) over float32 weights',
    "run.clip": "longest gradient norm; a longer one is scaled down",
    "run.ema": "decay of an average of the weights, like 0.999, which is then evaluated and "
    "exported",
    "run.recompute": "gradient checkpointing: less memory, one more forward pass",
    "run.sharding": "several processes: replicas, or shards (FSDP2)",
    "run.save_every": "steps between checkpoints",
    "run.keep_last": "newest checkpoints that stay",
    "run.keep_best": "best checkpoints that stay, by evaluated tau",
    "run.tensorboard": "event files in the run folder as well",
    "run.wandb_project": "a Weights & Biases run as well (needs `pip install wandb`)",
}
"""What each setting means; a setting without an entry, or the other way round, is an error."""


class Setting(NamedTuple):
    """One key of a recipe; `default` is TOML, None = required, "" = not set."""

    table: str
    key: str
    kind: str
    default: str | None


class Named(NamedTuple):
    """A class, or the value of an assignment, and the module that it stands in."""

    module: str
    node: ast.ClassDef | ast.expr


def find(module: str, name: str) -> Named | None:
    """What `name` is in a module of the package, followed through its imports."""
    path = PACKAGE.parent / f"{module.replace('.', '/')}.py"
    if not path.exists():
        return None
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return Named(module, node)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return Named(module, node.value)
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            return find(node.module or "", name)
    return None


def settings() -> list[Setting]:
    """All settings of a recipe, table by table."""
    found = _section("blockdraft.training.config", "RunConfig", "")
    assert all(one.table for one in found), "RunConfig holds sections only"
    return found


def _section(module: str, name: str, table: str) -> list[Setting]:
    """The settings of one dataclass, then those of the dataclasses in it."""
    section = find(module, name)
    assert section is not None and isinstance(section.node, ast.ClassDef)
    own: list[Setting] = []
    inner: list[Setting] = []
    for node in section.node.body:
        if not isinstance(node, ast.AnnAssign):
            continue
        key, annotation = ast.unparse(node.target), ast.unparse(node.annotation)
        named = find(section.module, annotation)
        if named is not None and isinstance(named.node, ast.ClassDef):
            inner += _section(named.module, annotation, f"{table}.{key}" if table else key)
            continue
        default = None if node.value is None else toml(ast.literal_eval(node.value))
        own.append(Setting(table, key, kind(section.module, node.annotation), default))
    return own + inner


def kind(module: str, annotation: ast.expr) -> str:
    """What a key takes, in words."""
    if isinstance(annotation, ast.BinOp):
        sides = (annotation.left, annotation.right)
        return " or ".join(kind(module, side) for side in sides if ast.unparse(side) != "None")
    if isinstance(annotation, ast.Name):
        if annotation.id in KINDS:
            return KINDS[annotation.id]
        alias = find(module, annotation.id)
        assert alias is not None and isinstance(alias.node, ast.expr)
        return kind(alias.module, alias.node)
    assert isinstance(annotation, ast.Subscript)
    of = annotation.slice
    parts = of.elts if isinstance(of, ast.Tuple) else [of]
    if ast.unparse(annotation.value) == "Literal":
        return ", ".join(toml(ast.literal_eval(part)) for part in parts)
    many = kind(module, parts[0])
    number = "" if ast.unparse(parts[-1]) == "..." else f"{len(parts)} "
    return f"list of {number}{many}{'' if many.startswith(QUOTE) else 's'}"


def toml(value: object) -> str:
    """A default as a recipe would write it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(toml(one) for one in cast('tuple[object, ...]', value))}]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def table_lines() -> list[str]:
    """The reference in Markdown. Ends the program when meanings and settings don't fit."""
    found = settings()
    odd = {f"{one.table}.{one.key}" for one in found} ^ MEANINGS.keys()
    if odd:
        raise SystemExit(f"recipe_table: MEANINGS does not fit the settings: {sorted(odd)}")
    lines: list[str] = []
    for table in dict.fromkeys(one.table for one in found):
        lines += [f"`[{table}]`", "", "| key | default | takes | meaning |", "|---|---|---|---|"]
        for one in found:
            if one.table == table:
                meaning = MEANINGS[f"{table}.{one.key}"]
                lines.append(f"| `{one.key}` | {_default(one)} | {one.kind} | {meaning} |")
        lines.append("")
    return lines


def _default(setting: Setting) -> str:
    if setting.default is None:
        return "required"
    return f"`{setting.default}`" if setting.default else "not set"


def with_table(text: str) -> str:
    """`text` with the reference between its markers replaced."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"recipe_table: the lines '{BEGIN}' and '{END}' are missing")
    lines = "\n".join(table_lines())
    return f"{before}{BEGIN}\n\n{lines}\n{END}{after}"


def main() -> None:
    PAGE.write_text(with_table(PAGE.read_text()))


if __name__ == "__main__":
    main()
