"""One copy, as a program sees it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from client_sdk._wire.answers import python_rows, to_pandas
from client_sdk._wire.values import Column
from client_sdk.copies import _shelf
from client_sdk.copies._answering import answer_at, answer_columns, batches_at, version_of
from client_sdk.copies._clock import Hands
from client_sdk.copies._file import CopyFile
from client_sdk.copies._models import CopyState
from client_sdk.copies._query import Parameters, run_query


class Copy:
    """The answer of one registration, offline.

    Where `state.slides`, the answer is that at this machine's NOW: rows leave and enter by
    themselves. Else it stays at `state.now`. An explicit `now` may be later than that, not earlier;
    results that have no intervals (groups, DISTINCT, LIMIT) are the same at any.
    """

    def __init__(self, file: CopyFile, hands: Hands, name: str) -> None:
        self._file = file
        self._hands = hands
        self.name = name

    @property
    def state(self) -> CopyState:
        """Raises NotSynced before the first sync."""
        with self._file.reading() as connection:
            record = _shelf.find(connection, self.name)
            state = version_of(record).state
            return replace(state, columns=answer_columns(connection, record))

    @property
    def synced(self) -> bool:
        """Whether there is an answer."""
        with self._file.reading() as connection:
            return _shelf.find(connection, self.name).version is not None

    @property
    def staged(self) -> bool:
        """Whether a part of the next answer has come, and the rest is for the next sync."""
        with self._file.reading() as connection:
            record = _shelf.find(connection, self.name)
            return record.stage is not None or record.following is not None

    @property
    def handle(self) -> bytes | None:
        """Of its registration; None before it is registered."""
        with self._file.reading() as connection:
            return _shelf.find(connection, self.name).declaration.handle or None

    @property
    def stream(self) -> str | None:
        """The stream its query reads; None before a sync has learnt it."""
        with self._file.reading() as connection:
            return _shelf.find(connection, self.name).declaration.stream or None

    def to_arrow(self, now: datetime | None = None) -> pa.Table:
        return self._answer(now)[0]

    def _answer(self, now: datetime | None) -> tuple[pa.Table, tuple[Column, ...]]:
        with self._file.reading() as connection:
            record = _shelf.find(connection, self.name)
            moment = self._hands.now(record, now)
            table = answer_at(connection, record, moment)
            columns = answer_columns(connection, record)
        if now is None:
            self._hands.note(record, moment)
        return table, columns

    def batches(
        self, now: datetime | None = None, *, rows: int = 65_536
    ) -> Iterator[pa.RecordBatch]:
        """The same a batch at a time, for answers larger than memory.

        The file is held open at one moment until the last batch, so take them all, in one thread.
        """
        with self._file.reading() as connection:
            record = _shelf.find(connection, self.name)
            yield from batches_at(connection, record, self._hands.now(record, now), rows)

    def rows(self, now: datetime | None = None) -> list[dict[str, Any]]:
        """Timestamps are aware datetimes in UTC, decimals are Decimal, NULL is None."""
        return python_rows(*self._answer(now))

    def to_pandas(self, now: datetime | None = None) -> Any:
        """A pandas DataFrame; pandas is not part of the base install."""
        return to_pandas(self.to_arrow(now))

    def query(
        self, sql: str, parameters: Parameters = (), *, now: datetime | None = None
    ) -> list[dict[str, Any]]:
        """One SELECT of SQLite's over the answer, a table of the copy's name."""
        with self._file.reading() as connection:
            record = _shelf.find(connection, self.name)
            moment = self._hands.now(record, now)
            found = run_query(connection, sql, parameters, [(record, moment)])
        if now is None:
            self._hands.note(record, moment)
        return found

    def __len__(self) -> int:
        return int(self.to_arrow().num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __repr__(self) -> str:
        return f"<Copy {self.name} in {self._file.name}>"
