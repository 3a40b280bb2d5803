"""Reading offline: one copy as a program uses it, and SQL over all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from client_sdk._exceptions import LocalQueryProblem
from client_sdk._wire.answers import python_rows, to_pandas
from client_sdk._wire.values import Column, from_micros, utc
from client_sdk.copies._file import catalog, sqlite, tables
from client_sdk.copies._file.catalog import Record
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.records import CopyState
from client_sdk.copies._file.tables import quoted, sql_expression, stored
from client_sdk.copies._overlay.overlaid import Status
from client_sdk.copies._overlay.pending import pending_of
from client_sdk.copies._overlay.source import PENDING, Source
from client_sdk.copies._query.answers import (
    CopyClock,
    Reading,
    answer_at,
    answer_columns,
    batches_at,
    read_columns,
    source_at,
    version_of,
)


class Copy:
    """The answer of one registration, offline.

    If `state.slides`, the answer is that at the store's NOW, by this machine's clock and its
    `state.clock_offset`: rows leave and enter by themselves. Otherwise it stays at `state.now`. An
    explicit `now` may be later than that, but not earlier. Results without intervals (groups,
    DISTINCT, LIMIT) are the same at any instant.
    """

    def __init__(self, file: CopyFile, now: CopyClock, name: str) -> None:
        self._file = file
        self._now = now
        self.name = name

    @property
    def state(self) -> CopyState:
        """The state of the copy. Raises NotSynced before the first sync."""
        with self._file.reading() as connection:
            record = catalog.find(connection, self.name)
            state = version_of(record).state
            columns, offset = answer_columns(connection, record), self._now.offset(record)
            return replace(state, columns=columns, clock_offset=offset)

    @property
    def synced(self) -> bool:
        """True if there is an answer."""
        with self._file.reading() as connection:
            return catalog.find(connection, self.name).version is not None

    @property
    def evicted_at(self) -> datetime | None:
        """When it was evicted to make room for other copies; None if it was not, or came again."""
        with self._file.reading() as connection:
            micros = catalog.find(connection, self.name).use.evicted_at
        return None if micros is None else from_micros(micros)

    @property
    def pinned(self) -> bool:
        """True if it is never evicted."""
        with self._file.reading() as connection:
            return catalog.find(connection, self.name).declaration.pinned

    @property
    def staged(self) -> bool:
        """True if a part of the next answer was received, and the rest is for the next sync."""
        with self._file.reading() as connection:
            record = catalog.find(connection, self.name)
            return record.stage is not None or record.following is not None

    @property
    def handle(self) -> bytes | None:
        """The handle of its registration; None before it is registered."""
        with self._file.reading() as connection:
            return catalog.find(connection, self.name).declaration.handle or None

    @property
    def stream(self) -> str | None:
        """The stream that its query reads; None before a sync has learnt it."""
        with self._file.reading() as connection:
            return catalog.find(connection, self.name).declaration.stream or None

    @property
    def edits(self) -> bool:
        """True if own edits are shown in it."""
        with self._file.reading() as connection:
            return catalog.find(connection, self.name).declaration.edits

    @property
    def pending(self) -> dict[Any, Status]:
        """The own edits that the store has not sent back yet, by their stream key (a tuple if it
        has several columns), or by the id of the row if the stream has no key.

        "queued" edits wait to be sent. "sent" ones are in the store, and in the copy with its next
        sync. "rejected" ones were refused for good. What the store would make of an "unchecked" one
        can't be said. Empty if the copy is kept without edits. Raises NotSynced.
        """
        with self._file.reading() as connection:
            record = catalog.find(connection, self.name)
            return pending_of(connection, record, self._now.moment(record, None))

    def answer_now(
        self, now: datetime | None = None, *, queued: bool = True, rejected: bool = False
    ) -> datetime | None:
        """Return the NOW of the answer that `to_arrow` and the others read with these options; None
        if its stream has none yet. Raises NotSynced.

        In a snapshot it is that of the answers that are read there. Own rows with event time may
        move it.
        """
        with self._file.reading() as connection:
            record = catalog.find(connection, self.name)
            reading = Reading(self._now.moment(record, now), queued, rejected)
            with source_at(connection, record, reading) as source:
                return None if source.now is None else from_micros(source.now)

    def to_arrow(
        self,
        now: datetime | None = None,
        *,
        queued: bool = True,
        rejected: bool = False,
        pending: bool = False,
    ) -> pa.Table:
        """Return the answer as an Arrow table. Raises NotSynced.

        In a copy that is kept with edits, own edits are in it: without `queued` it is as the store
        sent it, and with `rejected` the edits that the store refused are on top. With `pending` a
        column `_pending` has the status of rows that are own edits.
        """
        return self._answer(now, queued, rejected, pending)[0]

    def _answer(
        self, now: datetime | None, queued: bool, rejected: bool, pending: bool = False
    ) -> tuple[pa.Table, tuple[Column, ...]]:
        with self._file.reading() as connection:
            record = catalog.find(connection, self.name)
            reading = Reading(self._now.moment(record, now), queued, rejected, pending)
            table = answer_at(connection, record, reading)
            self._now.note_read(record)
            columns = read_columns(answer_columns(connection, record), reading)
        # Reading at an explicit instant does not move the NOW of the copy.
        if now is None:
            self._now.note(record, reading.moment.now)
        return table, columns

    def batches(
        self,
        now: datetime | None = None,
        *,
        rows: int = 65_536,
        queued: bool = True,
        rejected: bool = False,
        pending: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the answer a batch at a time, for answers larger than memory.

        The file stays open at one moment until the last batch, so take all batches, in one thread.
        Own edits are as in `to_arrow`.
        """
        with self._file.reading() as connection:
            record = catalog.find(connection, self.name)
            reading = Reading(self._now.moment(record, now), queued, rejected, pending)
            self._now.note_read(record)
            yield from batches_at(connection, record, reading, rows)

    def rows(
        self, now: datetime | None = None, *, queued: bool = True, rejected: bool = False
    ) -> list[dict[str, Any]]:
        """Return the answer as dicts. Timestamps are aware datetimes in UTC, decimals Decimal, NULL
        None. Own edits are as in `to_arrow`.
        """
        return python_rows(*self._answer(now, queued, rejected))

    def to_pandas(
        self,
        now: datetime | None = None,
        *,
        queued: bool = True,
        rejected: bool = False,
        pending: bool = False,
    ) -> Any:
        """Return the answer as a pandas DataFrame. pandas is not part of the base install."""
        return to_pandas(self.to_arrow(now, queued=queued, rejected=rejected, pending=pending))

    def query(
        self,
        sql: str,
        parameters: Parameters = (),
        *,
        now: datetime | None = None,
        queued: bool = True,
        rejected: bool = False,
    ) -> list[dict[str, Any]]:
        """Run one SELECT of SQLite over the answer, a table of the copy's name.

        Own edits are as in `to_arrow`; a copy that is kept with edits has a column `_pending`.
        """
        with self._file.reading() as connection:
            record = catalog.find(connection, self.name)
            reading = Reading(self._now.moment(record, now), queued, rejected)
            rows = run_query(connection, sql, parameters, [(record, reading)])
            self._now.note_read(record)
        if now is None:
            self._now.note(record, reading.moment.now)
        return rows

    def __len__(self) -> int:
        return int(self.to_arrow().num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __repr__(self) -> str:
        return f"<Copy {self.name} in {self._file.name}>"


Parameters = Sequence[Any] | Mapping[str, Any]

# The actions that a query may take: none writes, attaches a file or changes a setting.
_READS = frozenset(
    {
        sqlite.SQLITE_SELECT,
        sqlite.SQLITE_READ,
        sqlite.SQLITE_FUNCTION,
        sqlite.SQLITE_RECURSIVE,
    }
)


def run_query(
    connection: sqlite.Connection,
    sql: str,
    parameters: Parameters,
    copies: Iterable[tuple[Record, Reading]],
) -> list[dict[str, Any]]:
    """Run one SELECT, read-only. `copies` are those that have been synced, each with what is read.

    Raises LocalQueryProblem.
    """
    # The authorizer would deny making and dropping the views, so it is set inside their block.
    with _views(connection, copies), _read_only(connection):
        try:
            cursor = connection.execute(sql, _adapted(parameters))
            names = [column[0] for column in cursor.description or ()]
            rows = cursor.fetchall()
        except sqlite.Error as error:
            raise LocalQueryProblem(f"{error}") from error
        except sqlite.Warning as error:
            raise LocalQueryProblem(f"{error}") from error
        except OverflowError as error:
            raise LocalQueryProblem(f"{error}") from error
    return [dict(zip(names, row, strict=True)) for row in rows]


@contextmanager
def _views(
    connection: sqlite.Connection, copies: Iterable[tuple[Record, Reading]]
) -> Iterator[None]:
    created: list[str] = []
    # The sources of own edits are tables, which are dropped after the views.
    with ExitStack() as sources:
        try:
            for record, requested in copies:
                # Noted before the view is created, so that a failure in between leaves nothing
                # behind.
                created.append(f"VIEW temp.{quoted(record.name)}")
                reading = replace(requested, pending=record.declaration.edits)
                if record.declaration.base_rows:
                    created.append(f"TABLE temp.{_computed_table(record)}")
                    select = _select_computed(connection, record, reading)
                else:
                    source = sources.enter_context(source_at(connection, record, reading))
                    select = _select(record, source, reading)
                connection.execute(f"CREATE TEMP VIEW {quoted(record.name)} AS {select}")
            yield
        finally:
            for name in created:
                connection.execute(f"DROP {name.replace(' ', ' IF EXISTS ', 1)}")


def _select(record: Record, source: Source, reading: Reading) -> str:
    columns = version_of(record).shape.columns
    names = tables.value_names(columns)
    if reading.pending:
        columns, names = (*columns, PENDING), [*names, source.pending]
    return f"SELECT {_values(columns, names)} FROM {source.rows} ORDER BY {source.order}"


def _select_computed(connection: sqlite.Connection, record: Record, reading: Reading) -> str:
    """Create a table of the answer that is computed from base rows, and return a SELECT of it."""
    columns = read_columns(answer_columns(connection, record), reading)
    table = _computed_table(record)
    answer = answer_at(connection, record, reading).combine_chunks()
    # One list of stored values for each column. Rows are inserted in the order of the answer, which
    # the rowids then keep.
    series = (
        [
            stored(array, column)
            for array, column in zip(answer.to_batches()[0].columns, columns, strict=True)
        ]
        if answer.num_rows
        else [[] for _ in columns]
    )
    names = tables.value_names(columns)
    connection.execute(f"CREATE TEMP TABLE {table} ({', '.join(names)})")
    places = ", ".join("?" * len(names))
    connection.executemany(f"INSERT INTO temp.{table} VALUES ({places})", zip(*series, strict=True))
    return f"SELECT {_values(columns, names)} FROM temp.{table} ORDER BY rowid"


def _computed_table(record: Record) -> str:
    return f"_psoup_computed_{record.copy_id}"


def _values(columns: Sequence[Column], names: Sequence[str]) -> str:
    places = zip(names, columns, _distinct(columns), strict=True)
    return ", ".join(
        f"{sql_expression(place, column)} AS {quoted(name)}" for place, column, name in places
    )


def _distinct(columns: Sequence[Column]) -> list[str]:
    """Return names that SQLite can distinguish: it ignores case."""
    names: list[str] = []
    for column in columns:
        name, number = column.name, 2
        while name.lower() in {earlier.lower() for earlier in names}:
            name, number = f"{column.name}_{number}", number + 1
        names.append(name)
    return names


@contextmanager
def _read_only(connection: sqlite.Connection) -> Iterator[None]:
    connection.set_authorizer(_authorize)
    try:
        yield
    finally:
        connection.set_authorizer(None)


def _authorize(action: int, *_: str | None) -> int:
    return sqlite.SQLITE_OK if action in _READS else sqlite.SQLITE_DENY


def _adapted(parameters: Parameters) -> Any:
    if isinstance(parameters, Mapping):
        return {name: _value(value) for name, value in parameters.items()}
    return [_value(value) for value in parameters]


def _value(value: Any) -> Any:
    """Return a parameter in the form that a query finds such values in."""
    if isinstance(value, datetime):
        # %Y may not pad years before 1000, and SQLite compares texts character by character.
        return utc(value).strftime("%Y-%m-%d %H:%M:%S.%f").rjust(26, "0")
    if isinstance(value, date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value
