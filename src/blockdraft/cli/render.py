"""Answers, statistics and conditions in the shapes that `--json` prints, and as tables for people.

It writes nowhere; the JSON shapes are those of docs/cli.md and change only with a new version.
"""

from collections.abc import Mapping
from itertools import accumulate, pairwise

from rich.table import Table

from blockdraft.cli.answers import Answer, Failure
from blockdraft.cli.tables import new_table
from blockdraft.cli.widths import Widths, widths_text
from blockdraft.decoding import AcceptanceStats, TokenLogprobs


def stats_json(stats: AcceptanceStats) -> dict[str, object]:
    """The figures of one or more answers; None where nothing was verified."""
    return {
        "tau": stats.tau,
        "tau_drafted": stats.tau_drafted,
        "steps": stats.steps,
        "tokens": stats.tokens,
        "seconds": stats.seconds,
        "prefill_seconds": stats.prefill_seconds,
        "tokens_per_second": stats.tokens_per_second,
        "acceptance_by_position": list(stats.acceptance_by_position),
        "steps_by_width": steps_by_width(stats),
    }


def steps_by_width(stats: AcceptanceStats) -> list[int]:
    """Entry k counts the steps that verified k drafts, so k + 1 tokens with the anchor.

    Drafts that were accepted beyond the end of an answer may not count.
    """
    if not stats.steps:
        return []
    at_least = [0, *accumulate(reversed(stats.drafted), max), stats.steps]
    return [wide - wider for wider, wide in pairwise(at_least)][::-1]


def answer_json(answer: Answer, *, has_text: bool) -> dict[str, object]:
    """One line of `generate --json`. Text is null for a target without a tokenizer."""
    completion = answer.completion
    line: dict[str, object] = {
        "id": answer.record.id,
        "turn": answer.turn,
        "prompt_ids": list(completion.prompt_ids),
        "token_ids": list(completion.token_ids),
        "text": completion.text if has_text else None,
        "finish_reason": completion.finish_reason,
        "stats": stats_json(completion.stats),
    }
    if completion.logprobs:
        pairs = zip(completion.token_ids, completion.logprobs, strict=True)
        line["logprobs"] = [_logprob_json(token_id, entry) for token_id, entry in pairs]
    return line


def failure_json(failure: Failure) -> dict[str, object]:
    """One line of `generate --json` for a turn that has no answer."""
    return {"id": failure.record.id, "turn": failure.turn, "error": str(failure.error)}


def _logprob_json(token_id: int, entry: TokenLogprobs) -> dict[str, object]:
    top = [{"token_id": top_id, "logprob": value} for top_id, value in entry.top]
    return {"token_id": token_id, "logprob": entry.logprob, "top": top}


def figure(value: float | None, digits: int = 2) -> str:
    """A number for a table; "-" where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"


def stats_table(stats_by_name: Mapping[str, AcceptanceStats], widths: Widths) -> Table:
    """One row a group of answers; below, how often each draft was accepted and what was chosen."""
    table = new_table(
        "acceptance and speed",
        "prompts",
        (
            "answers",
            "tokens",
            "steps",
            "tau",
            "tau\ndrafted",
            "seconds",
            "prefill\nseconds",
            "tok/s",
        ),
    )
    for name, stats in stats_by_name.items():
        table.add_row(
            name,
            str(stats.requests),
            str(stats.tokens),
            str(stats.steps),
            figure(stats.tau),
            figure(stats.tau_drafted),
            figure(stats.seconds),
            figure(stats.prefill_seconds),
            figure(stats.tokens_per_second, 1),
        )
    rates = [figure(rate) for rate in stats_by_name["all"].acceptance_by_position]
    accepted = [f"accepted at draft 1, 2, ..: {' '.join(rates)}"] if rates else []
    table.caption = "\n".join((*accepted, widths_text(widths)))
    return table
