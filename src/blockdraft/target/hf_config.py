"""Reads a target's configuration alone, through transformers, without weights or code of its own.

`Any` is tolerated in this file because transformers is untyped.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from transformers import CONFIG_MAPPING, AutoConfig

from blockdraft.errors import CheckpointError
from blockdraft.target.hf_load import READ_ERRORS
from blockdraft.target.quiet import first_line, quiet


def read_model_config(name: str | Path, *, revision: str | None, from_hub: bool) -> object:
    """The configuration in a folder or of a hub repository; CheckpointError when it can't be read.

    Only `from_hub` may touch the network.
    """
    loader: Any = AutoConfig
    try:
        with quiet():
            config: object = cast(
                object,
                loader.from_pretrained(
                    name,
                    revision=revision,
                    trust_remote_code=False,
                    local_files_only=not from_hub,
                ),
            )
    except READ_ERRORS as error:
        raise CheckpointError(
            f"the configuration of {name} can't be read: {first_line(error)}"
        ) from error
    return config


def is_known_type(model_type: str | None) -> bool:
    """Whether the installed transformers has a configuration of that `model_type`."""
    return model_type in cast("Mapping[str, object]", CONFIG_MAPPING)
