"""Rows of a Hugging Face data set; the one place that knows the optional library `datasets`.

It runs no code of a data set: the library refuses those that need it.
"""

import importlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol, cast

from blockdraft.data.sources import HUB_PREFIX
from blockdraft.errors import ConfigError

DEFAULT_SPLIT = "train"


class _Datasets(Protocol):
    """The part of the untyped library that is used here."""

    def load_dataset(
        self, path: str, name: str | None, *, split: str, streaming: bool, revision: str | None
    ) -> Iterable[object]: ...


class HubName(NamedTuple):
    """A data set, its configuration (None: its default), its split, its revision (None: newest)."""

    path: str
    config: str | None
    split: str
    revision: str | None = None


def parse_hub_name(text: str) -> HubName:
    """The parts of "hf:owner/name[@revision][:config][:split]".

    An empty configuration is the default one: "hf:owner/name::test". Raises ConfigError.
    """
    name, *rest = text.removeprefix(HUB_PREFIX).split(":")
    path, at, revision = name.partition("@")
    if not path or len(rest) > 2 or (at and not revision):
        raise ConfigError(f"{text!r} is no data set: use hf:owner/name[@revision][:config][:split]")
    config, split = (*rest, "", "")[:2]
    return HubName(path, config or None, split or DEFAULT_SPLIT, revision or None)


def read_hub(text: str) -> Iterator[object]:
    """The rows of the data set that `text` names, streamed.

    Raises ConfigError without the library, and for a data set that it can't load.
    """
    name = parse_hub_name(text)
    datasets = _library(text)
    try:
        rows = datasets.load_dataset(
            name.path, name.config, split=name.split, streaming=True, revision=name.revision
        )
        yield from rows
    except Exception as error:  # what it raises depends on the data set and the way it is stored
        first_line = str(error).partition("\n")[0]
        raise ConfigError(
            f"can't read the data set {text} ({first_line}): check its name, configuration and "
            "split, and the network"
        ) from error


def _library(text: str) -> _Datasets:
    wanted = ConfigError(
        f"reading {text} needs the library datasets: pip install 'blockdraft[data]', or give the "
        "rows as a Parquet or JSON-lines file"
    )
    try:
        module = importlib.import_module("datasets")
    except ImportError as error:
        raise wanted from error
    if not hasattr(module, "load_dataset"):  # a folder of that name, where the library is missing
        raise wanted
    return cast(_Datasets, module)
