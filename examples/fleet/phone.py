"""A phone: a file of copies that is synced while it is plugged in, and read all the time."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from client_sdk import Client, Copies, PsoupError, Retry, Synced

NEAR = "SELECT vehicle, x, y, ts FROM positions WHERE x >= :west AND x < :east RANGE 45 SECONDS"
JOBS = "SELECT id, title, state, editor FROM jobs ORDER BY id"
STATES = ("open", "on the way", "done")
TICK_SECONDS = 0.5
_CALL_SECONDS = 5.0
# One sync in this many is compared with what the store answers for the same instant.
_COMPARED_SYNCS = 10
_MAX_TITLE = 60

Row = dict[str, Any]


@dataclass
class Meter:
    """What has gone over the line, and what needed none."""

    received_bytes: int = 0
    received_rows: int = 0
    sent_rows: int = 0
    left_by_time: int = 0
    syncs: int = 0
    # Of the copy when it was last compared; None before.
    equals_store: bool | None = None


@dataclass
class Absence:
    """One time without a connection, and what the sync after it took. `whole_bytes` is what a new
    phone would have received instead."""

    began: float
    left_by_time: int = 0
    seconds: float = 0.0
    received_bytes: int | None = None
    received_rows: int = 0
    sent_rows: int = 0
    whole_bytes: int = 0


@dataclass
class Phone:
    """A thread with a file of its own. Commands of other threads are done in its turn; `snapshot`
    is what it showed last."""

    name: str
    address: str
    file: Path
    west: float
    east: float
    snapshot: Row = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._commands: queue.Queue[Callable[[], None]] = queue.Queue()
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"phone {self.name}", daemon=True)
        self._client: Client | None = None
        self._meter = Meter()
        self._absence: Absence | None = None
        self._problem = ""
        # What was edited and is not in the copy yet, by id.
        self._pending: dict[int, Row] = {}
        self._shown: set[tuple[str, datetime]] = set()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._leave.set()
        self._thread.join()

    # ---- what a person does with it

    def plug(self) -> None:
        self._commands.put(self._plug)

    def unplug(self) -> None:
        self._commands.put(self._unplug)

    def advance(self, job: int) -> None:
        """Set a job to its next state."""
        self._commands.put(lambda: self._advance(job))

    def add(self, title: str) -> None:
        self._commands.put(lambda: self._add(title))

    # ---- its own thread

    def _run(self) -> None:
        with Copies(self.file) as self._copies:
            self._copies.keep("near", NEAR, parameters={"west": self.west, "east": self.east})
            self._copies.keep("jobs", JOBS, priority=1)
            self._plug()
            while not self._leave.is_set():
                began = time.monotonic()
                self._tick()
                self._wait(began + TICK_SECONDS)
            self._disconnect()

    def _tick(self) -> None:
        if self._client is not None:
            self._sync(self._client)
        self._look()

    def _wait(self, until: float) -> None:
        """Do commands as they come, until the next tick."""
        while (seconds := until - time.monotonic()) > 0 and not self._leave.is_set():
            try:
                command = self._commands.get(timeout=min(seconds, 0.1))
            except queue.Empty:
                continue
            command()
            self._tick()

    def _plug(self) -> None:
        if self._client is None:
            self._client = Client(self.address, retry=Retry(attempts=1), timeout=_CALL_SECONDS)

    def _unplug(self) -> None:
        if self._client is not None:
            self._disconnect()
            self._absence = Absence(time.monotonic())

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _sync(self, client: Client) -> None:
        try:
            synced = self._copies.sync(client)
            self._count(synced)
            if self._absence is not None and self._absence.received_bytes is None:
                self._end_absence(self._absence, client, synced)
            if self._meter.syncs % _COMPARED_SYNCS == 1:
                self._meter.equals_store = self._agrees(client)
            self._problem = ""
        except PsoupError as error:
            self._problem = str(error).splitlines()[0]

    def _count(self, synced: Synced) -> None:
        meter, rows = self._meter, sum(change.rows for change in synced.values())
        meter.syncs += 1
        meter.received_bytes += synced.received_bytes
        meter.received_rows += rows
        meter.sent_rows += synced.sent.rows
        if not self._copies.queued.rows:
            self._pending.clear()

    def _end_absence(self, absence: Absence, client: Client, synced: Synced) -> None:
        absence.seconds = time.monotonic() - absence.began
        absence.received_rows = sum(change.rows for change in synced.values())
        absence.sent_rows = synced.sent.rows
        with Copies.in_memory() as stranger:
            for name in self._copies:
                stranger.keep(name, handle=self._copies[name].handle)
            absence.whole_bytes = stranger.sync(client).received_bytes
        absence.received_bytes = synced.received_bytes
        self._meter.equals_store = self._agrees(client)

    def _agrees(self, client: Client) -> bool | None:
        """Return whether the copy is what the store answers for the same instant."""
        copy = self._copies["near"]
        now, handle = copy.state.now, copy.handle
        if now is None or handle is None:
            return None
        rows = copy.rows(now)
        answer = client.invoke(handle, as_of=now, knowledge="today").rows
        # A report that was accepted since the sync is newer than all that the copy has.
        newest = max((row["ts"] for row in rows), default=now)
        return rows == [row for row in answer if row["ts"] <= newest]

    # ---- edits

    def _jobs(self) -> list[Row]:
        rows = self._copies["jobs"].rows() if self._copies["jobs"].synced else []
        jobs = {row["id"]: row | {"waits": False} for row in rows}
        jobs |= {job: row | {"waits": True} for job, row in self._pending.items()}
        return [jobs[job] for job in sorted(jobs)]

    def _advance(self, job: int) -> None:
        row = next((row for row in self._jobs() if row["id"] == job), None)
        if row is not None:
            state = STATES[(STATES.index(row["state"]) + 1) % len(STATES)]
            self._edit({"id": job, "title": row["title"], "state": state})

    def _add(self, title: str) -> None:
        # Two phones that are offline choose different ids.
        job = 10 * int(time.time()) + (self.west > 0)
        if title.strip():
            self._edit({"id": job, "title": title.strip()[:_MAX_TITLE], "state": STATES[0]})

    def _edit(self, row: Row) -> None:
        """Queue a row in the file of copies: the next sync sends it, exactly once."""
        row = row | {"editor": self.name}
        self._copies.publish("jobs", [row])
        self._pending[row["id"]] = row

    # ---- what it shows

    def _look(self) -> None:
        """Read the copies as they are at this instant, with or without a connection."""
        near = self._copies["near"]
        rows = near.rows() if near.synced else []
        keys = {(row["vehicle"], row["ts"]) for row in rows}
        expired = len(self._shown - keys)
        self._shown = keys
        self._meter.left_by_time += expired
        absence = self._absence
        if absence is not None and self._client is None:
            absence.seconds = time.monotonic() - absence.began
            absence.left_by_time += expired
        now = datetime.now(UTC)
        self.snapshot = {
            "name": self.name,
            "west": self.west,
            "east": self.east,
            "plugged": self._client is not None,
            "problem": self._problem,
            "points": [
                [row["vehicle"], row["x"], row["y"], round((now - row["ts"]).total_seconds(), 1)]
                for row in rows
            ],
            "jobs": self._jobs(),
            "queued": self._copies.queued.rows,
            "meter": vars(self._meter).copy(),
            "absence": None if absence is None else vars(absence).copy(),
        }
