"""The result of `blockdraft eval` as one JSON document and as tables for people.

It decodes nothing; the shape of the JSON is that of docs/cli.md.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from blockdraft.cli.answers import AnswerOptions
from blockdraft.cli.console import emit
from blockdraft.cli.pair import Conditions
from blockdraft.cli.race import repeats_itself
from blockdraft.cli.render import figure
from blockdraft.cli.tables import new_table, open_console
from blockdraft.decoding import SamplingParams
from blockdraft.evaluation import (
    AcceptanceResult,
    AnswerCount,
    EvalPrompt,
    EvalPrompts,
    LaneAnswers,
    num_identical,
    pool_answers,
    speedup,
    time_of,
)
from blockdraft.evaluation.bootstrap import SEED as BOOTSTRAP_SEED

NOT_IN_SETTINGS = ("logprobs", "processors")
PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Everything that was decoded and all that it depends on.

    `drafted` names the lane that is evaluated; `repeats` is None where nothing was timed, and
    `answers` then holds that lane alone.
    """

    conditions: Conditions
    block_size: int
    drafted: str
    file: EvalPrompts
    prompts: tuple[EvalPrompt, ...]
    prompt_lens: tuple[int, ...]
    params: SamplingParams
    prompt_options: AnswerOptions
    limit: int | None
    repeats: int | None
    answers: LaneAnswers

    @property
    def is_timed(self) -> bool:
        return self.repeats is not None

    @property
    def drafted_answers(self) -> tuple[AnswerCount, ...]:
        return self.answers[self.drafted]

    def speedup_of(self, name: str, rows: Sequence[int] | None = None) -> float | None:
        """Of one lane over plain decoding, on all prompts or on those of `rows`."""
        if not self.is_timed:
            return None
        chosen = range(len(self.prompts)) if rows is None else rows
        plain, other = self.answers[PLAIN], self.answers[name]
        return speedup([plain[row] for row in chosen], [other[row] for row in chosen])


def evaluation_json(evaluation: Evaluation, *, details: bool) -> dict[str, object]:
    """The document: what was asked for first, then what it is made of."""
    result = pool_answers(evaluation.drafted_answers)
    return {
        "tau": result.tau,
        "tau_ended": result.tau_ended,
        "acceptance_by_position": list(result.acceptance_by_position),
        "speedup": evaluation.speedup_of(evaluation.drafted),
        "tau_interval": list(result.tau_interval) if result.tau_interval else None,
        "tau_drafted": result.stats.tau_drafted,
        "mean_accepted": result.mean_accepted,
        "conditional_acceptance": list(result.conditional_acceptance),
        "committed_histogram": list(result.committed_histogram),
        "answers": _answers_json(result),
        "categories": [_category_json(evaluation, name) for name in categories(evaluation)],
        "systems": [_system_json(evaluation, name) for name in system_names(evaluation)],
        "settings": settings_json(evaluation),
        "prompts": [_row_json(evaluation, row) for row in range(len(evaluation.prompts))]
        if details
        else [],
    }


def categories(evaluation: Evaluation) -> list[str]:
    """In the order in which they first occur; "" holds the prompts without one."""
    return list(dict.fromkeys(prompt.category for prompt in evaluation.prompts))


def system_names(evaluation: Evaluation) -> list[str]:
    """Plain decoding first; nothing where nothing was timed."""
    if not evaluation.is_timed:
        return []
    return [PLAIN, *(name for name in evaluation.answers if name != PLAIN)]


def settings_json(evaluation: Evaluation) -> dict[str, object]:
    """What the figures depend on, so that they can be had again."""
    conditions = asdict(evaluation.conditions)
    del conditions["width"]  # an evaluation drafts whole blocks, always
    conditions["block_size"] = evaluation.block_size
    params, prompt = evaluation.params, evaluation.prompt_options.prompt
    sampling = {
        field.name: getattr(params, field.name)
        for field in fields(SamplingParams)
        if field.name not in NOT_IN_SETTINGS
    }
    sampling["logit_bias"] = [[token_id, bias] for token_id, bias in params.logit_bias.items()]
    return {
        **conditions,
        "decoder": "reference loop, one prompt at a time",
        "prompts_file": str(evaluation.file.path),
        "prompts_sha256": evaluation.file.sha256,
        "limit": evaluation.limit,
        "turns": "first user turn",
        "raw": prompt.raw,
        "system": evaluation.prompt_options.system,
        "template_args": [[key, value] for key, value in (prompt.template_args or {}).items()],
        "repeats": evaluation.repeats,
        "bootstrap_seed": BOOTSTRAP_SEED,
        "sampling": sampling,
    }


def _answers_json(result: AcceptanceResult) -> dict[str, object]:
    return {
        "total": len(result.answers),
        "ended": result.num_ended,
        "at_limit": len(result.answers) - result.num_ended,
        "repeating": num_repeating(result.answers),
        "tokens": result.stats.tokens,
        "steps": result.stats.steps,
    }


def num_repeating(answers: Sequence[AnswerCount]) -> int:
    """Answers that run in circles, which makes a drafter look better than it is."""
    return sum(repeats_itself(answer.token_ids) for answer in answers)


def _category_json(evaluation: Evaluation, name: str) -> dict[str, object]:
    rows, result = category_result(evaluation, name)
    return {
        "category": name,
        "tau": result.tau,
        "tau_ended": result.tau_ended,
        "tau_interval": list(result.tau_interval) if result.tau_interval else None,
        "speedup": evaluation.speedup_of(evaluation.drafted, rows),
        "answers": _answers_json(result),
    }


def category_result(evaluation: Evaluation, name: str) -> tuple[list[int], AcceptanceResult]:
    """The rows of a category and the acceptance over them."""
    rows = [row for row, prompt in enumerate(evaluation.prompts) if prompt.category == name]
    return rows, pool_answers([evaluation.drafted_answers[row] for row in rows])


def _system_json(evaluation: Evaluation, name: str) -> dict[str, object]:
    answers = evaluation.answers[name]
    time, result = time_of(answers), pool_answers(answers)
    return {
        "name": name,
        "tau": result.tau,
        "tokens": time.tokens,
        "seconds": time.seconds,
        "prefill_seconds": time.prefill_seconds,
        "tokens_per_second": time.tokens_per_second,
        "speedup": evaluation.speedup_of(name),
        "identical": num_identical(evaluation.answers[PLAIN], answers),
        "different": len(answers) - num_identical(evaluation.answers[PLAIN], answers),
    }


def _row_json(evaluation: Evaluation, row: int) -> dict[str, object]:
    prompt, answer = evaluation.prompts[row], evaluation.drafted_answers[row]
    times = [
        {"name": name, "seconds": evaluation.answers[name][row].stats.seconds}
        for name in system_names(evaluation)
    ]
    return {
        "id": prompt.id,
        "line": prompt.line,
        "category": prompt.category,
        "prompt_tokens": evaluation.prompt_lens[row],
        "tokens": answer.stats.tokens,
        "steps": answer.stats.steps,
        "tau": answer.stats.tau,
        "finish_reason": answer.finish_reason,
        "repeats_itself": repeats_itself(answer.token_ids),
        "systems": times,
    }


def print_evaluation(evaluation: Evaluation) -> None:
    """Tables on stdout: acceptance by category, then the systems side by side."""
    console = open_console(stderr=False)
    conditions = evaluation.conditions
    emit(
        f"{conditions.target} with {conditions.drafter}, blocks of {evaluation.block_size}, "
        f"{conditions.dtype}, {conditions.engine} engine, {conditions.threads} threads\n"
        f"{conditions.hardware}; {conditions.software}\n"
        f"{evaluation.file.path} (sha256 {evaluation.file.sha256[:12]}), "
        f"{sampling_text(evaluation)}\n"
    )
    result = pool_answers(evaluation.drafted_answers)
    table = new_table(
        "acceptance", "prompts", ("answers", "ended", "tokens", "steps", "tau", "tau ended")
    )
    several = categories(evaluation)
    names = [name for name in several if name and len(several) > 1]
    groups = [(name, category_result(evaluation, name)[1]) for name in names]
    for name, group in [*groups, ("all", result)]:
        counts = (len(group.answers), group.num_ended, group.stats.tokens, group.stats.steps)
        table.add_row(name, *map(str, counts), figure(group.tau), figure(group.tau_ended))
    console.print(table)
    emit("\n".join(acceptance_notes(result)))
    if evaluation.is_timed:
        _print_systems(evaluation)


def sampling_text(evaluation: Evaluation) -> str:
    """How answers were chosen and cut, and which part of a conversation was asked."""
    params = evaluation.params
    if params.is_greedy:
        law = "greedy"
    else:
        law = f"temperature {params.temperature:g}, {params.law} law, seed {params.seed}"
    turns = any(prompt.num_turns > 1 for prompt in evaluation.prompts)
    first = ", first user turns only" if turns else ""
    return f"{law}, at most {params.max_new_tokens} new tokens{first}"


def acceptance_notes(result: AcceptanceResult) -> list[str]:
    """What stands below the table of tau."""
    notes: list[str] = []
    if result.tau_interval is not None:
        low, high = result.tau_interval
        notes.append(f"tau of all: {low:.2f} to {high:.2f} (95%, bootstrap over prompts)")
    if result.acceptance_by_position:
        rates = " ".join(figure(rate) for rate in result.acceptance_by_position)
        given = " ".join(figure(rate) for rate in result.conditional_acceptance)
        notes.append(f"accepted at slot 1, 2, ..: {rates}")
        notes.append(f"given all slots before:    {given}")
    repeating = num_repeating(result.answers)
    if repeating:
        notes.append(f"{repeating} answers repeat themselves, which flatters the drafter")
    return notes


def _print_systems(evaluation: Evaluation) -> None:
    emit("")
    table = new_table(
        "speed, prefills inside",
        "system",
        ("tokens", "seconds", "tok/s", "tau", "speedup", "identical"),
    )
    for name in system_names(evaluation):
        answers = evaluation.answers[name]
        time = time_of(answers)
        table.add_row(
            name,
            str(time.tokens),
            figure(time.seconds),
            figure(time.tokens_per_second, 1),
            figure(pool_answers(answers).tau),
            figure(evaluation.speedup_of(name)),
            f"{num_identical(evaluation.answers[PLAIN], answers)} of {len(answers)}",
        )
    open_console(stderr=False).print(table)
    emit(
        "speedup: plain seconds a token over the system's; identical: plain decoding's very tokens"
    )
