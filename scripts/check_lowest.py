"""Check that the packages laid over the environment are the ones that Python really imports.

It runs no test; `make test-lowest` calls it first, since tests that ran on the wrong version would
pass without having shown anything.
"""

import importlib
import sys
from pathlib import Path


def main(overlay: Path) -> None:
    for name in ("transformers", "huggingface_hub", "accelerate"):
        module = importlib.import_module(name)
        if module.__file__ is None or overlay.resolve() not in Path(module.__file__).parents:
            raise SystemExit(f"lowest: {name} was imported from {module.__file__}, not {overlay}")
        sys.stderr.write(f"lowest: {name} {module.__version__}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
