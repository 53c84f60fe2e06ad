"""What a drafter is worth: acceptance and speed over a set of prompts, next to the baselines.

Its contract: `measure_acceptance` and `measure_speed` over the `TargetModel` and `Drafter`
Protocols; counts come out, nothing is printed and no model is loaded.
"""

from blockdraft.evaluation.acceptance import (
    AcceptanceResult,
    measure_acceptance,
    measure_lane,
    pool_answers,
)
from blockdraft.evaluation.answer import AnswerCount, DecodeSettings, Lane, decode_answer
from blockdraft.evaluation.bootstrap import Interval
from blockdraft.evaluation.prompts import (
    EvalPrompt,
    EvalPrompts,
    read_eval_prompts,
    read_prompt_row,
    read_prompt_rows,
)
from blockdraft.evaluation.speed import (
    LaneAnswers,
    LaneTime,
    SpeedOptions,
    measure_speed,
    num_identical,
    speedup,
    time_of,
)

__all__ = [
    "AcceptanceResult",
    "AnswerCount",
    "DecodeSettings",
    "EvalPrompt",
    "EvalPrompts",
    "Interval",
    "Lane",
    "LaneAnswers",
    "LaneTime",
    "SpeedOptions",
    "decode_answer",
    "measure_acceptance",
    "measure_lane",
    "measure_speed",
    "num_identical",
    "pool_answers",
    "read_eval_prompts",
    "read_prompt_row",
    "read_prompt_rows",
    "speedup",
    "time_of",
]
