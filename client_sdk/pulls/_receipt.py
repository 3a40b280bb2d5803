"""A receipt: what was last written to an output, in a small file beside it, which is also its lock.

The receipt lets an output that is missing or that somebody changed be written again, and one that
is as it should be be left alone. Losing it costs one needless write. It is rewritten in place under
the lock, because a lock belongs to a file and not to a name; one that was cut by a crash does not
parse, and then nothing is known.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from client_sdk._exceptions import OutputBusy, OutputFailed
from client_sdk.pulls._sinks import Sink, Stamp

_FORMAT = 1


@dataclass(frozen=True)
class Receipt:
    """`content` is the digest of the answer, `stamp` and `fingerprint` are the output's.

    `told` is False while the hook has yet to hear of it. `handle` is the registration that the key
    or handle in `source` stood for last, and `registration` its text as a RegisterRequest, in hex.
    `changes_of` is the series of the changes that were last appended to the pull's own output of
    changes.
    """

    content: str = ""
    stamp: Stamp | None = None
    fingerprint: str | None = None
    told: bool = True
    source: str = ""
    handle: str = ""
    registration: str = ""
    changes_of: str = ""

    def still_there(self, sink: Sink) -> bool:
        """Return whether the output is what was written; if its stamp has changed, by its
        content.
        """
        stamp = sink.stamp()
        if stamp is None or self.fingerprint is None:
            return False
        return stamp == self.stamp or sink.fingerprint() == self.fingerprint


class ReceiptFile:
    """The file of a receipt, held by one process at a time: OutputBusy where another has it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> ReceiptFile:
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise OutputFailed(f"{self._path}: {error.strerror}") from error
        try:
            _lock(self._descriptor, self._path)
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def load(self) -> Receipt:
        size = os.fstat(self._descriptor).st_size
        try:
            said = json.loads(os.pread(self._descriptor, size, 0))
            return _receipt(said)
        except (ValueError, TypeError, KeyError):
            return Receipt()

    def save(self, receipt: Receipt) -> None:
        """Write the receipt. Raises OutputFailed; then nothing is known, and the next pull writes
        again.
        """
        text = json.dumps({"format": _FORMAT, **dataclasses.asdict(receipt)}).encode()
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, text, 0)
            os.fsync(self._descriptor)
        except OSError as error:
            raise OutputFailed(f"{self._path}: {error.strerror}") from error


def _receipt(said: dict[str, Any]) -> Receipt:
    if said.pop("format") != _FORMAT:
        raise ValueError("another format")
    return Receipt(**said)


def _lock(descriptor: int, path: Path) -> None:
    # Here, so that the rest of the SDK runs where there are no such locks.
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputBusy(
            f"another pull is writing to this output; it holds {path.name}", code="ABORTED"
        ) from None


_ROWS = 65_536


class Content(NamedTuple):
    """The digest of an answer's rows, in order and by value, however they are cut into batches.

    It is equal for equal names, types and rows, whatever lies under a NULL.
    """

    digest: str
    rows: int


def content_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Content:
    digest, rows = hashlib.blake2b(schema.serialize(), digest_size=16), 0
    for batch in recut(schema, batches, _ROWS):
        digest.update(_canonical(batch).serialize())
        rows += batch.num_rows
    return Content(digest.hexdigest(), rows)


def recut(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows: int
) -> Iterator[pa.RecordBatch]:
    """Cut the rows into batches of exactly so many; the last may have fewer."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        while batch.num_rows:
            taken = batch.slice(0, rows - count)
            batch = batch.slice(taken.num_rows)
            waiting.append(taken)
            count += taken.num_rows
            if count == rows:
                yield _joined(schema, waiting)
                waiting, count = [], 0
    if waiting:
        yield _joined(schema, waiting)


def _joined(schema: pa.Schema, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches, schema=schema).combine_chunks()
    return table.to_batches()[0]


def _canonical(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = []
    for array in batch.columns:
        columns += [pc.is_valid(array), pc.fill_null(array, _zero(array.type))]
    return pa.RecordBatch.from_arrays(columns, names=[str(n) for n in range(len(columns))])


def _zero(type_: pa.DataType) -> pa.Scalar:
    if pa.types.is_boolean(type_):
        return pa.scalar(False, type_)
    return pa.scalar("" if pa.types.is_string(type_) else 0, type_)
