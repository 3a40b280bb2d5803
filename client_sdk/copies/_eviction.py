"""Eviction: the rows of the least recently read copies leave a file that has grown past its limit.

Their declarations stay. Pinned copies, the queue and what was put aside are never touched, so a
file may stay larger than its limit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from client_sdk._exceptions import CopyError
from client_sdk.copies._file import catalog, sqlite
from client_sdk.copies._file.catalog import EVICTED, Use
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._overlay import confirmed


def note_reads(file: CopyFile, read_at: Mapping[int, int]) -> None:
    """Write when copies were last read, by their ids. A file that is busy is left as it is."""
    if not read_at:
        return
    with contextlib.suppress(CopyError), file.writing() as connection:
        for copy_id, micros in read_at.items():
            record = catalog.by_id(connection, copy_id)
            if record is not None and record.use.read_at < micros:
                use = Use(micros, record.use.evicted_at)
                catalog.put_use(connection, copy_id, use)


def evict(file: CopyFile, most_bytes: int, now: int) -> tuple[str, ...]:
    """Remove rows until the file has at most `most_bytes`; return the names of the copies evicted.

    `now` is the device's clock in microseconds.
    """
    names = []
    with file.writing(durable=True) as connection:
        candidates = [
            record
            for record in catalog.records(connection)
            if not record.declaration.pinned and record.base is not None
        ]
        # Copies that were never read go first; among those, the ones of the lowest priority.
        candidates.sort(key=lambda record: (record.use.read_at, record.declaration.priority))
        for record in candidates:
            if _used_bytes(connection) <= most_bytes:
                break
            catalog.empty(connection, record, EVICTED)
            catalog.put_use(connection, record.copy_id, Use(record.use.read_at, now))
            names.append(record.name)
        if names:
            confirmed.sweep(connection)
    if names:
        file.scrub()
    return tuple(names)


def _used_bytes(connection: sqlite.Connection) -> int:
    """Return the bytes of all pages that are in use. Those of dropped tables are free at once."""
    counts = [
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    ]
    pages, free, size = map(int, counts)
    return (pages - free) * size
