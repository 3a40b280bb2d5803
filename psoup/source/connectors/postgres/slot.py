"""The watch over a replication slot, which is dropped if it keeps too much of the log."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg2

from psoup.source.connectors.postgres.session import connect
from psoup.source.errors import BadSettings, SourceAway

LOOK_SECONDS = 5.0
# How long a reader that was ended may hold its slot.
_RELEASE_SECONDS = 10.0
_RETAINED = (
    "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint, active_pid "
    "FROM pg_replication_slots WHERE slot_name = %s"
)


class SlotWatch:
    """Drops a slot that keeps more than a number of bytes; without a number it does nothing.

    It has a thread and a connection of its own: a reader that waits for the store, or sends rows
    without end, looks at nothing. `problem` says that the slot was dropped.
    """

    def __init__(self, dsn_file: Path, slot: str, most_bytes: int | None) -> None:
        self._dsn_file, self._slot, self._most_bytes = dsn_file, slot, most_bytes
        self.problem = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"slot {slot}", daemon=True)
        if most_bytes is not None:
            self._thread.start()

    def close(self) -> None:
        """End the watch, without waiting for it."""
        self._stop.set()

    def _run(self) -> None:
        connection: Any = None
        while not self._stop.wait(LOOK_SECONDS) and not self.problem:
            try:
                if connection is None:
                    connection = connect(self._dsn_file)
                    connection.autocommit = True
                self._look(connection)
            except (psycopg2.Error, SourceAway, BadSettings):
                # The reader reports what is wrong with the connection.
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def _look(self, connection: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(_RETAINED, (self._slot,))
            row = cursor.fetchone()
            if row is None or row[0] is None or row[0] <= (self._most_bytes or 0):
                return
            self._drop(cursor)
        self.problem = (
            f"slot {self._slot} kept {row[0]:,} bytes, more than slot_most, and was dropped; the "
            "table is read again"
        )

    def _drop(self, cursor: Any) -> None:
        """Drop the slot, once the connection that reads it has ended."""
        deadline = time.monotonic() + _RELEASE_SECONDS
        while True:
            # The role of the connection is that of the reader, so it may end it.
            cursor.execute(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
                "WHERE slot_name = %s AND active_pid IS NOT NULL",
                (self._slot,),
            )
            with suppress(psycopg2.errors.ObjectInUse):
                cursor.execute("SELECT pg_drop_replication_slot(%s)", (self._slot,))
                return
            if time.monotonic() > deadline:
                raise SourceAway(f"slot {self._slot} is in use")
            time.sleep(0.05)
