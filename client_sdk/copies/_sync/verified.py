"""Rows that were found right are known by a hash, and need not be looked at one by one again.

They are taken in runs, which end where a checksum ends in ten zero bits: a row that comes or goes
changes the run it falls into, and no other. A hash is of all that a run holds: what is damaged, a
row or a remembered hash, only makes a run unknown.
"""

from __future__ import annotations

import hashlib
import marshal
import sqlite3
from collections.abc import Iterable, Iterator, Sequence

from client_sdk.copies._file.checksums import HEAD, Checksums, StoredRow

_EDGE = (1 << 10) - 1
_LONGEST = 1 << 14
_HASH_BYTES = 16
# Of marshal's formats the last in which equal values are always the same bytes.
_MARSHAL = 2


class Sound:
    """The hashes of runs that were right when rows were last looked at, and now."""

    def __init__(self, content: bytes = b"") -> None:
        self._content = content
        places = range(0, len(content), _HASH_BYTES)
        self._known = {content[place : place + _HASH_BYTES] for place in places}
        self._found: list[bytes] = []

    @classmethod
    def read(cls, connection: sqlite3.Connection, copy_id: int) -> Sound:
        rows = connection.execute("SELECT sound FROM _psoup_copies WHERE copy_id = ?", (copy_id,))
        return cls(*[content for (content,) in rows if isinstance(content, bytes)])

    @property
    def changed(self) -> bool:
        return b"".join(self._found) != self._content

    def put(self, connection: sqlite3.Connection, copy_id: int) -> None:
        connection.execute(
            "UPDATE _psoup_copies SET sound = ? WHERE copy_id = ?", (b"".join(self._found), copy_id)
        )

    def wrong(self, batches: Iterable[Sequence[StoredRow]], sums: Checksums) -> list[int]:
        """The ids of rows that are not what their checksum says."""
        wrong: list[int] = []
        for run in runs(batches):
            hash_ = _hash(run)
            damaged = [] if hash_ in self._known else sums.wrong(run)
            wrong += damaged
            if not damaged:
                self._found.append(hash_)
        return wrong


def runs(batches: Iterable[Sequence[StoredRow]]) -> Iterator[list[StoredRow]]:
    run: list[StoredRow] = []
    for rows in batches:
        begin = 0
        for end, row in enumerate(rows, 1):
            if _is_edge(row[HEAD - 1]):
                yield [*run, *rows[begin:end]]
                run, begin = [], end
        run += rows[begin:]
        if len(run) >= _LONGEST:
            yield run
            run = []
    if run:
        yield run


def _is_edge(checksum: object) -> bool:
    return isinstance(checksum, int) and not checksum & _EDGE


def _hash(run: list[StoredRow]) -> bytes:
    return hashlib.blake2b(marshal.dumps(run, _MARSHAL), digest_size=_HASH_BYTES).digest()
