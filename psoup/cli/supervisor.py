"""The supervisor of `psoup serve`: it starts, watches and stops a server and an engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from client_sdk import Client, PsoupError
from psoup.cli.output import echo
from psoup.cli.problems import REFUSED
from psoup.processes import Backoff, Child

START_SECONDS = 120.0
GRACE_SECONDS = 20.0
POLL_SECONDS = 0.2

_COLOURS = {"server": "cyan", "engine": "magenta", "psoup": "green"}


class Supervisor:
    """Runs a server and an engine until `stopping` is set or the server ends by itself.

    If the server ends, the supervisor ends too. The engine only makes answers cheaper: if it ends
    it is started again, with growing pauses, and answers stay complete.
    """

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        target: str,
        store: Path,
        store_id: Callable[[Path], str],
        *,
        tls: bool = False,
        tokens: bool = False,
    ) -> None:
        """`store_id` returns the id of the store in a folder, empty if there is none.

        With `tls` the server is not asked for its id, which would need its authority: it is enough
        that it listens. `tokens` says that callers need a token.
        """
        self._tls = tls
        self._tokens = tokens
        self.stopping = threading.Event()
        self._target = target
        self._store = store
        self._store_id = store_id
        self._printing = threading.Lock()
        self._server = Child("server", commands["server"], self.say, ready="server ready on ")
        engine = commands.get("engine")
        self._engine = Child("engine", engine, self.say) if engine else None
        self._engine_started = 0.0
        self._engine_due: float | None = 0.0 if self._engine else None
        self._backoff = Backoff()

    def run(self) -> int:
        """Run, and return the exit code: 0 if it was stopped, 1 if the server ended by itself."""
        self._server.start()
        try:
            if not self._wait_ready():
                return 0 if self.stopping.is_set() else REFUSED
            while not self.stopping.wait(POLL_SECONDS):
                if self._server_ended():
                    return REFUSED
                self._keep_engine_running()
            return 0
        finally:
            self._stop()

    def _wait_ready(self) -> bool:
        """Wait until the server answers, then start the engine: the server makes a new folder."""
        deadline = time.monotonic() + START_SECONDS
        with Client(self._target, timeout=1.0) as client:
            while not self.stopping.wait(POLL_SECONDS):
                # Looked at before the store is asked: a server that ended because its port is taken
                # leaves another one answering there.
                ended = self._server_ended()
                ready = self._server.is_ready.is_set()
                if self._tls:
                    reached = self._store_id(self._store) if ready else ""
                else:
                    reached = _store_reached(client)
                if ended or (reached and ready):
                    break
                if time.monotonic() > deadline:
                    self.say("psoup", f"the server did not answer in {START_SECONDS:g} s")
                    return False
            else:
                return False
        own_id = self._store_id(self._store)
        # The address answers, but not by the server that was started here.
        if own_id and reached and (ended or reached != own_id):
            self._report_other_server(reached, own_id)
        if ended or reached != own_id:
            return False
        self._keep_engine_running()
        self._welcome()
        return True

    def _report_other_server(self, reached: str, own_id: str) -> None:
        """Report that another server listens at the address."""
        holder = f"another store, {reached}; {self._store} is store {own_id}"
        if reached == own_id:
            holder = "the same store: use that one"
        self.say(
            "psoup",
            f"{self._target} is in use by a server of {holder}. Stop it, or choose another port: "
            f"psoup serve {self._store} --listen HOST:PORT",
        )

    def _server_ended(self) -> bool:
        code = self._server.ended()
        if code is not None:
            self.say("psoup", f"the server ended by itself ({_ending(code)}); stopping")
        return code is not None

    def _keep_engine_running(self) -> None:
        if self._engine is None:
            return
        code, now = self._engine.ended(), time.monotonic()
        if self._engine_due is None and code is not None:
            wait = self._backoff.after(now - self._engine_started)
            self._engine_due = now + wait
            self.say("psoup", f"the engine ended ({_ending(code)}); restarting it in {wait:g} s")
        if self._engine_due is not None and now >= self._engine_due:
            self._engine.start()
            self._engine_started, self._engine_due = now, None

    def _stop(self) -> None:
        self.say("psoup", "stopping")
        for child in (self._engine, self._server):
            if child is not None:
                child.stop(GRACE_SECONDS)
        self.say("psoup", "stopped; everything acknowledged is in the folder")

    def _welcome(self) -> None:
        engine = "the engine is starting; answers do not wait for it"
        self.say("psoup", f"ready: {self._target} over {self._store}")
        self.say("psoup", engine if self._engine else "no engine: answers are computed on the spot")
        for line in (
            f"  export PSOUP_TARGET={self._target}",
            *(["  export PSOUP_TLS_CA=FILE"] if self._tls else []),
            *(["  export PSOUP_TOKEN_FILE=FILE"] if self._tokens else []),
            "  psoup stream create 'CREATE STREAM …'",
            "  psoup register --key mine 'SELECT … FROM …'",
            "  psoup publish STREAM FILE",
            "  psoup invoke mine",
            "Ctrl-C stops it.",
        ):
            self.say("psoup", line)

    def say(self, name: str, line: str) -> None:
        """Print a line of the process with this name."""
        with self._printing:
            echo(line, err=True, label=f"{click.style(f'{name:>6} |', fg=_COLOURS[name])} ")


def _store_reached(client: Client) -> str:
    """Return the id of the store that answers at the target; empty if none does."""
    try:
        return client.status().store_id
    except PsoupError as error:
        # A store that refuses an unknown caller still sends its id.
        return error.detail.store_id


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
