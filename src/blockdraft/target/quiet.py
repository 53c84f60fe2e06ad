"""Keeps the libraries' noise away from users: log lines, progress bars, paragraphs of error text.

Everything is put back afterwards; nothing is changed at import. Our own errors are not affected.
"""

import logging
import warnings
from collections.abc import Generator
from contextlib import contextmanager

from huggingface_hub.utils import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)
from transformers.utils import logging as hf_logging


@contextmanager
def quiet() -> Generator[None]:
    """No warnings, log lines or progress bars of the libraries inside the `with` block."""
    verbosity = hf_logging.get_verbosity()
    had_bars = hf_logging.is_progress_bar_enabled()
    had_hub_bars = not are_progress_bars_disabled()
    try:
        hf_logging.set_verbosity(logging.CRITICAL)
        hf_logging.disable_progress_bar()
        disable_progress_bars()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        hf_logging.set_verbosity(verbosity)
        if had_bars:
            hf_logging.enable_progress_bar()
        if had_hub_bars:
            enable_progress_bars()


def first_line(error: BaseException) -> str:
    """The first line of an error's text, cut to a readable length; libraries write paragraphs."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
