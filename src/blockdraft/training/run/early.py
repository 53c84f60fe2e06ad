"""What can be said against going on with a run before its target and answers are loaded.

Loading may take minutes; what differs only in the answers themselves shows after it.
"""

from pathlib import Path

from blockdraft.errors import ConfigError, Error
from blockdraft.training.config import RunConfig
from blockdraft.training.ranks.distributed import Ranks, share_failure
from blockdraft.training.run.checkpoints import Checkpoints
from blockdraft.training.run.state import check_settings
from blockdraft.training.run.trainer import FREE_SETTINGS


def check_can_go_on(config: RunConfig, folder: Path, ranks: Ranks) -> None:
    """Raise ConfigError, on all ranks, for settings that differ from those of the run in `folder`,
    or for fewer steps than it has done. All ranks have to call it; only the main one reads."""
    failure: Error | None = None
    if ranks.is_main:
        try:
            _check(config, folder)
        except Error as error:
            failure = error
    share_failure(failure, ranks)


def _check(config: RunConfig, folder: Path) -> None:
    found = Checkpoints(folder).peek()
    if found is None:
        return
    step, settings = found
    wanted = config.as_table()
    # The rest was found out of the answers and the target.
    check_settings({k: v for k, v in settings.items() if k in wanted}, wanted, FREE_SETTINGS)
    if config.run.steps is not None:
        check_length(folder, step, config.run.steps)


def check_length(folder: Path, step: int, total_steps: int) -> None:
    """Raise ConfigError for a run that has done more steps than are asked for."""
    if step > total_steps:
        raise ConfigError(
            f"{folder} is at step {step} already, more than the {total_steps} asked for"
        )
