"""Blockdraft: lossless block-diffusion speculative decoding (DFlash).

The public names; everything is imported on first use, so that `import blockdraft` stays cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blockdraft.api import PromptOptions as PromptOptions
    from blockdraft.api import encode_prompt as encode_prompt
    from blockdraft.api import generate as generate
    from blockdraft.api import load_drafter as load_drafter
    from blockdraft.api import load_target as load_target
    from blockdraft.api import stream as stream
    from blockdraft.decoding import AcceptanceStats as AcceptanceStats
    from blockdraft.decoding import Commit as Commit
    from blockdraft.decoding import Completion as Completion
    from blockdraft.decoding import SamplingParams as SamplingParams
    from blockdraft.engine import EngineConfig as EngineConfig
    from blockdraft.llm import LLM as LLM
    from blockdraft.llm import FailedPrompt as FailedPrompt
    from blockdraft.native import TargetOptions as TargetOptions

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "AcceptanceStats",
    "Commit",
    "Completion",
    "EngineConfig",
    "FailedPrompt",
    "PromptOptions",
    "SamplingParams",
    "TargetOptions",
    "encode_prompt",
    "generate",
    "load_drafter",
    "load_target",
    "stream",
]

_HOME = {
    "AcceptanceStats": "blockdraft.decoding",
    "Commit": "blockdraft.decoding",
    "Completion": "blockdraft.decoding",
    "EngineConfig": "blockdraft.engine",
    "FailedPrompt": "blockdraft.llm",
    "LLM": "blockdraft.llm",
    "SamplingParams": "blockdraft.decoding",
    "TargetOptions": "blockdraft.native",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'blockdraft' has no attribute {name!r}")
    return getattr(import_module(_HOME.get(name, "blockdraft.api")), name)
