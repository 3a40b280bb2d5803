"""Copiers: the difference that a job makes, and the rows to send, in chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int64s, UInt64s
from psoup.answers.difference.job import CopyJob, Cursor, Skipped, WholeReason
from psoup.answers.difference.keys import NO_IDS
from psoup.answers.planning.plan import Plan
from results.checksum import row_checksums

T = TypeVar("T")
# Bytes in a message: a row's id, interval and checksum; and what precedes a typed value.
_ROW_BYTES = 32
_VALUE_BYTES = 4


class once(Generic[T]):  # noqa: N801
    """A `functools.cached_property` without a lock.

    Up to Python 3.11 that locks the property of all instances while it is computed. Work that
    waits for its turn would then block threads that need the property of another instance. Use it
    for instances that one thread uses at a time.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> once[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> once[T] | T:
        if instance is None:
            return self
        # Without a `__set__` here, the instance's own attribute is found first from then on.
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


@dataclass(frozen=True)
class CopyChunk:
    """Rows of a copy by ascending id, or combinations by their `parts`, the row ids of their legs.

    A row without a begin is visible from SINCE_EVER, one without an end until FOR_EVER. `keys` are
    digests of the rows' stream keys, if the client wants them.
    """

    ids: Int64s
    visible_from: Int64s
    visible_until: Int64s
    sort_keys: pa.Array
    rows: pa.RecordBatch
    parts: tuple[Int64s, ...] = ()
    keys: Int64s | None = None

    @property
    def cursor(self) -> Cursor:
        """The cursor after the last row."""
        if self.parts:
            return Cursor(parts=tuple(int(part[-1]) for part in self.parts))
        return Cursor(int(self.ids[-1]) + 1)

    @once
    def checksums(self) -> UInt64s:
        return row_checksums(
            self.ids,
            self.visible_from,
            self.visible_until,
            self.sort_keys,
            self.rows,
            self.keys,
        )

    @once
    def sizes(self) -> Int64s:
        """The bytes that each row takes in a message, about, in the larger of the encodings."""
        width = _ROW_BYTES + sum(_width(column.type) for column in self.rows.columns)
        sizes = np.full(len(self.ids), width, np.int64)
        texts = [column for column in self.rows.columns if _is_text(column.type)]
        for column in (self.sort_keys, *texts):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy()
        return sizes

    @property
    def nbytes(self) -> int:
        return int(self.sizes.sum())

    def slice(self, start: int, length: int) -> CopyChunk:
        stop = start + length
        return CopyChunk(
            self.ids[start:stop],
            self.visible_from[start:stop],
            self.visible_until[start:stop],
            self.sort_keys.slice(start, length),
            self.rows.slice(start, length),
            tuple(part[start:stop] for part in self.parts),
            None if self.keys is None else self.keys[start:stop],
        )

    def after(self, cursor: Cursor) -> CopyChunk:
        """Return the rows from a cursor on; the chunk must be by ascending id."""
        start = int(np.searchsorted(self.ids, cursor.next_id))
        return self.slice(start, len(self.ids) - start)

    def take(self, places: Int64s) -> CopyChunk:
        chosen = pa.array(places)
        return CopyChunk(
            self.ids[places],
            self.visible_from[places],
            self.visible_until[places],
            self.sort_keys.take(chosen),
            self.rows.take(chosen),
            tuple(part[places] for part in self.parts),
            None if self.keys is None else self.keys[places],
        )

    @classmethod
    def joined(cls, chunks: Sequence[CopyChunk]) -> CopyChunk:
        """Return the rows of at least one chunk, one chunk after the other."""
        if len(chunks) == 1:
            return chunks[0]
        # All chunks of a transfer have keys, or none has.
        keys = [chunk.keys for chunk in chunks if chunk.keys is not None]
        parts = zip(*(chunk.parts for chunk in chunks), strict=True)
        return cls(
            np.concatenate([chunk.ids for chunk in chunks]),
            np.concatenate([chunk.visible_from for chunk in chunks]),
            np.concatenate([chunk.visible_until for chunk in chunks]),
            pa.concat_arrays([chunk.sort_keys for chunk in chunks]),
            pa.concat_batches([chunk.rows for chunk in chunks]),
            tuple(np.concatenate(column) for column in parts),
            np.concatenate(keys) if keys else None,
        )

    def cut(self, limit: int) -> CopyChunk:
        """Return the first rows, of about `limit` bytes, at least one."""
        # No row takes less than _ROW_BYTES, so further rows need not be measured.
        candidates = self.slice(0, max(1, limit // _ROW_BYTES))
        fitting = int(np.searchsorted(np.cumsum(candidates.sizes), limit, side="right"))
        return candidates.slice(0, max(1, fitting))


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _width(type_: pa.DataType) -> int:
    return _VALUE_BYTES + (0 if _is_text(type_) else type_.bit_width // 8)


@dataclass(frozen=True, slots=True)
class Difference:
    """The way from the claim of a job to its target, which has `row_count` rows.

    The ids `removed` and `lacking` rows are yet to be sent. The job differs from the requested one
    if that could not be done. `ended` are removed ids whose stream key was updated or deleted, if
    the client wants to know.

    Up to `good_until` nothing changes but by rows that the reader has not seen yet. If such a row
    may be stored already, `wake_at` is the first instant at which it may be seen; a client must not
    be told.
    """

    job: CopyJob
    whole: bool
    reason: WholeReason
    removed: Int64s
    lacking: int
    row_count: int
    digest: bytes
    good_until: int | None
    ended: Int64s = field(default_factory=lambda: NO_IDS)
    wake_at: int | None = None

    @property
    def changes_at(self) -> int | None:
        """The next instant at which time alone may change the answer; None without one."""
        return min(filter(None, (self.good_until, self.wake_at)), default=None)

    @property
    def nothing(self) -> bool:
        unchanged = not self.lacking and not len(self.removed) and not self.whole
        return unchanged and self.job.target.skipped is Skipped.NONE


class Copier(Protocol):
    """Computes a difference, in any thread. Raises FileNotFoundError if the engine has removed a
    file of its plan."""

    @property
    def job(self) -> CopyJob: ...

    def difference(self) -> Difference: ...

    def renewed(self, plan: Plan, job: CopyJob) -> Copier:
        """Return a copier for the job of the difference and a newer plan, so that nothing that can
        be found again is held in memory between two pieces."""

    def buffered(self) -> CopyChunk | None:
        """Return the rows that must be buffered until they are sent, because only computing the
        answer again would find them; None if a copier of a later plan finds them."""

    def piece(self, cursor: Cursor, limit: int) -> CopyChunk | None:
        """Return lacking rows from the cursor on, at least one, of about `limit` bytes, in the
        order of a transfer; None if all remaining ones have passed the retention since."""
