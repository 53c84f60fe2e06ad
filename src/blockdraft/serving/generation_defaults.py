"""The sampling defaults of a model, from the generation_config.json beside its weights.

What a request says always comes first; that is decided where requests are read.
"""

from dataclasses import fields
from pathlib import Path

from blockdraft.decoding import SamplingParams
from blockdraft.errors import ConfigError, RequestError
from blockdraft.serving.service import GenerationDefaults
from blockdraft.target.folder import read_json

NAME = "generation_config.json"


def read_generation_defaults(folder: Path) -> GenerationDefaults:
    """What the file in `folder` says; nothing where there is none (a GGUF file has none).

    `do_sample: false` without a temperature means greedy, as its authors' own tools take it. Raises
    ConfigError for values that can't be sampled with, CheckpointError for a file that is no JSON.
    """
    path = folder / NAME
    if not path.is_file():
        return GenerationDefaults()
    config = read_json(path)
    given: dict[str, float | int] = {}
    for field in fields(GenerationDefaults):
        value = config.get(field.name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{path}: {field.name} is {value!r}, which is no number; correct it")
        given[field.name] = int(value) if field.name == "top_k" else float(value)
    if config.get("do_sample") is False and "temperature" not in given:
        given["temperature"] = 0.0
    defaults = GenerationDefaults(
        temperature=given.get("temperature"),
        top_p=given.get("top_p"),
        top_k=_top_k(given.get("top_k")),
        min_p=given.get("min_p"),
        repetition_penalty=given.get("repetition_penalty"),
    )
    _check(defaults, path)
    return defaults


def _top_k(value: float | None) -> int | None:
    """Some files write -1 for off."""
    return None if value is None else max(0, int(value))


def _check(defaults: GenerationDefaults, path: Path) -> None:
    """A default out of range would refuse every request that relies on it."""

    def of(value: float | None, neutral: float) -> float:
        return neutral if value is None else value

    try:
        SamplingParams(
            temperature=of(defaults.temperature, 1.0),
            top_p=of(defaults.top_p, 1.0),
            min_p=of(defaults.min_p, 0.0),
            repetition_penalty=of(defaults.repetition_penalty, 1.0),
        )
    except RequestError as error:
        raise ConfigError(f"{path}: {error}; correct the file") from error
