"""Configurations whose published model type transformers knows under another name.

It reads configurations and changes none on disk. `Any` is tolerated in this file because
transformers is untyped.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig

RENAMED: dict[str, str] = {"kimi_k2": "deepseek_v3"}
"""Kimi-K2 publishes DeepSeek-V3's classes as code of its own; code of checkpoints is never run."""


def known_type(model_type: object) -> str | None:
    """The name under which the installed transformers knows `model_type`; None = it doesn't."""
    if not isinstance(model_type, str):
        return None
    name = RENAMED.get(model_type, model_type)
    return name if name in cast("Mapping[str, object]", CONFIG_MAPPING) else None


def read_config(source: str | Path, *, revision: str | None, local_only: bool) -> object:
    """The configuration in a folder or of a hub repository, under the name that is known.

    Raises whatever transformers raises; no code of the source is run.
    """
    reader: Any = PreTrainedConfig
    parts: tuple[dict[str, object], object] = reader.get_config_dict(
        source, revision=revision, local_files_only=local_only
    )
    found = parts[0]
    model_type = found.get("model_type")
    if isinstance(model_type, str) and model_type in RENAMED:
        # `auto_map` names the code that is not run.
        named = {name: value for name, value in found.items() if name != "auto_map"}
        known: Any = cast("Mapping[str, object]", CONFIG_MAPPING)[RENAMED[model_type]]
        return known.from_dict(named | {"model_type": RENAMED[model_type]})
    loader: Any = AutoConfig
    return loader.from_pretrained(
        source, revision=revision, trust_remote_code=False, local_files_only=local_only
    )
