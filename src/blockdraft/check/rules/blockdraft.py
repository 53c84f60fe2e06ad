"""What Blockdraft itself makes of a pair.

The verdict on loading is that of the loader, so the two can't part.
"""

from blockdraft.check.facts import PairFacts
from blockdraft.check.findings import Rule, Verdict


def refused(pair: PairFacts) -> Verdict | None:
    refusal = pair.drafter.own_refusal
    if refusal is None:
        return None
    return Verdict(
        f"Blockdraft refuses the pair: {refusal}.",
        "Do what the message says; other findings may name the cause.",
    )


def not_native(pair: PairFacts) -> Verdict | None:
    why = pair.target.why_not_native
    if pair.target.format != "hf" or why is None:
        return None
    if pair.target.unread is not None or pair.target.faults:
        return None
    return Verdict(
        f"The native engine does not run this target ({why}); transformers does, slower.",
        "Nothing, or use a Llama-like target.",
    )


def target_unread(pair: PairFacts) -> Verdict | None:
    why = pair.target.unread
    if pair.target.format != "hf" or why is None:
        return None
    return Verdict(
        f"Blockdraft does not load the target: {why}.",
        "Correct its config.json, or update transformers for a new model type; code from a "
        "checkpoint is never run.",
    )


RULES = (
    Rule("DFL600", "error", "blockdraft", "the loader refuses the pair", refused),
    Rule("DFL601", "note", "blockdraft", "the target runs through transformers", not_native),
    Rule("DFL602", "error", "blockdraft", "the target's configuration is refused", target_unread),
)
