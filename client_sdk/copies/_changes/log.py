"""The log of changes that were reported and not read yet, in the order in which they were
reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from client_sdk.copies._changes.tagging import TaggedRow
from client_sdk.copies._file import sqlite
from client_sdk.copies._file.catalog import DAMAGED
from client_sdk.copies._file.records import seal, unseal


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the log: a change, or if `reset` is not empty, the reason why earlier ones were
    dropped.

    Numbers ascend, and none is used twice in a file.
    """

    number: int
    reset: str
    change: TaggedRow | None


def append(connection: sqlite.Connection, copy_id: int, changes: Sequence[TaggedRow]) -> None:
    _insert(connection, copy_id, map(_content, changes))


def drop(connection: sqlite.Connection, copy_id: int, last: int | None = None) -> None:
    """Drop the changes of a copy, up to the number `last` or all."""
    up_to = "" if last is None else f"AND number <= {last}"
    connection.execute(f"DELETE FROM _psoup_changes WHERE copy_id = ? {up_to}", (copy_id,))


def reset(connection: sqlite.Connection, copy_id: int, reason: str) -> None:
    """Drop all changes of a copy, and log the reason."""
    drop(connection, copy_id)
    _insert(connection, copy_id, [{"reset": reason}])


def entries(connection: sqlite.Connection, copy_id: int) -> list[Entry]:
    """Return the changes of a copy. If one is damaged, all are dropped, and the log says so."""
    # Changes after a gap can't be applied, so one damaged entry ends the whole log.
    logged = _read(connection, copy_id)
    if any(entry is None for entry in logged):
        reset(connection, copy_id, DAMAGED)
        logged = _read(connection, copy_id)
    return [entry for entry in logged if entry is not None]


def _read(connection: sqlite.Connection, copy_id: int) -> list[Entry | None]:
    rows = connection.execute(
        "SELECT number, content FROM _psoup_changes WHERE copy_id = ? ORDER BY number", (copy_id,)
    )
    return [_entry(*row) for row in rows]


def _entry(number: int, sealed: Any) -> Entry | None:
    content = unseal(sealed)
    if content is None:
        return None
    if "reset" in content:
        return Entry(number, content["reset"], None)
    return Entry(number, "", TaggedRow(**content))


def _content(change: TaggedRow) -> dict[str, Any]:
    return {
        "tag": change.tag,
        "why": change.why,
        "at": change.at,
        "row": change.row,
        "old": change.old,
    }


def _insert(
    connection: sqlite.Connection, copy_id: int, contents: Iterable[dict[str, Any]]
) -> None:
    connection.executemany(
        "INSERT INTO _psoup_changes (copy_id, content) VALUES (?, ?)",
        ((copy_id, seal(content)) for content in contents),
    )
