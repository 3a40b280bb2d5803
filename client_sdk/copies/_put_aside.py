"""What was put aside in the queue: refused for good, or doubtful. It stays until somebody decides.

A batch is doubtful where the store says that its sequence was taken, but no longer knows by which
rows: after a file was copied, or came from a back-up, another batch may have had that number. It is
neither sent nor dropped.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from client_sdk.copies._file import CopyFile
from client_sdk.copies._identity import new_batch
from client_sdk.copies._queued import Doubtful, Rejected
from client_sdk.copies._sealed import seal

FIELDS = (
    "batch, piece, stream, kind, payload, row_count, checksum, queued_at, tried, refused, doubtful"
)
WAITING = "refused IS NULL AND doubtful IS NULL"
REFUSED = "refused IS NOT NULL"
DOUBTFUL = "doubtful IS NOT NULL"

Place = tuple[int, int]


def put_aside(
    connection: sqlite3.Connection,
    column: Literal["refused", "doubtful"],
    batch: int,
    piece: int,
    why: Mapping[str, Any],
) -> list[Sequence[Any]]:
    """The row as it is then; none where it does not wait any more."""
    return connection.execute(
        f"UPDATE _psoup_queue SET {column} = ? "
        f"WHERE batch = ? AND piece = ? AND {WAITING} RETURNING {FIELDS}",
        (seal(why), batch, piece),
    ).fetchall()


class PutAside:
    """Each method is one transaction. Those that change say how many pieces they did."""

    def __init__(self, file: CopyFile) -> None:
        self._file = file

    def rejected(self) -> list[Rejected]:
        return [Rejected.from_row(row) for row in self._rows(REFUSED)]

    def doubtful(self) -> list[Doubtful]:
        return [Doubtful.from_row(row) for row in self._rows(DOUBTFUL)]

    def requeue(self, batch: int | None) -> int:
        """What was refused waits again, at the end, in its order."""
        return self._again(REFUSED, batch, "was refused")

    def resend(self, batch: int | None) -> int:
        """What is doubtful waits again, at the end. Being a new batch, it has a new identity."""
        return self._again(DOUBTFUL, batch, "was found doubtful")

    def discard(self, batch: int | None) -> int:
        """What was refused, or the one batch, doubtful or refused, is gone for good."""
        where = REFUSED if batch is None else f"({REFUSED} OR {DOUBTFUL})"
        with self._file.writing() as connection:
            found = _places(connection, where, batch, "was put aside")
            for one in found:
                connection.execute("DELETE FROM _psoup_queue WHERE batch = ? AND piece = ?", one)
        return len(found)

    def _rows(self, where: str) -> list[Sequence[Any]]:
        with self._file.reading() as connection:
            return connection.execute(
                f"SELECT {FIELDS} FROM _psoup_queue WHERE {where} ORDER BY batch, piece"
            ).fetchall()

    def _again(self, where: str, batch: int | None, what: str) -> int:
        with self._file.writing(durable=True) as connection:
            found = _places(connection, where, batch, what)
            numbers: dict[int, int] = {}
            for old, piece in found:
                if old not in numbers:
                    numbers[old] = new_batch(connection)
                connection.execute(
                    "UPDATE _psoup_queue SET batch = ?, refused = NULL, doubtful = NULL, "
                    "tried = NULL WHERE batch = ? AND piece = ?",
                    (numbers[old], old, piece),
                )
        return len(found)


def _places(
    connection: sqlite3.Connection, where: str, batch: int | None, what: str
) -> list[Place]:
    """Raises ValueError where a batch is named that is not among them."""
    rows = connection.execute(
        f"SELECT batch, piece FROM _psoup_queue WHERE {where} ORDER BY batch, piece"
    ).fetchall()
    found = [row for row in rows if batch is None or row[0] == batch]
    if batch is not None and not found:
        others = ", ".join(map(str, dict.fromkeys(batch for batch, _ in rows))) or "none"
        raise ValueError(f"no batch {batch} {what}; those that were: {others}")
    return found
