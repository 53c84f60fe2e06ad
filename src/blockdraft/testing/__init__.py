"""Targets, drafters and codecs for tests of code that is written against Blockdraft's seams.

No pytest here and no checks of its own: these are the small, exact models that a test needs.
"""

from blockdraft.testing.codec import ByteTextCodec
from blockdraft.testing.drafters import ListDrafter, OracleDrafter, RandomDrafter, logits_of
from blockdraft.testing.known_text import KnownTextDrafter
from blockdraft.testing.lattice import RandomLatticeDrafter, random_lattice
from blockdraft.testing.laws import hashed_logits, script_logits, table_logits
from blockdraft.testing.recurrent import ToyRecurrentTarget
from blockdraft.testing.scripted import ScriptedTarget
from blockdraft.testing.tiny import FAMILIES, TinySize, tiny_config, tiny_model, tiny_target

__all__ = [
    "FAMILIES",
    "ByteTextCodec",
    "KnownTextDrafter",
    "ListDrafter",
    "OracleDrafter",
    "RandomDrafter",
    "RandomLatticeDrafter",
    "ScriptedTarget",
    "TinySize",
    "ToyRecurrentTarget",
    "hashed_logits",
    "logits_of",
    "random_lattice",
    "script_logits",
    "table_logits",
    "tiny_config",
    "tiny_model",
    "tiny_target",
]
