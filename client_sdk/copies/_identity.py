"""Under which name the queue of a file publishes, and with which number next.

A name belongs to one file, unless the file was copied. Where the store shows that it was, the name
is kept for the batches that were there by then, which the other file may have sent under it, and
ends with the last of them; later ones are certainly of this file and get a new name.
"""

from __future__ import annotations

import secrets
import sqlite3
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """`last_batch` None: the name is for every batch."""

    name: str
    next_sequence: int
    next_batch: int
    last_batch: int | None = None


def identity(connection: sqlite3.Connection) -> Identity:
    """Made where there is none."""
    select = "SELECT name, next_sequence, next_batch, last_batch FROM _psoup_publisher"
    row = connection.execute(select).fetchone()
    if row is None:
        row = (_random_name(), 1, 1, None)
        connection.execute("INSERT INTO _psoup_publisher VALUES (?, ?, ?, ?)", row)
    return Identity(*row)


def identity_for(connection: sqlite3.Connection, batch: int) -> Identity:
    """A new one, where that of the file ends before the batch."""
    found = identity(connection)
    if found.last_batch is None or batch <= found.last_batch:
        return found
    begin_anew(connection)
    return identity(connection)


def new_batch(connection: sqlite3.Connection) -> int:
    """The number of one more batch."""
    number = identity(connection).next_batch
    connection.execute("UPDATE _psoup_publisher SET next_batch = next_batch + 1")
    return number


def begin_anew(connection: sqlite3.Connection) -> None:
    """Another name, from 1."""
    connection.execute(
        "UPDATE _psoup_publisher SET name = ?, next_sequence = 1, last_batch = NULL",
        (_random_name(),),
    )


def use_up(connection: sqlite3.Connection, name: str, sequence: int, *, end: bool = False) -> None:
    """The next has the next sequence. With `end` the name is for no batch that is queued later."""
    until = "coalesce(last_batch, next_batch - 1)" if end else "last_batch"
    connection.execute(
        f"UPDATE _psoup_publisher SET next_sequence = ?, last_batch = {until} "
        "WHERE name = ? AND next_sequence = ?",
        (sequence + 1, name, sequence),
    )


def _random_name() -> str:
    return f"copies-{secrets.token_hex(12)}"
