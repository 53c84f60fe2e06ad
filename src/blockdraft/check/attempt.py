"""`attempt`: a reading whose failure is a fact to report, not an end.

Only errors meant for people are caught.
"""

from collections.abc import Callable
from typing import TypeVar

from blockdraft.errors import Error

_Found = TypeVar("_Found")


def attempt(read: Callable[[], _Found]) -> tuple[_Found | None, str | None]:
    """What `read` returns, or the message of the error of ours that it raised."""
    try:
        return read(), None
    except Error as error:
        return None, " ".join(str(error).split())
