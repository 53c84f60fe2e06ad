"""Two of SGLang's own modules, loaded from its wheel without a GPU: draft config and draft model.

Everything else that they import is a stand-in: linear layers and norms that only hold weights, and
names that do nothing. What is tried with them is SGLang's; what they stand in for is not.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import zipfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Protocol, cast

import torch
from torch import Tensor, nn

UTILS = "sglang.srt.speculative.dflash_utils"
MODEL = "sglang.srt.models.dflash"
_STANDS_IN = ("sglang", "flashinfer", "sgl_kernel")


class DraftConfig(Protocol):
    """The part of SGLang's `DFlashDraftConfig` that is used here."""

    block_size: int | None
    mask_token_id: int | None

    def resolve_target_layer_ids(self, *, target_num_layers: int) -> list[int]: ...


class DraftModel(Protocol):
    """The part of SGLang's `DFlashDraftModel` that is used here."""

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None: ...

    def named_parameters(self) -> Iterable[tuple[str, nn.Parameter]]: ...


class Parts(Protocol):
    """SGLang's own code, ready to be called."""

    def parse(self, config: object) -> DraftConfig: ...

    def build(self, config: object) -> DraftModel: ...


class _Loaded:
    def __init__(self, utils: ModuleType, model: ModuleType) -> None:
        self._utils, self._model = utils, model

    def parse(self, config: object) -> DraftConfig:
        return cast(DraftConfig, self._utils.parse_dflash_draft_config(draft_hf_config=config))

    def build(self, config: object) -> DraftModel:
        return cast(DraftModel, self._model.DFlashDraftModel(config))


@contextmanager
def open_parts(wheel: Path, folder: Path) -> Generator[Parts]:
    """SGLang's two modules out of `wheel`, unpacked to `folder`; its names are gone afterwards."""
    members = {name: f"{name.replace('.', '/')}.py" for name in (UTILS, MODEL)}
    with zipfile.ZipFile(wheel) as archive:
        for member in members.values():
            archive.extract(member, folder)
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        loaded = [_load(name, folder / member) for name, member in members.items()]
        yield _Loaded(*loaded)
    finally:
        sys.meta_path.remove(finder)
        for name in [key for key in sys.modules if key.partition(".")[0] in _STANDS_IN]:
            del sys.modules[name]


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class _Held(nn.Module):
    """A linear layer or a norm that holds its weight; `weight_loader` puts a part in its place."""

    def __init__(self, parts: Mapping[object, int], *size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((sum(parts.values()), *size), torch.nan))
        self._parts = dict(parts)
        if len(parts) > 1:
            self.weight.weight_loader = self._take  # pyright: ignore[reportAttributeAccessIssue]: SGLang's way

    def _take(self, parameter: nn.Parameter, loaded: Tensor, part: object) -> None:
        keys = list(self._parts)
        begin = sum(self._parts[key] for key in keys[: keys.index(part)])
        parameter.data[begin : begin + self._parts[part]].copy_(loaded)


def _norm(hidden_size: int, eps: float = 0.0) -> _Held:
    return _Held({"": hidden_size})


def _row(inputs: int, outputs: int, **_: object) -> _Held:
    return _Held({"": outputs}, inputs)


def _merged(inputs: int, outputs: Sequence[int], **_: object) -> _Held:
    return _Held(dict(enumerate(outputs)), inputs)


def _qkv(
    *, hidden_size: int, head_size: int, total_num_heads: int, total_num_kv_heads: int, **_: object
) -> _Held:
    queries, keys = total_num_heads * head_size, total_num_kv_heads * head_size
    return _Held({"q": queries, "k": keys, "v": keys}, hidden_size)


def _copy(parameter: nn.Parameter, loaded: Tensor) -> None:
    assert parameter.shape == loaded.shape, (parameter.shape, loaded.shape)
    parameter.data.copy_(loaded)


def _no_rope(config: object) -> tuple[float, None]:
    return 1.0, None


class _AnyName(type):
    """A class whose every attribute is another such class: enough for a name that does nothing."""

    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return _AnyName(name, (nn.Module,), {"__init__": _accept})


def _accept(self: nn.Module, *args: object, **named: object) -> None:
    nn.Module.__init__(self)


_GIVEN: Mapping[str, object] = {
    "RMSNorm": _norm,
    "GemmaRMSNorm": _norm,
    "RowParallelLinear": _row,
    "ColumnParallelLinear": _row,
    "ReplicatedLinear": _row,
    "MergedColumnParallelLinear": _merged,
    "QKVParallelLinear": _qkv,
    "default_weight_loader": _copy,
    "is_npu": lambda: False,
    "get_compiler_backend": lambda: "eager",
    "get_parallel": lambda: SimpleNamespace(tp_size=1),
    "get_rope_config": _no_rope,
}


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return _GIVEN[name] if name in _GIVEN else getattr(_AnyName("Any", (), {}), name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds an empty module for every name of SGLang's and its kernels'."""

    def find_spec(
        self, fullname: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in _STANDS_IN:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass
