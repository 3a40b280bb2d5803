"""Child processes whose output is printed line by line, each with the child's name."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

# Prints a line of the child with this name.
PrintLine = Callable[[str, str], None]


class Child:
    """A child process; it can be started again after it has ended.

    It has its own session, so that Ctrl-C reaches only this process, which stops the children in
    order. Its standard input ends with this process, even if that is killed.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        print_line: PrintLine,
        environment: Mapping[str, str] | None = None,
        ready: str = "",
        pass_fds: Sequence[int] = (),
    ) -> None:
        """`environment` is added to that of this process; `ready` begins the line with which the
        child reports that it is ready; the child inherits the file descriptors `pass_fds`.
        """
        self.name = name
        self._command = list(command)
        self._environment = {**os.environ, **(environment or {})}
        self._print_line = print_line
        self._ready = ready
        self._pass_fds = tuple(pass_fds)
        self.is_ready = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._pump: threading.Thread | None = None

    def start(self) -> None:
        self.is_ready.clear()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            env=self._environment,
            pass_fds=self._pass_fds,
        )
        self._pump = threading.Thread(target=self._forward, args=(self._process,), daemon=True)
        self._pump.start()

    def _forward(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        # The pipe to the child's input stays open while it writes: its end would stop the child.
        with process.stdin, process.stdout as lines:
            for line in lines:
                self._print_line(self.name, line.rstrip("\n"))
                if self._ready and line.startswith(self._ready):
                    self.is_ready.set()

    @property
    def pid(self) -> int:
        """The process id; the child must have been started."""
        assert self._process is not None
        return self._process.pid

    def ended(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs or before the start."""
        return None if self._process is None else self._process.poll()

    def terminate(self) -> None:
        """Send SIGTERM, and do not wait."""
        self.send_signal(signal.SIGTERM)

    def send_signal(self, number: signal.Signals) -> None:
        """Do nothing if the child does not run."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def stop(self, grace_seconds: float) -> None:
        """Send SIGTERM; if the child still runs after `grace_seconds`, kill its whole group."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self._print_line(self.name, f"did not end within {grace_seconds:g} s and is killed")
            # The group has the child's own processes too, such as the engine's JVM.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._pump is not None:
            # So that the last lines of the child are printed before this process goes on.
            self._pump.join(1.0)


@dataclass(slots=True)
class Backoff:
    """Seconds to wait before a restart: 1, 2, 4, … 60; 1 again after a run of a minute."""

    first: float = 1.0
    longest: float = 60.0
    stable: float = 60.0
    _next: float = 0.0

    def after(self, run_seconds: float) -> float:
        """Return how long to wait after a run of this length."""
        wait = self.first if run_seconds >= self.stable or not self._next else self._next
        self._next = min(self.longest, wait * 2)
        return wait
