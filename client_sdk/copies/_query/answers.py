"""The answer of a copy at an instant, and the choice of that instant.

NOW of a copy that slides is the store's clock, computed from the client's own: never before the
store's NOW at the last sync, and never backwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa

from client_sdk._exceptions import FileDamaged, NotSynced
from client_sdk._wire.values import Column, from_micros, schema_of, to_micros
from client_sdk.copies._file import catalog, sqlite, tables
from client_sdk.copies._file.catalog import Record
from client_sdk.copies._file.clock import DeviceClock
from client_sdk.copies._file.file import BUSY_SECONDS, CopyFile
from client_sdk.copies._file.records import Version
from client_sdk.copies._file.tables import restored
from client_sdk.copies._overlay.overlaid import Moment, overlay_at
from client_sdk.copies._overlay.source import PENDING, Source, overlaid
from client_sdk.copies._query.base_rows import ROW_ID, computation_of

_BATCH_ROWS = 65_536
ORDER = "sort_key, visible_from, row_id"


def version_of(record: Record) -> Version:
    """Return the visible version. Raises NotSynced."""
    if record.version is not None:
        return record.version
    evicted_at = record.use.evicted_at
    if evicted_at is None:
        raise NotSynced(f"{record.name} has not been synced yet, or its state is damaged: sync it")
    error = NotSynced(
        f"{record.name} was evicted at {from_micros(evicted_at):%Y-%m-%d %H:%M:%S} to make room: "
        f"sync(only=[{record.name!r}]) receives it again"
    )
    error.evicted_at = from_micros(evicted_at)
    raise error


def visible(now: int | None) -> str:
    """Return the condition on rows of the answer at `now`. Without a NOW, rows with a begin are not
    in it.
    """
    if now is None:
        return "visible_from IS NULL"
    begun = f"(visible_from IS NULL OR visible_from <= {now})"
    return f"{begun} AND (visible_until IS NULL OR visible_until > {now})"


def answer_columns(connection: sqlite.Connection, record: Record) -> tuple[Column, ...]:
    """Return the columns of the answer, which is computed if the copy has base rows."""
    computation = computation_of(connection, record.declaration)
    return version_of(record).shape.columns if computation is None else computation.columns


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read of a copy: the answer of a `moment`, with own edits if `queued`, and then also
    with those that were `rejected`. With `pending`, a column says which rows are own edits.
    """

    moment: Moment
    queued: bool = True
    rejected: bool = False
    pending: bool = False


def answer_at(connection: sqlite.Connection, record: Record, reading: Reading) -> pa.Table:
    """Return the answer, in its order. If the copy has base rows, it is computed."""
    batches = batches_at(connection, record, reading, _BATCH_ROWS)
    columns = answer_columns(connection, record)
    return pa.Table.from_batches(batches, schema_of(read_columns(columns, reading)))


def read_columns(columns: tuple[Column, ...], reading: Reading) -> tuple[Column, ...]:
    """Return the columns of what is read, given those of the answer."""
    return (*columns, PENDING) if reading.pending else columns


def batches_at(
    connection: sqlite.Connection, record: Record, reading: Reading, rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the answer, `rows` rows at a time."""
    columns = version_of(record).shape.columns
    stored = tables.value_names(columns)
    computation = computation_of(connection, record.declaration)
    with source_at(connection, record, reading) as source:
        if computation is None:
            if reading.pending:
                columns, stored = (*columns, PENDING), [*stored, source.pending]
            yield from _rows_at(connection, record, source, columns, stored, rows)
            return
        columns = (Column(ROW_ID, "BIGINT"), *columns)
        base = _rows_at(connection, record, source, columns, [source.row_id, *stored], rows)
        table = pa.Table.from_batches(base, schema_of(columns))
    moment = None if source.now is None else from_micros(source.now)
    statuses, zones = source.statuses if reading.pending else None, version_of(record).shape.zones
    answer = computation.answer(table, moment, statuses, zones)
    yield from answer.to_batches(max_chunksize=rows)


@contextmanager
def source_at(connection: sqlite.Connection, record: Record, reading: Reading) -> Iterator[Source]:
    """Yield the rows of a copy as SQL, with own edits if they are wanted."""
    version, moment, overlay = version_of(record), reading.moment, None
    if record.declaration.edits and reading.queued:
        overlay = overlay_at(connection, record, moment, rejected=reading.rejected)
    if overlay is None:
        rows = f"main.{version.table} WHERE {visible(moment.now)}"
        yield Source(rows, ORDER, moment.now)
        return
    with overlaid(connection, version, visible(overlay.now), overlay) as source:
        yield source


def _rows_at(
    connection: sqlite.Connection,
    record: Record,
    source: Source,
    columns: tuple[Column, ...],
    stored: Sequence[str],
    rows: int,
) -> Iterator[pa.RecordBatch]:
    names = ", ".join(stored)
    cursor = connection.execute(f"SELECT {names} FROM {source.rows} ORDER BY {source.order}")
    while fetched := cursor.fetchmany(rows):
        series = zip(*fetched, strict=True)
        try:
            arrays = [
                restored(values, column) for values, column in zip(series, columns, strict=True)
            ]
        except (ValueError, TypeError, ArithmeticError, OverflowError) as error:
            raise FileDamaged(
                f"{record.name} has damaged values: {error}. The next sync repairs it"
            ) from error
        yield pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))


_SECOND_MICROS = 1_000_000


class CopyClock:
    """The latest NOW that each copy was read at. It is written to the file every second, if
    possible.
    """

    def __init__(self, file: CopyFile, clock: DeviceClock) -> None:
        self._file = file
        self._clock = clock
        self._latest: dict[tuple[int, bytes], int] = {}
        # The NOW of each copy that was read inside a snapshot; None outside.
        self._fixed: dict[tuple[int, bytes], int | None] | None = None
        # When this process read each copy, by its id, as far as that is not in the file.
        self.read_at: dict[int, int] = {}

    @contextmanager
    def fixed(self) -> Iterator[None]:
        """Have every copy keep the NOW of its first read inside. The caller must hold the file, so
        that no other thread reads.
        """
        outer = self._fixed
        self._fixed = {} if outer is None else outer
        try:
            yield
        finally:
            self._fixed = outer

    def now(self, record: Record, instant: datetime | None) -> int | None:
        """Return the NOW at which a copy is read: `instant`, or the present one.

        Raises ValueError for an instant before the copy's own: rows of then may be gone.
        """
        version = version_of(record)
        if instant is not None:
            now = to_micros(instant)
            if version.now is not None and now < version.now:
                raise ValueError(
                    f"{record.name} is as of {version.state.now}: rows of {instant} may be gone"
                )
            return now
        if self._fixed is None:
            return self._present(record, version)
        key = _key(record)
        if key not in self._fixed:
            self._fixed[key] = self._present(record, version)
        return self._fixed[key]

    def _present(self, record: Record, version: Version) -> int | None:
        if not version.shape.slides:
            return version.now
        # The file has the NOW of other processes; `_latest` has what this one has not written yet.
        latest = max(record.latest_now or 0, self._latest.get(_key(record), 0))
        return max(self._clock.now(version.offset), version.now or 0, latest)

    def moment(self, record: Record, instant: datetime | None) -> Moment:
        """Return the instants at which a copy is read."""
        now = self.now(record, instant)
        present = now if instant is None else self.now(record, None)
        return Moment(now, present, self._clock.offset(version_of(record).offset) or 0)

    def offset(self, record: Record) -> timedelta | None:
        """Return the store's clock minus the device's; None if that is unknown."""
        micros = self._clock.offset(version_of(record).offset)
        return None if micros is None else timedelta(microseconds=micros)

    def note_read(self, record: Record) -> None:
        """Note that the copy is in use, for the choice of copies to evict."""
        self.read_at[record.copy_id] = self._clock.micros()

    def note(self, record: Record, now: int | None) -> None:
        """Note that the copy was read at `now`, and is not to be read at an earlier instant.

        A new version begins at the store's NOW, so that a wrong clock does no lasting harm.
        """
        if now is None or not version_of(record).shape.slides:
            return
        # Entries of earlier versions of the copy are dropped, so that the dict does not grow.
        self._latest = {
            key: latest for key, latest in self._latest.items() if key[0] != record.copy_id
        }
        self._latest[_key(record)] = now
        if now >= (record.latest_now or 0) + _SECOND_MICROS:
            self._write(record.copy_id, now)

    def _write(self, copy_id: int, now: int) -> None:
        with self._file.alone() as connection:
            # A read must not wait for a writer. If the file is busy, a later read writes its NOW.
            connection.execute("PRAGMA busy_timeout = 0")
            try:
                catalog.put_latest_now(connection, copy_id, now)
            except sqlite.OperationalError:
                pass
            finally:
                connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")


def _key(record: Record) -> tuple[int, bytes]:
    return record.copy_id, version_of(record).token
