"""Batches: the changes of a copy as a program reads them, each once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, overload

import pyarrow as pa

from client_sdk._wire.answers import python_rows
from client_sdk._wire.values import Column, from_micros, schema_of
from client_sdk.copies._changes import log
from client_sdk.copies._changes.log import Entry
from client_sdk.copies._changes.reported import WITH_OWN, Move, WrongRows, follow
from client_sdk.copies._changes.tagging import Tag, Why
from client_sdk.copies._file import catalog, sqlite, tables
from client_sdk.copies._file.catalog import Record
from client_sdk.copies._file.checksums import HEAD
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.records import Version
from client_sdk.copies._query.answers import ORDER, CopyClock

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AnswerChange:
    """A change of an answer. `tag` is "+" for a new row, "u" for other values, "-" for a removed
    row.

    `row` is the row now, None if it was removed; `old` the row before, None if it is new. `at` is
    the NOW of the sync, or the instant at which time alone changed it. `why` is "new", "changed",
    "left" (its window, or the retention), "ended" (its stream key was updated or deleted), "gone"
    (a result that does not exist any more) or "own" (an own edit was queued, or refused). Numbers
    ascend, and none is used twice in a file.

    With `changes="every point"` there is a tag "skip": changes of refresh points before `at` are
    missing here. Then `why` is "retention" (rows of theirs are no longer retained), "too many" or
    "no copy" (the store had no copy to go on from), and there is no row.
    """

    tag: Tag
    row: Row | None
    old: Row | None
    at: datetime | None
    why: Why
    number: int


@dataclass(frozen=True)
class ChangeBatch(Sequence[AnswerChange]):
    """The changes of an answer since the last batch that was left without an exception.

    `reset` is empty, or the reason why these changes don't continue those read before. Then
    `answer` has all rows as they are after these changes. `columns` are those of the answer, `last`
    is the number of the last change, and `series` names changes that continue each other.
    """

    changes: tuple[AnswerChange, ...] = ()
    reset: str = ""
    answer: tuple[Row, ...] | None = None
    columns: tuple[Column, ...] = field(default=(), repr=False)
    last: int = field(default=0, repr=False)
    series: str = field(default="", repr=False)
    copy_id: int = field(default=0, repr=False)

    @overload
    def __getitem__(self, place: int) -> AnswerChange: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[AnswerChange]: ...

    def __getitem__(self, place: int | slice) -> AnswerChange | Sequence[AnswerChange]:
        return self.changes[place]

    def __len__(self) -> int:
        return len(self.changes)

    def __iter__(self) -> Iterator[AnswerChange]:
        return iter(self.changes)


def open_batch(file: CopyFile, clock: CopyClock, name: str) -> ChangeBatch:
    """Return the changes there are, with those that time has made by now.

    Raises UnknownCopy, and ValueError if no changes are kept.
    """
    # A write transaction, since changes that time has made are reported first.
    with file.writing() as connection:
        record = catalog.find(connection, name)
        if not record.declaration.changes:
            raise ValueError(
                f"no changes of {name} are kept: keep it with changes=True (--changes)"
            )
        if record.version is not None:
            now = clock.now(record, None)
            record = _moved_on(connection, record, record.version, now)
        batch = _batch(connection, record, log.entries(connection, record.copy_id))
    # After the transaction, because the clock writes in one of its own.
    if record.version is not None:
        clock.note(record, now)
    return batch


def leave_batch(file: CopyFile, batch: ChangeBatch) -> None:
    """Note that a batch has been read."""
    if batch.last:
        # Changes that a program has handled must not come again after a power cut.
        with file.writing(durable=True) as connection:
            log.drop(connection, batch.copy_id, batch.last)


def _moved_on(
    connection: sqlite.Connection, record: Record, version: Version, now: int | None
) -> Record:
    """Report what time has changed, and return the record as it is then.

    If rows are damaged, that is left to the next sync.
    """
    with_own = record.declaration.changes == WITH_OWN
    moves = record.reported is not None and (version.shape.slides or with_own)
    if not (moves or record.reported_lost):
        return record
    try:
        follow(connection, record, Move(version, now, (), synced=False))
    except WrongRows:
        catalog.put_verified(connection, record.copy_id, None)
    return catalog.find(connection, record.name)


def _batch(connection: sqlite.Connection, record: Record, entries: Sequence[Entry]) -> ChangeBatch:
    if record.reported is None:
        return ChangeBatch()
    columns = record.reported.shape.columns
    reset = next((entry.reset for entry in entries if entry.reset), "")
    return ChangeBatch(
        tuple(_decoded(entries, columns)),
        reset,
        tuple(_answer(connection, record.copy_id, columns)) if reset else None,
        columns=columns,
        last=entries[-1].number if entries else 0,
        series=record.reported.series,
        copy_id=record.copy_id,
    )


def _decoded(entries: Sequence[Entry], columns: tuple[Column, ...]) -> Iterator[AnswerChange]:
    changes = [(entry.number, entry.change) for entry in entries if entry.change is not None]
    # Rows are restored all at once, since Arrow works by column. The loop below takes them in the
    # same order, skipping changes that have none.
    rows = iter(_rows([change.row for _, change in changes if change.row is not None], columns))
    olds = iter(_rows([change.old for _, change in changes if change.old is not None], columns))
    for number, change in changes:
        yield AnswerChange(
            change.tag,
            None if change.row is None else next(rows),
            None if change.old is None else next(olds),
            None if change.at is None else from_micros(change.at),
            change.why,
            number,
        )


def _answer(connection: sqlite.Connection, copy_id: int, columns: tuple[Column, ...]) -> list[Row]:
    rows = tables.read(
        connection, f"SELECT * FROM {tables.reported_table(copy_id)} ORDER BY {ORDER}"
    )
    return _rows([row[HEAD : HEAD + len(columns)] for row in rows], columns)


def _rows(values: Sequence[Sequence[Any]], columns: tuple[Column, ...]) -> list[Row]:
    """Return rows of stored values."""
    if not values:
        return []
    series = zip(*values, strict=True)
    arrays = [
        tables.restored(column_values, column)
        for column_values, column in zip(series, columns, strict=True)
    ]
    return python_rows(pa.Table.from_arrays(arrays, schema=schema_of(columns)), columns)
