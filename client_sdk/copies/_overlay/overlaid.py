"""Own rows over the rows of a copy: the answer that the store would give if it took them now.

A row of a keyed stream replaces the row of its key, and a delete removes it, if the order of the
key, (ts, row id), says so. Other rows are added. Rows with event time move NOW, so that others
leave. The work grows with the number of own rows; rows of the copy are chosen by SQL alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from client_sdk._wire.values import to_micros
from client_sdk.copies._file import sqlite, tables
from client_sdk.copies._file.catalog import Record
from client_sdk.copies._file.records import Version
from client_sdk.copies._overlay import confirmed, own_rows
from client_sdk.copies._overlay.own_rows import OwnRow, Shown
from client_sdk.copies._overlay.patched import Beneath, OwnEdit, evaluate_patches, sets_of_row
from client_sdk.copies._overlay.source import temporary
from client_sdk.copies._queue.batches import ARROW, HEARTBEAT, Piece, rows_of

Status = Literal["queued", "sent", "rejected", "unchecked"]


@dataclass(frozen=True, slots=True)
class Moment:
    """The instants at which a copy is read, in microseconds.

    `now` is that of the answer. `present` is the store's NOW as the device knows it, at which own
    rows are taken; it differs from `now` if a program asks for another instant. `offset` is the
    store's clock minus the device's.
    """

    now: int | None
    present: int | None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class OwnPiece:
    """A piece of the queue that a copy shows. `payload` is there for heartbeats only."""

    first_row: int
    kind: str
    payload: bytes | None
    row_count: int
    status: Status
    acknowledged_at: int | None
    first_row_id: int | None


def own_pieces(connection: sqlite.Connection, copy: Shown) -> list[OwnPiece]:
    """Return the pieces for the stream of a copy that the copy has not from the store, in order."""
    rows = connection.execute(
        "SELECT first_row, kind, CASE kind WHEN 'heartbeat' THEN payload END, row_count, "
        "refused IS NOT NULL, doubtful IS NOT NULL, acknowledged_at, first_row_id "
        "FROM _psoup_queue WHERE lower(stream) = ? ORDER BY first_row",
        (copy.stream,),
    )
    pieces = [
        OwnPiece(
            first_row,
            kind,
            payload,
            count,
            _status(refused, doubtful, acknowledged),
            acknowledged,
            first_row_id,
        )
        for first_row, kind, payload, count, refused, doubtful, acknowledged, first_row_id in rows
    ]
    return [
        piece
        for piece in pieces
        if piece.acknowledged_at is None or not confirmed.is_covered(copy.record, piece.first_row)
    ]


def _status(refused: bool, doubtful: bool, acknowledged: int | None) -> Status:
    if refused:
        return "rejected"
    return "sent" if doubtful or acknowledged is not None else "queued"


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An own row as of a moment. `real_id` is the id that the store gave it, if known."""

    row: OwnRow
    ts: int
    status: Status
    real_id: int | None

    @property
    def order(self) -> tuple[bool, int, int]:
        """The order among own rows of a key: refused rows are on top."""
        return self.status == "rejected", self.ts, self.row.row_id


@dataclass(frozen=True, slots=True)
class Overlay:
    """Own rows as they change the answer of a copy at `now`: the ids of rows that they hide, and
    rows that they add, as a table of rows holds them, each with its status.

    What the store would make of the rows with the ids `unchecked` can't be said.
    """

    now: int | None
    hidden: Sequence[int]
    added: Sequence[tuple[Sequence[Any], Status]]
    copy: Shown
    unchecked: frozenset[int] = frozenset()


def overlay_at(
    connection: sqlite.Connection, record: Record, moment: Moment, *, rejected: bool
) -> Overlay | None:
    """Return the overlay of a copy that has been synced; None if it shows nothing."""
    copy = own_rows.shown_copy(connection, record)
    pieces = own_pieces(connection, copy) if copy is not None else []
    visible_pieces = [piece for piece in pieces if rejected or piece.status != "rejected"]
    version = record.version
    if copy is None or version is None or not visible_pieces or not _fits(copy, version):
        return None
    return _Overlaying(connection, copy, version, moment, visible_pieces).overlay()


def _fits(copy: Shown, version: Version) -> bool:
    """Return whether the rows of a version are of the query that own rows are evaluated by, and
    have stream keys if the stream has.
    """
    query, shape = copy.query, version.shape
    # Rows that a policy hides by NOW come as results, without the instants that order edits.
    is_ordered = query.schema.ts_is_stamp or not shape.by_checksum
    is_same = query.columns == shape.columns and bool(query.schema.key) == shape.keyed
    return is_same and (is_ordered or not shape.keyed)


class _Overlaying:
    """The making of one overlay."""

    def __init__(
        self,
        connection: sqlite.Connection,
        copy: Shown,
        version: Version,
        moment: Moment,
        pieces: Sequence[OwnPiece],
    ) -> None:
        self._connection = connection
        self._copy = copy
        self._query = copy.query
        self._version = version
        self._moment = moment
        self._pieces = pieces

    def overlay(self) -> Overlay:
        candidates, unknown = self._patched(list(self._candidates()))
        now = self._now(candidates)
        if self._query.schema.key:
            current, hidden, unchecked = self._current(candidates)
            unchecked |= unknown
        else:
            current, hidden, unchecked = self._new(candidates), [], frozenset[int]()
        matches = [
            replace(candidate, status="unchecked")
            if candidate.row.row_id in unchecked
            else candidate
            for candidate in current
            if candidate.row.is_match
        ]
        return Overlay(now, hidden, list(self._added(matches, now)), self._copy, unchecked)

    # ---- candidates

    def _candidates(self) -> Iterator[_Candidate]:
        starts = [piece.first_row for piece in self._pieces]
        for row in self._rows():
            place = bisect_right(starts, row.row_id) - 1
            piece = self._pieces[place] if place >= 0 else None
            # Rows of pieces that are not shown are skipped.
            if piece is None or row.row_id >= piece.first_row + piece.row_count:
                continue
            real_id = None
            if piece.first_row_id is not None and piece.first_row_id >= 0:
                real_id = piece.first_row_id + row.row_id - piece.first_row
            ts = self._arrival(piece) if row.ts is None else row.ts
            yield _Candidate(row, ts, piece.status, real_id)

    def _patched(self, candidates: list[_Candidate]) -> tuple[list[_Candidate], frozenset[int]]:
        """Return the rows with patches evaluated, without those patches of which the outcome can't
        be said, and the ids of these."""
        keys = {c.row.key for c in candidates if c.row.is_patch}
        if not keys:
            return candidates, frozenset()
        name = tables.value_names(self._version.shape.stored)[-1]
        in_copy = {
            digest: Beneath(values, self._ts(begin, values))
            for row_id, begin, *values, digest in self._base_rows(name, list(keys))
        }
        contents: dict[int, Any] = {}
        starts = [piece.first_row for piece in self._pieces]

        def sets_of(row_id: int) -> dict[str, Any]:
            piece = self._pieces[bisect_right(starts, row_id) - 1]
            if piece.first_row not in contents:
                contents[piece.first_row] = own_rows.named_rows(
                    self._connection, self._query, self._content(piece)
                )
            return sets_of_row(contents[piece.first_row], row_id - piece.first_row)

        edits = [
            OwnEdit(c.row, c.ts, c.status == "rejected") for c in candidates if c.row.key in keys
        ]
        arrival = self._moment.present or 0
        done, unknown = evaluate_patches(self._query, edits, in_copy, sets_of, arrival)
        evaluated = []
        for candidate in candidates:
            row = done.get(candidate.row.row_id, candidate.row)
            if not row.is_patch:
                ts = candidate.ts if row.ts is None else row.ts
                evaluated.append(replace(candidate, row=row, ts=ts))
        return evaluated, unknown

    def _content(self, piece: OwnPiece) -> Piece:
        payload = self._connection.execute(
            "SELECT payload FROM _psoup_queue WHERE first_row = ?", (piece.first_row,)
        ).fetchone()[0]
        return Piece(piece.kind, payload, piece.row_count)

    def _rows(self) -> list[OwnRow]:
        rows = own_rows.read(self._connection, self._copy)
        if self._query.moves:
            return self._evaluated_now({row.row_id for row in rows})
        return rows

    def _evaluated_now(self, row_ids: set[int]) -> list[OwnRow]:
        """Return the rows of all pieces, evaluated as of this moment."""
        rows: list[OwnRow] = []
        for piece in self._pieces:
            if piece.kind == ARROW and piece.first_row in row_ids:
                rows += own_rows.evaluated(
                    self._connection,
                    self._query,
                    self._content(piece),
                    piece.first_row,
                    self._arrival(piece),
                )
        return rows

    def _arrival(self, piece: OwnPiece) -> int:
        """Return the ts of rows without an event time: when the store took them, or now."""
        present = self._moment.present or 0
        if piece.acknowledged_at is None:
            return present
        return min(present, piece.acknowledged_at + self._moment.offset)

    def _now(self, candidates: Iterable[_Candidate]) -> int | None:
        """Return the NOW of the answer, which rows with event time and heartbeats move."""
        if self._query.schema.now_is_clock:
            return self._moment.now
        # The store limits them by its clock, too, which no copy over event time knows.
        slack = self._query.schema.slack
        instants = [c.ts - slack for c in candidates if c.status != "rejected"]
        for piece in self._pieces:
            if piece.kind == HEARTBEAT and piece.payload and piece.status != "rejected":
                instants.append(to_micros(rows_of(Piece(HEARTBEAT, piece.payload, 0))))
        if self._moment.now is not None:
            instants.append(self._moment.now)
        return max(instants, default=None)

    # ---- which own rows count

    def _new(self, candidates: Sequence[_Candidate]) -> list[_Candidate]:
        """Return the rows of an unkeyed stream that the copy has not received yet."""
        real_ids = [c.real_id for c in candidates if c.real_id is not None]
        received = {row_id for row_id, *_ in self._base_rows("row_id", real_ids)}
        return [c for c in candidates if c.real_id not in received]

    def _current(
        self, candidates: Sequence[_Candidate]
    ) -> tuple[list[_Candidate], list[int], frozenset[int]]:
        """Return the own rows that are current, the ids of the rows that they replace, and the ids
        of own rows of which that can't be said.
        """
        latest: dict[Any, _Candidate] = {}
        for candidate in candidates:
            key = self._key(candidate.row.key, candidate.row.values)
            before = latest.get(key)
            if before is None or before.order < candidate.order:
                latest[key] = candidate
        name = tables.value_names(self._version.shape.stored)[-1]
        digests = [c.row.key for c in latest.values()]
        hidden: list[int] = []
        in_copy = set()
        for row_id, begin, *values, digest in self._base_rows(name, digests):
            key = self._key(digest, values)
            own_row = latest.get(key)
            if own_row is None:
                continue
            in_copy.add(key)
            if _follows(own_row, row_id, self._ts(begin, values)):
                hidden.append(row_id)
            else:
                del latest[key]
        late = frozenset(
            c.row.row_id for key, c in latest.items() if key not in in_copy and self._is_late(c)
        )
        return list(latest.values()), hidden, late

    def _key(self, digest: Any, values: Sequence[Any]) -> Any:
        """Return what identifies a stream key: its digest, and its values if the copy has them."""
        return digest, *(values[place] for place in self._query.key_places)

    def _is_late(self, candidate: _Candidate) -> bool:
        """Return whether the store may have a later row of the key that the copy does not show."""
        now = self._version.now
        has_event_time = candidate.row.ts is not None
        return has_event_time and now is not None and candidate.ts < now

    def _ts(self, visible_from: int | None, values: Sequence[Any]) -> int:
        """Return the ts of a row of the copy."""
        if self._query.time_place is not None:
            return int(values[self._query.time_place])
        return (visible_from or 0) - self._query.windowing.lag

    def _base_rows(self, column: str, values: Sequence[Any]) -> list[Any]:
        """Return id, begin and values of the rows of the copy that have one of these `values`."""
        if not values:
            return []
        table, shape = self._version.table, self._version.shape
        names = ", ".join(tables.value_names(shape.stored))
        with temporary(
            self._connection, "value PRIMARY KEY", ((v,) for v in set(values))
        ) as values_table:
            return tables.read(
                self._connection,
                f"SELECT row_id, visible_from, {names} FROM {values_table} "
                f"CROSS JOIN {table} ON {column} = value",
            )

    # ---- rows as the file holds them

    def _added(
        self, candidates: Sequence[_Candidate], now: int | None
    ) -> Iterator[tuple[Sequence[Any], Status]]:
        intervals = self._query.intervals([c.ts for c in candidates], self._version.shape.zones)
        for candidate, (first, last) in zip(candidates, intervals, strict=True):
            row = candidate.row
            begin = first if row.visible_from is None else max(first, row.visible_from)
            ends = [end for end in (last, row.visible_until) if end is not None]
            end = min(ends, default=None)
            # A refused row would not move NOW; it is shown whatever its event time.
            has_begun = candidate.status == "rejected" or (now is not None and begin <= now)
            if not has_begun or (end is not None and now is not None and end <= now):
                continue
            values = list(row.values)
            for place in self._query.ts_places:
                values[place] = candidate.ts
            key = [row.key] if self._version.shape.keyed else []
            yield (row.row_id, begin, end, row.sort_key, 0, *values, *key), candidate.status


def _follows(candidate: _Candidate, row_id: int, ts: int) -> bool:
    """Return whether an own row comes after a row of its key in the copy, by (ts, row id)."""
    if candidate.status == "rejected":
        return True
    if candidate.row.ts is not None and candidate.ts != ts:
        return candidate.ts > ts
    # With arrival time, and among equal ts, a row that the store has not numbered is the last.
    return candidate.real_id is None or candidate.real_id > row_id
