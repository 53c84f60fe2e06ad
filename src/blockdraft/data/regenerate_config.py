"""`RegenerateConfig`: what regenerated answers are to be like, and how each of them is drawn.

Values and arithmetic; who asks is `regenerate.py`.
"""

from dataclasses import dataclass

from blockdraft.data.answer_requests import NUM_SEEDS, Sampling, derived_number
from blockdraft.errors import ConfigError

SHARE_STEPS = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class RegenerateConfig:
    """What the answers are to be like.

    A share of the turns, chosen by their ids, is sampled at `sampled_temperature`; the others at
    `temperature`. `max_context` bounds a prompt and its answer together: a prompt that leaves less
    than `max_new_tokens` is not asked. `max_loop_share` is how many of the answers that stay may be
    loops (`loops.py`); 1 keeps all. `strict` refuses prompts with bad lines.
    """

    max_new_tokens: int = 256
    max_context: int = 2048
    temperature: float = 0.0
    sampled_share: float = 0.0
    sampled_temperature: float = 0.7
    top_p: float = 1.0
    seed: int = 0
    max_loop_share: float = 1.0
    strict: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.max_new_tokens < self.max_context:
            raise ConfigError(
                f"--max-new-tokens {self.max_new_tokens} must be at least 1 and under --max-context"
                f" ({self.max_context}), which holds the prompt too"
            )
        for name in ("sampled_share", "max_loop_share"):
            value: float = getattr(self, name)
            if not 0 <= value <= 1:
                flag = name.replace("_", "-")
                raise ConfigError(f"--{flag} is {value}; give a share from 0 to 1")
        if self.sampled_share > 0 and self.sampled_temperature <= 0:
            raise ConfigError("--sampled-temperature must be above 0, or nothing is sampled")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"--top-p is {self.top_p}; it must be above 0 and at most 1")
        if not 0 <= self.temperature <= 100 or not 0 <= self.sampled_temperature <= 100:
            raise ConfigError("temperatures go from 0 (greedy) to 100")

    def sampling(self, name: str, turn: int) -> Sampling:
        """How one turn is drawn: a function of (seed, id, turn) and of nothing else."""
        drawn = derived_number(self.seed, "share", name, turn) % SHARE_STEPS / SHARE_STEPS
        is_sampled = drawn < self.sampled_share
        return Sampling(
            max_new_tokens=self.max_new_tokens,
            temperature=self.sampled_temperature if is_sampled else self.temperature,
            top_p=self.top_p,
            seed=derived_number(self.seed, "seed", name, turn) % NUM_SEEDS,
        )
