"""The block-diffusion drafter: its configuration, its transformer and its `Drafter`.

It knows no files and no concrete target; checkpoints and adapters are other packages' duty.
"""

from blockdraft.drafter.cache import ContextCache
from blockdraft.drafter.config import DFlash2Config, DrafterConfig, MaskRule, RopeConfig
from blockdraft.drafter.dflash import DFlashDrafter, DFlashState
from blockdraft.drafter.model import BlockDrafter

__all__ = [
    "BlockDrafter",
    "ContextCache",
    "DFlash2Config",
    "DFlashDrafter",
    "DFlashState",
    "DrafterConfig",
    "MaskRule",
    "RopeConfig",
]
