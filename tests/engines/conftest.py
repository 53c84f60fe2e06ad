"""Makes the shared modules of this folder importable, and trains one tiny pair for all its tests.

Nothing is trained where the engine is not installed: then everything here is skipped.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from tiny_pair import TinyPair


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> "TinyPair":
    """One training for all workers of a parallel run."""
    from tiny_pair import trained_pair

    base = tmp_path_factory.getbasetemp()
    in_parallel = "PYTEST_XDIST_WORKER" in os.environ
    return trained_pair((base.parent if in_parallel else base) / "trained_tiny_pair")
