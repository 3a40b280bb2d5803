"""Child processes whose output goes through ours, line by line, under their name."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Say = Callable[[str, str], None]


class Child:
    """One process at a time; `start` again after it has ended.

    It has a session of its own, so Ctrl-C reaches only us and we end the children in order. Its
    standard input ends when we do, however that comes about.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        say: Say,
        environment: Mapping[str, str] | None = None,
        ready: str = "",
    ) -> None:
        """`environment` is what it gets besides ours; `ready` is how the line begins that says that
        it is up."""
        self.name = name
        self._command = list(command)
        self._environment = {**os.environ, **(environment or {})}
        self._say = say
        self._ready = ready
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
        )
        self._pump = threading.Thread(target=self._forward, args=(self._process,), daemon=True)
        self._pump.start()

    def _forward(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        with process.stdin, process.stdout as lines:
            for line in lines:
                self._say(self.name, line.rstrip("\n"))
                if self._ready and line.startswith(self._ready):
                    self.is_ready.set()

    @property
    def pid(self) -> int:
        """The process id of the child, which must have been started."""
        assert self._process is not None
        return self._process.pid

    def ended(self) -> int | None:
        """The exit code, negative for a signal; None while it runs or before it was started."""
        return None if self._process is None else self._process.poll()

    def stop(self, grace: float) -> None:
        """SIGTERM; where that is not heard in `grace` seconds, SIGKILL to it and its children."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self._say(self.name, f"did not end within {grace:g} s and is killed")
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._pump is not None:
            self._pump.join(1.0)


@dataclass(slots=True)
class Backoff:
    """Seconds to wait before a restart: 1, 2, 4, … 60; from 1 again after a good minute."""

    first: float = 1.0
    longest: float = 60.0
    good: float = 60.0
    _next: float = 0.0

    def after(self, ran: float) -> float:
        wait = self.first if ran >= self.good or not self._next else self._next
        self._next = min(self.longest, wait * 2)
        return wait
