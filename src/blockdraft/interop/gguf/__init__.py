"""GGUF files for llama.cpp: a target, and a drafter of architecture `dflash`; the way back too.

It runs no engine and knows no safetensors layout of a drafter.
"""

from blockdraft.interop.gguf.drafter import write_drafter
from blockdraft.interop.gguf.drafter_read import read_drafter, read_provenance
from blockdraft.interop.gguf.dtypes import GGUF_TYPES, GgufType
from blockdraft.interop.gguf.target import write_target
from blockdraft.interop.gguf.tokenizer import TargetTokenizer, read_tokenizer

__all__ = [
    "GGUF_TYPES",
    "GgufType",
    "TargetTokenizer",
    "read_drafter",
    "read_provenance",
    "read_tokenizer",
    "write_drafter",
    "write_target",
]
