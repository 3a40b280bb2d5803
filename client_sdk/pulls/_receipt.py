"""Receipts: what was last written to an output, in a small file beside it, which is also its lock.

With the receipt, an output that is missing or was changed is written again, and one that is right
is left alone. Losing it costs one unnecessary write. It is rewritten in place under the lock,
because a lock belongs to a file and not to a name. A receipt that was cut by a crash can't be
parsed, and counts as lost.
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
    """What was last written: `content` is the digest of the answer, `stamp` and `fingerprint` are
    the output's.

    `told` is False until the hook was run for it. `handle` is the registration that the key or
    handle in `source` stood for last, and `registration` its text as a RegisterRequest, in
    hexadecimal. `changes_of` is the series of the changes that were last appended to the output of
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
        """Return whether the output is what was written. If its stamp has changed, the content
        decides.
        """
        stamp = sink.stamp()
        if stamp is None or self.fingerprint is None:
            return False
        return stamp == self.stamp or sink.fingerprint() == self.fingerprint


class ReceiptFile:
    """The file of a receipt, locked by one process at a time. Raises OutputBusy if another has
    it.
    """

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
        # Closing releases the lock. The file stays, because the lock belongs to the file and not to
        # its name.
        os.close(self._descriptor)

    def load(self) -> Receipt:
        """Return the receipt, an empty one if it can't be read."""
        size = os.fstat(self._descriptor).st_size
        try:
            content = json.loads(os.pread(self._descriptor, size, 0))
            return _receipt(content)
        except (ValueError, TypeError, KeyError):
            return Receipt()

    def save(self, receipt: Receipt) -> None:
        """Write the receipt. Raises OutputFailed; then it is lost, and the next pull writes the
        output.
        """
        text = json.dumps({"format": _FORMAT, **dataclasses.asdict(receipt)}).encode()
        try:
            # Emptied first: after a crash there may be a part of the new text, but no mixture of
            # both.
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, text, 0)
            os.fsync(self._descriptor)
        except OSError as error:
            raise OutputFailed(f"{self._path}: {error.strerror}") from error


def _receipt(content: dict[str, Any]) -> Receipt:
    if content.pop("format") != _FORMAT:
        raise ValueError("another format")
    return Receipt(**content)


def _lock(descriptor: int, path: Path) -> None:
    # Imported here, so that the rest of the SDK runs on systems without such locks.
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

    It is equal for equal names, types and rows, whatever is stored under a NULL.
    """

    digest: str
    rows: int


def content_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Content:
    digest, rows = hashlib.blake2b(schema.serialize(), digest_size=16), 0
    # The digest is of serialized batches, so equal rows must always be cut in the same way.
    for batch in recut(schema, batches, _ROWS):
        digest.update(_canonical(batch).serialize())
        rows += batch.num_rows
    return Content(digest.hexdigest(), rows)


def recut(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of exactly `rows` rows; the last may have fewer."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        while batch.num_rows:
            piece = batch.slice(0, rows - count)
            batch = batch.slice(piece.num_rows)
            waiting.append(piece)
            count += piece.num_rows
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
    # Two columns for each one: which values are present, and the values with zeros for NULLs. What
    # Arrow stores under a NULL is undefined.
    for array in batch.columns:
        columns += [pc.is_valid(array), pc.fill_null(array, _zero(array.type))]
    return pa.RecordBatch.from_arrays(columns, names=[str(n) for n in range(len(columns))])


def _zero(type_: pa.DataType) -> pa.Scalar:
    if pa.types.is_boolean(type_):
        return pa.scalar(False, type_)
    return pa.scalar("" if pa.types.is_string(type_) else 0, type_)
