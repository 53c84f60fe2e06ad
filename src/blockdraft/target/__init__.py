"""The target: the frozen language model whose text must not change.

This package adapts real models to the `TargetModel` protocol; the algorithm is in `decoding`.
"""

from blockdraft.target.hf import HFTarget
from blockdraft.target.load import load_target
from blockdraft.target.text import ChatMessage, ChatOptions, Message, TextCodec

__all__ = ["ChatMessage", "ChatOptions", "HFTarget", "Message", "TextCodec", "load_target"]
