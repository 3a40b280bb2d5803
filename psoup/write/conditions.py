"""Conditions of edits: which row each expects to be the current one of its stream key.

A condition is checked when its batch is appended, over all rows accepted before. Most of these were
read when the batch was validated: `Conditions.last` has what is left of them. The remaining ones
are few: those accepted since, and those of the commit in the making.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from datastem.arrays import Int8s, Int64s
from datastem.codec import decode
from datastem.equality import key_digests
from datastem.instants import FOR_EVER, format_instant
from datastem.keyed_rows import KeyedRows, SortedRuns
from datastem.schema import EXPECTED, NO_ROW, OP, OP_ROW, StreamSchema
from psoup.errors import ConflictRow, NotCurrent

# An id that no row has, and no caller can send: the condition fails.
IMPOSSIBLE = -2


@dataclass(frozen=True, slots=True)
class ProposedRows:
    """The rows of a batch that is not appended yet, by place: the digests of their stream keys,
    their ts (None if that is the stamp of arrival), and their operations."""

    keys: Int64s
    ts: Int64s | None
    ops: Int8s

    @classmethod
    def of(cls, batch: pa.RecordBatch, schema: StreamSchema) -> ProposedRows:
        """Return the rows of an accepted batch."""
        ts = None
        # A batch with patches that is not completed may lack the event time.
        if schema.ordered_by in batch.schema.names:
            ts = batch.column(schema.ordered_by).view(pa.int64()).to_numpy()
        keys = key_digests([batch.column(name) for name in schema.key])
        return cls(keys, ts, batch.column(OP).to_numpy())

    @classmethod
    def decoded(cls, payload: bytes, schema: StreamSchema) -> ProposedRows:
        """Return the rows of a payload."""
        # Behind all positions: the batch may have every column of the schema.
        rows = KeyedRows.of(decode(schema, payload, 0, 0, FOR_EVER))
        return cls(rows.keys, None if schema.ts_is_stamp else rows.ts, rows.ops)

    def at(self, first_row_id: int, stamp: int) -> KeyedRows:
        """Return the rows as they are appended: with ids, and a stamp of arrival."""
        ids = np.arange(first_row_id, first_row_id + len(self.keys))
        ts = np.full(len(ids), stamp) if self.ts is None else self.ts
        return KeyedRows(self.keys, ts, ids, self.ops)


@dataclass(frozen=True, slots=True)
class Conditions:
    """The `rows` of a batch; the places of those that have an `_expected`, and the expected ids.

    `last` are the last rows of their keys, each with the id -1 if there is none, among the rows
    with ids below `high`.
    """

    rows: ProposedRows
    places: Int64s
    expected: Int64s
    last: KeyedRows | None = None
    high: int = 0

    @classmethod
    def of(cls, batch: pa.RecordBatch, expected: pa.Array, schema: StreamSchema) -> Conditions:
        """Return the conditions of an accepted batch, of which `expected` is the column."""
        places = np.flatnonzero(expected.is_valid().to_numpy(zero_copy_only=False))
        return cls(ProposedRows.of(batch, schema), places, expected.drop_null().to_numpy())

    @property
    def keys(self) -> Int64s:
        """The digests of the stream keys that are expected to have a row."""
        return self.rows.keys[self.places]

    def known(self, last: KeyedRows, high: int) -> Conditions:
        """Return the conditions with the last rows of their keys among those below an id."""
        return replace(self, last=last, high=high)

    def without(self, hidden: Int64s) -> Conditions:
        """Return the conditions, of which those that expect one of the `hidden` ids fail."""
        unmet = np.isin(self.expected, hidden)
        return replace(self, expected=np.where(unmet, IMPOSSIBLE, self.expected))

    def check(self, stream_id: int, schema: StreamSchema, newest: SortedRuns) -> None:
        """Raise ConflictRow or NotCurrent for the first row of the batch whose condition fails.
        `newest` must have all rows of the stream from `high` on."""
        assert self.last is not None, "conditions are checked once their last rows are known"
        last = later_rows(self.last, newest)
        current = np.where(last.ops == OP_ROW, last.ids, NO_ROW)
        failing = np.flatnonzero(current != self.expected)
        if len(failing):
            place, row_id = int(self.places[failing[0]]), int(current[failing[0]])
            raise ConflictRow(
                f"row {place}: another row of its key is current than the one that it expects",
                stream_id=stream_id,
                row_id=row_id,
                row=place,
                field=EXPECTED,
                hint="look at the row that is there now, and decide again",
            )
        if self.rows.ts is not None:
            check_times(schema, self.places, self.rows.ts[self.places], last)


def check_times(schema: StreamSchema, places: Int64s, ts: Int64s, last: KeyedRows) -> None:
    """Raise NotCurrent for an edit, of those at some `places`, that is older than the last row of
    its key: no answer of the present would show it."""
    late = np.flatnonzero((last.ids != NO_ROW) & (ts < last.ts))
    if not len(late):
        return
    place = int(places[late[0]])
    raise NotCurrent(
        f"row {place}: {schema.labelled.ordered_by} is earlier than that of the last row of its "
        "key, so it would not become the current one",
        row=place,
        field=schema.labelled.ordered_by or "",
        got=format_instant(int(ts[late[0]])),
        hint="give it a later time, or send a whole row without _expected to put it into the past",
    )


def later_rows(last: KeyedRows, newest: SortedRuns) -> KeyedRows:
    """Return the last rows of keys, of which there are some in `newest`, too."""
    if not len(newest):
        return last
    for_ever = np.full(len(last), FOR_EVER)
    new = newest.last_at(last.keys, for_ever, for_ever)
    later = (new.ts > last.ts) | ((new.ts == last.ts) & (new.ids > last.ids))
    later &= new.ids != NO_ROW
    return KeyedRows(
        last.keys,
        np.where(later, new.ts, last.ts),
        np.where(later, new.ids, last.ids),
        np.where(later, new.ops, last.ops),
    )


@dataclass(frozen=True, slots=True)
class NewRows:
    """What the conditions of a group of proposals are checked with beside their `last` rows.

    `accepted` has, by stream, the rows since the least `high` of its conditions, or the error of
    reading them. `proposed` has, by digest, the batches of the group for these streams.
    """

    accepted: Mapping[int, KeyedRows | Exception]
    proposed: Mapping[bytes, ProposedRows]

    def accepted_rows(self, stream_id: int) -> SortedRuns:
        """Return the accepted rows of a stream. Raise what reading them has raised."""
        rows = self.accepted[stream_id]
        if isinstance(rows, Exception):
            raise rows
        return SortedRuns().append(rows)


NO_NEW_ROWS = NewRows({}, {})
