"""`EngineProcess`: an engine as a child process: its output, its last lines, its end.

It knows nothing of HTTP or of what the engine serves.
"""

import contextlib
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from blockdraft.errors import ConfigError

LAST_LINES = 12
READER_SECONDS = 2.0
"""For output that is still in the pipe of an engine that has ended."""


class EngineProcess:
    """A started engine in a process group of its own; each line of its output goes to `on_line`.

    Raises ConfigError when it can't be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environ: Mapping[str, str],
        on_line: Callable[[str], None],
    ) -> None:
        self._on_line = on_line
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        try:
            self._child = subprocess.Popen(
                list(command),
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C reaches it once, through us
            )
        except OSError as error:
            name = Path(command[0]).name
            raise ConfigError(f"{name} can't be started: {error.strerror or error}") from error
        self._reader = threading.Thread(target=self._read, name="engine-output", daemon=True)
        self._reader.start()

    @property
    def exit_code(self) -> int | None:
        """None while it runs; of an engine ended by a signal what a shell would report."""
        code = self._child.poll()
        return code if code is None or code >= 0 else 128 - code

    def last_lines(self) -> str:
        """The end of what it said, in one line."""
        self._reader.join(READER_SECONDS)
        return " | ".join(self._last)

    def wait(self, seconds: float) -> int | None:
        """The exit code, or None when it still runs after `seconds`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(seconds)
        return self.exit_code

    def send(self, signum: int) -> None:
        """Hand a signal to the engine, which passes it on to its own processes."""
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(signum)

    def kill(self) -> None:
        """End the engine and everything that it started, at once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def stop(self, grace: float) -> None:
        """Ask it to end, then make it."""
        self.send(signal.SIGTERM)
        self.wait(grace)
        self.kill()  # also what a tidy end has left behind

    def close(self) -> None:
        """Nothing of it runs afterwards, and its output was passed on."""
        self.kill()
        self._reader.join(READER_SECONDS)
        if self._child.stdout is not None and not self._reader.is_alive():
            self._child.stdout.close()

    def _read(self) -> None:
        stream = self._child.stdout
        assert stream is not None, "it was asked for"
        for raw in stream:
            line = raw.decode("utf-8", errors="replace").rstrip()
            if line:
                self._last.append(line)
            with contextlib.suppress(OSError):  # nobody reads ours: the engine must not block on it
                self._on_line(line)
