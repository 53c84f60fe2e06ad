"""What `blockdraft eval` does: read, load, decode every prompt in every way, report.

Figures are made in the package `evaluation`, their shapes in `eval_report.py`.
"""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from blockdraft.cli.answers import Conversation
from blockdraft.cli.console import emit_json, say
from blockdraft.cli.default_drafter import settle_drafter
from blockdraft.cli.eval_progress import watch_prompts
from blockdraft.cli.eval_report import Evaluation, evaluation_json, print_evaluation
from blockdraft.cli.generation import answer_options, prepare_params
from blockdraft.cli.hardware import busy_text
from blockdraft.cli.pair import Pair, load_pair
from blockdraft.cli.sampling import read_sampling, warn_of_no_effect
from blockdraft.decoding import NoDrafter, PromptLookupDrafter, SamplingParams
from blockdraft.decoding.request import open_request
from blockdraft.errors import ConfigError, RequestError
from blockdraft.evaluation import (
    DecodeSettings,
    EvalPrompt,
    EvalPrompts,
    Lane,
    LaneAnswers,
    SpeedOptions,
    measure_lane,
    measure_speed,
    read_eval_prompts,
)

DEFAULT_SEED = 0
PLAIN, LOOKUP, DFLASH = "plain", "prompt-lookup", "dflash"


def evaluate(args: Namespace) -> int:
    """Run the command. Prompts and settings are checked before anything is decoded."""
    params = _read_params(args)
    file = read_eval_prompts(Path(args.prompts))
    prompts = file.prompts[: args.limit]
    drafter = settle_drafter(args)
    if drafter == "none":
        raise ConfigError("--drafter none drafts nothing, so nothing is accepted; give a drafter")
    warn_of_no_effect(params, drafter)
    busy = None if args.no_speed else busy_text()
    pair = load_pair(args)
    params = prepare_params(pair, params, args.bad_words)
    prompt_ids = encode_prompts(args, pair, file, prompts, params)
    lanes = open_lanes(pair)
    if busy is not None:
        say(busy)
    answers = _decode(args, pair, lanes, prompt_ids, params)
    evaluation = Evaluation(
        conditions=pair.conditions,
        block_size=lanes[0].block_size or pair.drafter.block_size,
        drafted=lanes[0].name,
        file=file,
        prompts=prompts,
        prompt_lens=tuple(map(len, prompt_ids)),
        params=params,
        prompt_options=answer_options(args),
        limit=args.limit,
        repeats=None if args.no_speed else args.repeats,
        answers=answers,
    )
    if args.json:
        emit_json(evaluation_json(evaluation, details=args.details), indent=2)
    else:
        print_evaluation(evaluation)
    return 0


def encode_prompts(
    args: Namespace,
    pair: Pair,
    file: EvalPrompts,
    prompts: tuple[EvalPrompt, ...],
    params: SamplingParams,
) -> list[tuple[int, ...]]:
    """The token ids of all prompts. Raises RequestError naming the line of one that can't be
    encoded or that the target has no room for.
    """
    codec = pair.target.text
    decode_text = None if codec is None else codec.decode
    options = answer_options(args)
    encoded: list[tuple[int, ...]] = []
    for prompt in prompts:
        try:
            if prompt.system is not None and options.prompt.raw:
                raise RequestError("its system text needs a chat template; drop --raw")
            of_row = replace(options, system=prompt.system or options.system)
            ids = Conversation(pair.target, of_row).encode(prompt.content)
            open_request(pair.target.spec, ids, params, decode_text)
        except RequestError as error:
            raise RequestError(f"{file.where(prompt)}: {error}") from error
        encoded.append(ids)
    return encoded


def open_lanes(pair: Pair) -> tuple[Lane, ...]:
    """The drafter that is evaluated first, then the baselines, lookup with blocks as wide."""
    block_size = pair.width.width or pair.drafter.block_size
    if block_size < 2:
        raise ConfigError(
            "a block of 1 token holds the anchor and no draft: nothing to measure; give "
            "--block-size of at least 2"
        )
    plain = Lane(name=PLAIN, drafter=NoDrafter())
    if isinstance(pair.drafter, PromptLookupDrafter):
        return (Lane(name=LOOKUP, drafter=pair.drafter, block_size=block_size), plain)
    lookup = Lane(name=LOOKUP, drafter=PromptLookupDrafter(block_size))
    return (Lane(name=DFLASH, drafter=pair.drafter, block_size=block_size), plain, lookup)


def _decode(
    args: Namespace,
    pair: Pair,
    lanes: tuple[Lane, ...],
    prompt_ids: list[tuple[int, ...]],
    params: SamplingParams,
) -> LaneAnswers:
    codec = pair.target.text
    decode_text = codec.decode if codec is not None and params.stop else None
    settings = DecodeSettings(params=params, decode_text=decode_text)
    with watch_prompts(len(prompt_ids)) as progress:
        if args.no_speed:
            result = measure_lane(pair.target, lanes[0], prompt_ids, settings, progress=progress)
            return {lanes[0].name: result.answers}
        options = SpeedOptions(num_repeats=args.repeats)
        return measure_speed(
            pair.target, lanes, prompt_ids, settings, options=options, progress=progress
        )


def _read_params(args: Namespace) -> SamplingParams:
    """Sampling settings; a seed is always set, so that an evaluation can be had again."""
    if args.details and not args.json:
        raise ConfigError("--details are printed in --json only; add it")
    if args.raw and (args.system or args.template_arg):
        raise ConfigError("--raw applies no chat template; drop --system and --template-arg")
    params = read_sampling(args)
    if params.is_greedy or params.seed is not None:
        return params
    return replace(params, seed=DEFAULT_SEED)
