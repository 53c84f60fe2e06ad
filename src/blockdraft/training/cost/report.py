"""The estimates of `plan.py` as rows of a table, the same for people and for JSON.

Numbers and words only; who prints them is the command line's business.
"""

from typing import NamedTuple

from blockdraft.training.cost.plan import TrainingCost

UNITS = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
MINUTE = 60
HOUR = 3600
DAY = 24 * HOUR


class CostRow(NamedTuple):
    """One figure. `unit` is "", "B", "FLOP", "FLOP/s" or "s"."""

    name: str
    value: float
    unit: str
    note: str


def cost_rows(cost: TrainingCost) -> list[CostRow]:
    """All figures of a plan, from sizes to time."""
    memory, disk, flops = cost.memory, cost.disk, cost.flops
    rows = [
        CostRow("parameters", cost.parameters, "", "trained; embedding and head are the target's"),
        CostRow("anchors an epoch", cost.anchors_per_epoch, "", "expected, drawn anew every epoch"),
        CostRow("packed rows an epoch", cost.rows_per_epoch, "", "at least"),
        CostRow("memory", sum(memory), "B", "of one process, at the widest moment"),
        CostRow("  weights", memory.weights, "B", "float32, and the copy that is computed with"),
        CostRow("  gradients", memory.gradients, "B", "float32"),
        CostRow("  optimizer", memory.optimizer, "B", "AdamW 2, Muon 1 number a weight"),
        CostRow("  averages", memory.ema, "B", "EMA of the weights"),
        CostRow("  target", memory.target, "B", "all of it, or its table with cached features"),
        CostRow("  features", memory.features, "B", "of one row"),
        CostRow("  activations", memory.activations, "B", "kept for the backward pass"),
        CostRow("  logits", memory.logits, "B", "logits, softmax, gradient of one piece"),
        CostRow("disk", sum(disk), "B", ""),
        CostRow("  feature cache", disk.features, "B", "nothing when computed on the fly"),
        CostRow("  checkpoints", disk.checkpoints, "B", "the best ones and the newest"),
        CostRow("arithmetic", cost.total_flops, "FLOP", "all epochs, forward and backward"),
        CostRow("  drafter layers", flops.layers, "FLOP", "products of block rows"),
        CostRow("  context", flops.context, "FLOP", "fusion, keys and values of all tokens"),
        CostRow("  attention", flops.attention, "FLOP", "pairs that the masks let through"),
        CostRow("  head", flops.head, "FLOP", "frozen: no gradient of its weights"),
        CostRow("  target", cost.target_flops, "FLOP", "its forward passes"),
    ]
    if cost.peak is not None and cost.seconds is not None:
        note = f"at {cost.utilization:.0%} of the peak; prompts, answers, evaluation not included"
        rows += [
            CostRow("peak", cost.peak, "FLOP/s", "measured product of 4096 x 4096 matrices"),
            CostRow("time", cost.seconds, "s", note),
        ]
    return rows


def value_text(row: CostRow) -> str:
    """The value with its unit, in three digits: "31.6 MB", "1 h 20 min"."""
    if row.unit == "s":
        return _time_text(row.value)
    for prefix, factor in UNITS:
        if row.value >= factor:
            text = f"{row.value / factor:.3g} {prefix}{row.unit}"
            return text.rstrip()
    return f"{row.value:.3g} {row.unit}".rstrip()


def _time_text(seconds: float) -> str:
    if seconds < MINUTE:
        return f"{seconds:.0f} s"
    if seconds < HOUR:
        return f"{seconds / MINUTE:.0f} min"
    if seconds < DAY:
        hours, rest = divmod(round(seconds / MINUTE), 60)
        return f"{hours} h {rest} min"
    return f"{seconds / DAY:.1f} days"
