"""The reader of a table: its snapshot if it is new, then the transactions of its slot."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg2

from client_sdk import Client
from psoup.source.connectors.current_rows import last_row_id
from psoup.source.connectors.postgres.catalog import TableMapping
from psoup.source.connectors.postgres.changes import Change, ChangeMaker, decode
from psoup.source.connectors.postgres.session import connect, first_line, lsn_text, parse_lsn
from psoup.source.connectors.postgres.slot import SlotWatch
from psoup.source.connectors.postgres.snapshot import (
    TableSnapshot,
    create_slot,
    current_keys,
    snapshot_mark,
)
from psoup.source.errors import PlaceLost, SourceAway
from psoup.source.feeding.piece import Mark, Piece

IDLE_SECONDS = 60.0
_FEEDBACK_SECONDS = 1.0
_PIECE_CHANGES = 10_000


class PostgresReader:
    """A reader of one table. Its mark is `{"phase": "wal", "slot": NAME, "lsn": END}`.

    The slot is confirmed up to the last mark that the store has, so what was not acknowledged comes
    again. A lock in the database keeps other copies of the source away.
    """

    can_seek = True
    at_end = False

    def __init__(
        self,
        dsn_file: Path,
        table: str,
        slot: str,
        mapping: TableMapping,
        mark: Mark,
        make_client: Callable[[], Client],
        on_truncate: str,
        slot_most: int | None,
    ) -> None:
        self._dsn_file, self._table, self._slot, self._mapping = dsn_file, table, slot, mapping
        self._make_client, self._on_truncate = make_client, on_truncate
        self._maker = ChangeMaker(mapping)
        self._pieces: Iterator[Piece] = iter(())
        self._changes: list[Change] = []
        self._confirmed = self._ended = 0
        self._feedback_at = self._moved_at = time.monotonic()
        self._time = str(mark.get("time", ""))
        self._has_actions = self._in_transaction = False
        self._snapshot: TableSnapshot | None = None
        self._watch: SlotWatch | None = None
        self._stream: Any = None
        self._acknowledged: Mark = mark
        self._control = connect(dsn_file)
        self._control.autocommit = True
        self._replication = connect(dsn_file, replication=True)
        try:
            self._lock()
            if mark.get("phase") == "wal":
                self._begin_wal(mark)
            else:
                self._begin_snapshot(mark)
        except BaseException:
            self.close()
            raise
        self._watch = SlotWatch(dsn_file, slot, slot_most)

    def _query(self, text: str, *values: Any) -> Any:
        with self._control.cursor() as cursor:
            cursor.execute(text, values)
            return cursor.fetchone()

    def _lock(self) -> None:
        (is_free,) = self._query("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", self._slot)
        if not is_free:
            raise SourceAway(f"another process reads slot {self._slot}")

    # ---- the snapshot

    def _begin_snapshot(self, mark: Mark) -> None:
        if mark.get("slot") != self._slot and self._has_slot():
            raise PlaceLost(
                f"slot {self._slot} is there, and the store has no mark of it: take another name, "
                f"or SELECT pg_drop_replication_slot('{self._slot}')"
            )
        begin = {**snapshot_mark(self._slot), "attempt": int(mark.get("attempt", 0)) + 1}
        self._pieces = self._snapshot_pieces(begin | ({"time": self._time} if self._time else {}))

    def _has_slot(self) -> bool:
        text = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s"
        return self._query(text, self._slot) is not None

    def _snapshot_pieces(self, begin: Mark) -> Iterator[Piece]:
        # The store has to know of the slot before it is there: a kill begins again.
        yield Piece(self._empty, mark=begin, is_restart=True)
        yield from self._until_acknowledged(begin)
        with self._make_client() as client:
            last = last_row_id(client, self._mapping.stream)
        if self._has_slot():
            # Of a snapshot that was interrupted, and is gone.
            self._query("SELECT pg_drop_replication_slot(%s)", self._slot)
        lsn, name = create_slot(self._replication, self._slot)
        self._snapshot = TableSnapshot(self._dsn_file, self._mapping, begin, lsn, name, self._time)
        # A transaction after the snapshot may have committed before its rows were read.
        self._time = self._snapshot.time
        yield from self._snapshot.pieces()
        self._snapshot.close()
        if last is not None:
            # Rows from before that the snapshot has not replaced are not in the table any more.
            mark = {**begin, "is_read": True}
            yield from self._until_acknowledged(mark)
            yield from self._deletes(mark, last)
        yield Piece(self._empty, mark=self._mark(parse_lsn(lsn)))
        self._start(parse_lsn(lsn))

    @property
    def _empty(self) -> Any:
        return self._mapping.stream.schema.empty_table()

    def _until_acknowledged(self, mark: Mark) -> Iterator[Piece]:
        """Yield pieces without rows until the store has everything before the mark."""
        yield Piece(self._empty, mark=mark)
        while self._acknowledged != mark:
            time.sleep(0.01)
            yield Piece(self._empty, mark=mark)

    def _deletes(self, mark: Mark, last: int) -> Iterator[Piece]:
        """Yield deletes of the stream's keys up to a row id. The store has all rows before."""
        with self._make_client() as client:
            for keys in current_keys(client, self._mapping.stream, last):
                deletes = self._maker.deletes(keys, self._time)
                chunk = self._maker.chunk(deletes)
                yield Piece(Piece.of(chunk).table, (), mark, lambda record: mark)

    # ---- the log

    def _begin_wal(self, mark: Mark) -> None:
        if mark["slot"] != self._slot:
            raise PlaceLost(f"the mark is of slot {mark['slot']}, not {self._slot}")
        slot = self._query(
            "SELECT confirmed_flush_lsn::text, wal_status FROM pg_replication_slots "
            "WHERE slot_name = %s",
            self._slot,
        )
        if slot is None or slot[1] == "lost":
            # The table is read again, and what it lacks is deleted.
            self._begin_snapshot({"slot": self._slot})
            return
        lsn = parse_lsn(mark["lsn"])
        if parse_lsn(slot[0]) > lsn:
            raise PlaceLost(
                f"slot {self._slot} was read by something else, up to {slot[0]}; the mark is "
                f"{mark['lsn']}. Drop the slot, and the table is read again"
            )
        if mark.get("truncate"):
            self._pieces = self._truncated(mark)
        self._start(lsn)

    def _start(self, lsn: int) -> None:
        self._confirmed = self._ended = lsn
        self._stream = self._replication.cursor()
        options = {
            "format-version": "2",
            "include-lsn": "1",
            "include-timestamp": "1",
            "add-tables": self._table.replace(" ", "\\ "),
        }
        try:
            self._stream.start_replication(
                slot_name=self._slot, start_lsn=lsn, options=options, decode=True
            )
        except psycopg2.Error as error:
            raise self._away(f"slot {self._slot}", error) from None

    def poll(self, seconds: float) -> Piece | None:
        try:
            piece = next(self._pieces, None)
            return piece if piece is not None else self._poll_log(seconds)
        except psycopg2.Error as error:
            raise self._away("PostgreSQL", error) from None

    def _away(self, what: str, error: Exception) -> SourceAway:
        """Return why the log can't be read: by the watch, which may have dropped the slot."""
        problem = self._watch.problem if self._watch else ""
        return SourceAway(problem or f"{what}: {first_line(error)}")

    def _poll_log(self, seconds: float) -> Piece | None:
        deadline = time.monotonic() + seconds
        while True:
            self._send_feedback()
            message = self._stream.read_message()
            # The server sends what there is without being asked.
            self.at_end = message is None and not self._in_transaction
            if message is None:
                if (wait := deadline - time.monotonic()) <= 0:
                    return self._idle()
                select.select([self._stream], [], [], min(wait, _FEEDBACK_SECONDS))
                continue
            piece = self._take(decode(message.payload))
            if piece is not None:
                return piece

    def _take(self, message: dict[str, Any]) -> Piece | None:
        """Return a piece if a transaction ends with the message, or a large one goes on."""
        action = message["action"]
        self._in_transaction = action != "C"
        if action == "B":
            self._changes, self._has_actions = [], False
            self._maker.begin()
            # Commit times do not follow the order of the log; rows have to.
            self._time = max(self._time, _instant(message["timestamp"]))
        elif action == "C":
            self._ended = parse_lsn(message["nextlsn"])
            if self._has_actions:
                self._moved_at = time.monotonic()
                return self._piece(self._mark(self._ended))
        elif action == "T":
            return self._truncate(message)
        elif action in "IUD":
            self._has_actions = True
            lsn = message.get("lsn", "")
            self._changes += self._maker.changes(message, lsn, self._time)
            if len(self._changes) >= _PIECE_CHANGES:
                return self._piece(None)
        return None

    def _piece(self, mark: Mark | None) -> Piece:
        changes, self._changes = self._changes, []
        return Piece.of(self._maker.chunk(changes), mark, f"before {lsn_text(self._ended)}, ")

    def _mark(self, lsn: int) -> dict[str, Any]:
        return {"phase": "wal", "slot": self._slot, "lsn": lsn_text(lsn), "time": self._time}

    def _idle(self) -> Piece | None:
        """Move the mark behind what others wrote, so that the server can drop its log."""
        end = max(self._ended, int(self._stream.wal_end or 0)) if not self._changes else 0
        if end <= self._confirmed or time.monotonic() - self._moved_at < IDLE_SECONDS:
            return None
        self._moved_at, self._ended = time.monotonic(), end
        return Piece(self._empty, mark=self._mark(end))

    # ---- TRUNCATE

    def _truncate(self, message: dict[str, Any]) -> Piece | None:
        if self._on_truncate != "delete":
            raise PlaceLost(
                f'the table was truncated at {message["lsn"]}; set on_truncate = "delete" to '
                "delete all rows of the stream"
            )
        if self._has_actions:
            raise PlaceLost(
                "the table was truncated within a transaction that had changed it before"
            )
        # A mark of its own: deletes that are interrupted are looked for again.
        mark = self._mark(self._ended) | {"truncate": True}
        self._pieces = self._truncated(mark)
        return Piece(self._empty, mark=mark)

    def _truncated(self, mark: Mark) -> Iterator[Piece]:
        """Yield deletes of all keys that the stream has when everything before is in the store."""
        yield from self._until_acknowledged(mark)
        with self._make_client() as client:
            last = last_row_id(client, self._mapping.stream)
        if last is not None:
            yield from self._deletes(mark, last)
        self._has_actions = True

    # ---- the feed

    def acknowledge(self, mark: Mark) -> None:
        self._acknowledged = mark
        if mark.get("phase") == "wal":
            self._confirmed = max(self._confirmed, parse_lsn(str(mark["lsn"])))

    def _send_feedback(self) -> None:
        if time.monotonic() - self._feedback_at >= _FEEDBACK_SECONDS:
            self._feedback_at = time.monotonic()
            self._stream.send_feedback(flush_lsn=self._confirmed, write_lsn=self._confirmed)

    def interrupt(self) -> None:
        """A poll does not wait for long."""

    def close(self) -> None:
        for part in (self._watch, self._snapshot, self._replication, self._control):
            if part is not None:
                part.close()


def _instant(text: str) -> str:
    """Return a time of wal2json so that texts compare as times do: with six digits, in UTC."""
    head, _, _ = text.partition("+")
    whole, _, fraction = head.partition(".")
    return f"{whole}.{fraction:0<6}Z"
