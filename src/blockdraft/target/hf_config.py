"""Reads a target's configuration alone, through transformers.

It reads no weights, and runs no code that comes with them.
"""

from pathlib import Path

from blockdraft.errors import CheckpointError
from blockdraft.target.hf_load import READ_ERRORS
from blockdraft.target.quiet import first_line, quiet
from blockdraft.target.renamed import known_type, read_config


def read_model_config(name: str | Path, *, revision: str | None, from_hub: bool) -> object:
    """The configuration in a folder or of a hub repository; CheckpointError when it can't be read.

    Only `from_hub` may touch the network.
    """
    try:
        with quiet():
            return read_config(name, revision=revision, local_only=not from_hub)
    except READ_ERRORS as error:
        raise CheckpointError(
            f"the configuration of {name} can't be read: {first_line(error)}"
        ) from error


def is_known_type(model_type: str | None) -> bool:
    """Whether the installed transformers has a configuration of that `model_type`."""
    return known_type(model_type) is not None
