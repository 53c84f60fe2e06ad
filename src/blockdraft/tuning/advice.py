"""What a tuning comes to, in a sentence or two that promise nothing that was not measured."""

from blockdraft.tuning.search import Choice
from blockdraft.tuning.tune import Tuned


def advise(tuned: Tuned) -> str | None:
    """None before anything was decided."""
    choice, verdict = tuned.choice, tuned.verdict
    if choice is None or verdict is None:
        return None
    at = _at_once(choice.concurrency)
    best = tuned.best
    if verdict == "off" and best is None:
        return (
            f"Leave speculation off: no width is predicted to gain 3% or more with {at}."
            f"{_levels(choice)}"
        )
    assert best is not None
    gains = best.gains(tuned.goal)
    measured = f"{best.gain(tuned.goal):.2f}x (from {min(gains):.2f}x to {max(gains):.2f}x)"
    predicted = f"{best.predicted.gain(tuned.goal):.2f}x"
    if verdict == "off":
        return (
            f"Leave speculation off: {best.mode} was predicted to give {predicted} with {at}, but "
            f"measured it gives {measured}."
        )
    if verdict == "unclear":
        return (
            f"No clear gain: {best.mode} measured {measured} with {at} (predicted {predicted}); "
            "measure with more prompts or --repeats, and leave speculation off until it is clear."
        )
    return (
        f"Use {best.mode}: {measured} of plain decoding's speed with {at}, predicted {predicted}."
        f"{_levels(choice)}"
    )


def _levels(choice: Choice) -> str:
    """By concurrency, where more than one was asked about."""
    levels = choice.by_concurrency
    if len(levels) < 2:
        return ""
    up_to = choice.speculate_up_to
    paying = [one.concurrency for one in levels if one.mode.kind != "off"]
    if up_to is not None and up_to == levels[-1].concurrency:
        return f" Speculation is predicted to pay at all levels, up to {_at_once(up_to)}."
    if up_to is not None:
        return f" Speculate up to {_at_once(up_to)}: beyond, no gain is predicted."
    if paying:
        return f" A gain is predicted only at {', '.join(map(str, paying))} requests at a time."
    return " The same is predicted at all other levels."


def _at_once(num: int) -> str:
    return "1 request at a time" if num == 1 else f"{num} requests at a time"
