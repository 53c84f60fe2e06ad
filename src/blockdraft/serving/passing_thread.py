"""Computing before the engine's thread begins, on a thread that is gone by then.

OpenMP keeps workers for every living thread that has computed. Once there are more of them than
cores, all go to sleep at once where they wait for each other, and each of the some hundred
operations of a pass begins by waking one: a third of the speed is lost. So whatever computes beside
the engine's thread, above all loading, has to happen on threads that end. No models are known here.
"""

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

LET_GO_SECONDS = 10.0
"""How long an interrupted call gets to clean up, from its next step in Python on."""


def in_passing_thread(
    call: Callable[[], Result], *, let_go_seconds: float = LET_GO_SECONDS
) -> Result:
    """What `call` returns or raises, from a thread that has ended.

    What interrupts the caller (a signal's SystemExit or KeyboardInterrupt) is raised inside `call`
    too, as SystemExit, so that it can clean up. Where it does not end in time, being in the middle
    of something that no exception reaches, the process ends here: nothing may go on unwatched.
    """
    results: list[Result] = []
    errors: list[BaseException] = []
    # Not `join`: interrupted, it takes a running thread for one that has ended (Python 3.11).
    has_ended = threading.Event()

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)
        finally:
            has_ended.set()

    thread = threading.Thread(target=run, name="blockdraft-load", daemon=True)
    thread.start()
    try:
        has_ended.wait()
    except BaseException as interrupt:
        _interrupt(thread)
        if not has_ended.wait(let_go_seconds):
            sys.stderr.flush()
            os._exit(_exit_code(interrupt))
        raise
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _interrupt(thread: threading.Thread) -> None:
    """Have SystemExit raised in `thread` at its next step in Python."""
    assert thread.ident is not None
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    raise_in(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))


def _exit_code(interrupt: BaseException) -> int:
    if isinstance(interrupt, SystemExit) and isinstance(interrupt.code, int):
        return interrupt.code
    return 130 if isinstance(interrupt, KeyboardInterrupt) else 1
