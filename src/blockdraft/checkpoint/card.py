"""What a drafter's README.md says of its provenance: what it was measured at, and how it was made.

It renders facts that are handed in; what stands around them is the business of who writes the card.
"""

from collections.abc import Mapping

from blockdraft.checkpoint.provenance import TAU_KEY
from blockdraft.json_values import as_object

CARD_FILE = "README.md"
LENGTH = "Acceptance length: tokens committed for each target pass, bonus token included, pooled."


def measured_lines(provenance: Mapping[str, object]) -> list[str]:
    """The section "Measured", without its heading; empty when nothing is recorded."""
    values = as_object(provenance.get("measured"))
    tau, how = provenance.get(TAU_KEY), provenance.get("measured_how")
    if values:
        lines = ["| on | acceptance length |", "|---|---:|"]
        lines += [f"| {name} | {value} |" for name, value in values.items()]
    elif tau is not None:
        lines = [f"Acceptance length {tau} (recorded by its makers)."]
    else:
        return []
    return [*lines, "", LENGTH, *([f"How: {how}."] if isinstance(how, str) else [])]


def made_by_lines(provenance: Mapping[str, object]) -> list[str]:
    """The section "Made by", without its heading; empty when nothing is recorded."""
    training = as_object(provenance.get("training"))
    if not training:
        return []
    lines = [
        f"`{training.get('command')}`, seed {training.get('seed')}: {training.get('steps')} steps"
        f" over {count(training.get('answers'))} answers"
        f" ({count(training.get('answer_tokens'))} tokens) of {training.get('target')}."
    ]
    licenses = as_object(provenance.get("licenses"))
    if licenses:
        lines += ["", "| license of the data | conversations in the answer folders |", "|---|---:|"]
        lines += [f"| {name} | {count(number)} |" for name, number in licenses.items()]
    return lines


def count(value: object) -> str:
    """A recorded number for people; anything else as it is."""
    return f"{value:,}" if isinstance(value, int) else str(value)
