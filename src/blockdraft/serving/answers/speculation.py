"""What an answer says of its drafts, in the shapes that clients of two engines parse.

Pure: from counted statistics to JSON objects.
"""

from collections.abc import Sequence

from blockdraft.decoding import AcceptanceStats
from blockdraft.serving.answers.choice import StepDrafts


def speculative_decoding(
    stats: AcceptanceStats, num_spec_tokens: int, steps: Sequence[StepDrafts] | None = None
) -> dict[str, object]:
    """vLLM's per-request object; steps without a draft count nowhere.

    The histogram is dense: entry k counts the steps that kept k drafts, up to `num_spec_tokens`.
    `steps` adds the two lists of single steps. Without a step, length and rate are 1 and 0 as in
    vLLM: AIPerf drops a record that has no numbers there. `num_spec_steps` tells.
    """
    num_steps = stats.drafted_steps
    num_accepted, num_drafted = sum(stats.accepted), sum(stats.drafted)
    length = max(num_spec_tokens + 1, len(stats.histogram))
    made: dict[str, object] = {
        "mean_acceptance_length": 1 + num_accepted / num_steps if num_steps else 1.0,
        "draft_acceptance_rate": num_accepted / num_drafted if num_drafted else 0.0,
        "acceptance_histogram": [*stats.histogram, *[0] * (length - len(stats.histogram))],
        "num_spec_steps": num_steps,
        "num_accepted_draft_tokens": num_accepted,
        "num_draft_tokens": num_drafted,
        "num_spec_tokens": num_spec_tokens,
    }
    if steps is not None:
        drafted = [step for step in steps if step.num_drafted]
        made["per_step_accepted"] = [step.num_accepted for step in drafted]
        made["per_step_drafted"] = [step.num_drafted for step in drafted]
    return made


def spec_details(stats: AcceptanceStats) -> dict[str, object]:
    """SGLang's names. Its acceptance length counts the target's own token, over all verifications;
    an answer that needed none has length 1."""
    num_accepted, num_drafted = sum(stats.accepted), sum(stats.drafted)
    tau = stats.tau
    return {
        "spec_accept_rate": num_accepted / num_drafted if num_drafted else 0.0,
        "spec_accept_length": 1.0 if tau is None else tau,
        "spec_verify_ct": stats.steps,
        "spec_num_correct_drafts": num_accepted,
        "spec_num_proposed_drafts": num_drafted,
        "spec_correct_drafts_histogram": list(stats.histogram),
    }
