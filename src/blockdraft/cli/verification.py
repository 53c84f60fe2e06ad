"""What `blockdraft verify` does: the reference once, the engine at every width, and a verdict.

How answers are compared is in `comparison.py`.
"""

import math
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from blockdraft.cli.answers import AnswerOptions, Conversation
from blockdraft.cli.comparison import NEAR_TIE, Difference, decode_reference, find_difference
from blockdraft.cli.console import emit, emit_json, say
from blockdraft.cli.default_drafter import settle_drafter
from blockdraft.cli.engines import engine_config, open_engine, open_plain
from blockdraft.cli.generation import answer_options, prepare_params
from blockdraft.cli.pair import Pair, load_pair
from blockdraft.cli.progress import progress_bar
from blockdraft.cli.prompts import PromptRecord, builtin_prompts, read_prompts
from blockdraft.cli.render import figure, stats_json
from blockdraft.cli.sampling import read_sampling, warn_of_no_effect
from blockdraft.cli.tables import new_table, open_console
from blockdraft.cli.values import Width
from blockdraft.decoding import AcceptanceStats, SamplingParams, collect
from blockdraft.engine import EngineConfig, Session, WidthMode
from blockdraft.errors import ConfigError, Error

DEFAULT_MAX_NEW_TOKENS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One turn decoded by the engine at one width, against the reference's plain decoding."""

    record: PromptRecord
    turn: int
    width: Width
    stats: AcceptanceStats
    difference: Difference | None


def verify_promise(args: Namespace) -> int:
    """Run the command; 1 when an answer differs and its margin does not explain it."""
    params = read_sampling(args)
    if args.max_new_tokens is None:
        params = replace(params, max_new_tokens=DEFAULT_MAX_NEW_TOKENS)
    _check_args(args, params)
    prompts = read_prompts(args) or builtin_prompts()
    warn_of_no_effect(params, settle_drafter(args))
    pair = load_pair(args)
    epsilon = float(NEAR_TIE[pair.conditions.dtype] if args.epsilon is None else args.epsilon)
    widths = choose_widths(args.widths, pair)
    sessions = open_sessions(pair, widths, engine_config(args, pair.width))
    params = prepare_params(pair, params, args.bad_words)
    checks: list[Check] = []
    num_failed = 0
    with progress_bar(len(prompts.records), "prompts") as advance:
        for record in prompts.records:
            try:
                options = answer_options(args)
                checks += check_record(pair, record, params, options, sessions, epsilon)
            except Error as error:
                if not prompts.from_file:
                    raise
                num_failed += 1
                say(f"prompt {record.id!r}: {error}")
            advance()
    if args.json:
        emit_json(checks_json(pair, checks, widths, epsilon, num_failed), indent=2)
    else:
        print_checks(pair, checks, widths, epsilon)
    explained = all(c.difference is None or c.difference.is_near_tie for c in checks)
    return 0 if explained and num_failed == 0 else 1


def choose_widths(asked: Sequence[Width] | None, pair: Pair) -> tuple[Width, ...]:
    """The widths to try, each at most the drafter's, at least one of which can draft."""
    most = pair.drafter.block_size
    for width in asked or ():
        if isinstance(width, int) and not 1 <= width <= most:
            raise ConfigError(
                f"--widths has {width}, and this drafter's blocks have 1 to {most} tokens"
            )
    widths = tuple(dict.fromkeys(asked or _default_widths(pair.width, most)))
    if most == 1 or all(width in (1, "off") for width in widths):
        raise ConfigError(
            "a block of 1 token holds the anchor and no draft: nothing to compare; give --widths "
            "or --width of at least 2, or auto"
        )
    return widths


def _default_widths(width: WidthMode, most: int) -> Sequence[Width]:
    """The one width that was named, or some of all kinds."""
    if width.width is not None:
        return (width.width,)
    if width.kind == "off":
        return ("off",)
    return ("off", *sorted({min(2, most), max(most // 2, 1), most}), "auto")


def open_sessions(
    pair: Pair, widths: Sequence[Width], config: EngineConfig
) -> dict[Width, Session]:
    """An engine for each width, all on the pair's target."""
    return {width: _open_session(pair, width, config) for width in widths}


def _open_session(pair: Pair, width: Width, config: EngineConfig) -> Session:
    if width == "off":
        return open_plain(pair, config)
    mode = WidthMode("auto") if width == "auto" else WidthMode("fixed", width)
    return Session(open_engine(pair, replace(config, width=mode)).engine)


def check_record(
    pair: Pair,
    record: PromptRecord,
    params: SamplingParams,
    options: AnswerOptions,
    sessions: Mapping[Width, Session],
    epsilon: float,
) -> Iterator[Check]:
    """Check every turn; later turns follow on the reference's answers."""
    conversation = Conversation(pair.target, options)
    watched = replace(params, logprobs=2)
    for turn_idx, turn in enumerate(record.prompts):
        prompt_ids = conversation.encode(turn)
        plain = decode_reference(pair, prompt_ids, watched)
        for width, session in sessions.items():
            answer = collect(prompt_ids, session.stream(prompt_ids, params))
            yield Check(
                record=record,
                turn=turn_idx,
                width=width,
                stats=answer.stats,
                difference=find_difference(pair, plain, answer, params, epsilon),
            )
        conversation.add(turn, plain.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthCount:
    """How the answers at one width fared."""

    width: Width
    answers: int
    identical: int
    near_ties: int
    different: int
    stats: AcceptanceStats


def count_by_width(checks: Sequence[Check], widths: Sequence[Width]) -> list[WidthCount]:
    counts: list[WidthCount] = []
    for width in widths:
        found = [check for check in checks if check.width == width]
        stats = AcceptanceStats()
        for check in found:
            stats = stats.merge(check.stats)
        differences = [check.difference for check in found if check.difference is not None]
        near_ties = sum(difference.is_near_tie for difference in differences)
        counts.append(
            WidthCount(
                width=width,
                answers=len(found),
                identical=len(found) - len(differences),
                near_ties=near_ties,
                different=len(differences) - near_ties,
                stats=stats,
            )
        )
    return counts


def print_checks(
    pair: Pair, checks: Sequence[Check], widths: Sequence[Width], epsilon: float
) -> None:
    """A row a width, then a line for each answer that differs."""
    conditions = pair.conditions
    table = new_table(
        f"{conditions.target} with {conditions.drafter}, {conditions.dtype}, {conditions.engine} "
        "engine, against the reference loop alone",
        "width",
        ("answers", "identical", "near-ties", "different", "tokens", "tau"),
    )
    for row in count_by_width(checks, widths):
        counts = (row.width, row.answers, row.identical, row.near_ties, row.different)
        table.add_row(*map(str, counts), str(row.stats.tokens), figure(row.stats.tau))
    open_console(stderr=False).print(table)
    for check in checks:
        if check.difference is not None:
            emit(difference_text(check, check.difference, epsilon))


def difference_text(check: Check, difference: Difference, epsilon: float) -> str:
    kind = f"near-tie (under {epsilon:g})" if difference.is_near_tie else "NOT a near-tie"
    return (
        f"{check.record.id}, turn {check.turn}, width {check.width}: token {difference.position} "
        f"is {_id_text(difference.drafted_id)}, plainly {_id_text(difference.plain_id)}; "
        f"top-two margin {difference.margin:.3g}, {kind}"
    )


def _id_text(token_id: int | None) -> str:
    return "the end" if token_id is None else str(token_id)


def checks_json(
    pair: Pair,
    checks: Sequence[Check],
    widths: Sequence[Width],
    epsilon: float,
    num_failed: int,
) -> dict[str, object]:
    """The same as one document."""
    counts = count_by_width(checks, widths)
    return {
        "conditions": asdict(pair.conditions),
        "epsilon": epsilon,
        "failed_prompts": num_failed,
        "widths": [
            {
                "width": row.width,
                "answers": row.answers,
                "identical": row.identical,
                "near_ties": row.near_ties,
                "different": row.different,
                "stats": stats_json(row.stats),
            }
            for row in counts
        ],
        "differences": [
            {
                "id": check.record.id,
                "turn": check.turn,
                "width": check.width,
                **asdict(check.difference),
            }
            for check in checks
            if check.difference is not None
        ],
    }


def _check_args(args: Namespace, params: SamplingParams) -> None:
    if args.widths is not None and args.width is not None:
        raise ConfigError("--width names one width and --widths several; choose one")
    if args.exact and args.dtype not in ("float32", "float64"):
        raise ConfigError(f"--exact means float32 or float64; drop --dtype {args.dtype}")
    if args.epsilon is not None and not (math.isfinite(args.epsilon) and args.epsilon >= 0):
        raise ConfigError(f"--epsilon {args.epsilon} is no margin; give a number from 0 on")
    if args.drafter == "none":
        raise ConfigError("--drafter none is plain decoding: nothing to compare; give a drafter")
    if params.is_greedy:
        return
    if params.law == "sampled":
        raise ConfigError(
            "--law sampled keeps the distribution, not the tokens, so there is nothing to compare; "
            "drop it"
        )
    if params.seed is None:
        raise ConfigError("sampled answers are equal for equal seeds only; add --seed N")
