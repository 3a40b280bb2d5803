"""Columns that grow: numbers, texts, texts that repeat, handles. A value is not a Python object.

Each takes values one by one (`append`) or as an Arrow array (`extend`), and returns one
(`column[row]`) or many as an Arrow array (`take`). `keep` drops all but the given rows, which
ascend, and renumbers them. Arrays that `values` returns are snapshots: later appends do not show in
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int64s, Mask, UInt32s
from psoup.store.state.hash_index import HashIndex, hash_of, hashes_of

HANDLE_BYTES = 16
_MIN_CAPACITY = 16
_CHUNK_ROWS = 1 << 16


class GrowingColumn(Protocol):
    def __getitem__(self, row: int) -> Any: ...

    def append(self, value: Any) -> None: ...

    def extend(self, values: Any) -> None: ...

    def take(self, rows: Int64s) -> pa.Array: ...

    def keep(self, rows: Int64s) -> None: ...

    @property
    def nbytes(self) -> int: ...


class NumberColumn:
    """Integers of one numpy type: the first `len` of `room`. The rest is never written, so the
    operating system gives it no memory."""

    def __init__(self, dtype: Any = np.int64) -> None:
        self.room = np.empty(_MIN_CAPACITY, dtype)
        self._size = 0

    @property
    def values(self) -> Any:
        return self.room[: self._size]

    @property
    def nbytes(self) -> int:
        return self._size * self.room.itemsize

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, row: int) -> int:
        return int(self.room.item(row))

    def append(self, value: int) -> None:
        if self._size == len(self.room):
            self._reserve(1)
        self.room[self._size] = value
        self._size += 1

    def extend(self, values: Any) -> None:
        if isinstance(values, pa.Array | pa.ChunkedArray):
            values = values.to_numpy()
        self._reserve(len(values))
        self.room[self._size : self._size + len(values)] = values
        self._size += len(values)

    def take(self, rows: Int64s) -> pa.Array:
        return pa.array(self.values[rows])

    def keep(self, rows: Int64s) -> None:
        # Indexing copies: snapshots keep their rows.
        self.room = self.values[rows]
        self._size = len(rows)

    def _reserve(self, more: int) -> None:
        need = self._size + more
        if need > len(self.room):
            # A new array, because snapshots read the old one. Growth by half bounds the copies per
            # value.
            room = np.empty(max(_MIN_CAPACITY, need, len(self.room) * 3 // 2), self.room.dtype)
            room[: self._size] = self.values
            self.room = room


class TextColumn:
    """Texts end to end, as bytes of UTF-8."""

    def __init__(self) -> None:
        self._bytes = NumberColumn(np.uint8)
        self._ends = NumberColumn()
        self._ends.append(0)

    @property
    def nbytes(self) -> int:
        return self._bytes.nbytes + self._ends.nbytes

    def slice(self, begin: int, end: int) -> pa.Array:
        """Return the texts of the rows `[begin, end)`, as a snapshot."""
        buffers = [pa.py_buffer(self._ends.values), pa.py_buffer(self._bytes.values)]
        return pa.Array.from_buffers(pa.large_string(), end - begin, [None, *buffers], 0, begin)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, row: int) -> str:
        return str(self._bytes.room[self._ends[row] : self._ends[row + 1]].tobytes(), "utf-8")

    def append(self, value: str) -> None:
        self._bytes.extend(np.frombuffer(value.encode(), np.uint8))
        self._ends.append(len(self._bytes))

    def extend(self, values: Any) -> None:
        for chunk in chunks_of(values):
            # The offsets of a slice do not begin at 0; here they continue those of earlier texts.
            ends, content = _layout(chunk.cast(pa.large_string()), np.int64)
            self._ends.extend(ends[1:] + (len(self._bytes) - ends[0]))
            self._bytes.extend(content)

    def sizes(self, rows: Int64s) -> Int64s:
        """Return the number of bytes of some rows."""
        sizes: Int64s = self._ends.values[rows + 1] - self._ends.values[rows]
        return sizes

    def take(self, rows: Int64s) -> pa.Array:
        return self.slice(0, len(self)).take(pa.array(rows))

    def keep(self, rows: Int64s) -> None:
        column = TextColumn()
        column.extend(self.take(rows))
        self._bytes, self._ends = column._bytes, column._ends


class InternedColumn:
    """Texts of which many are equal: each different one is stored once."""

    def __init__(self) -> None:
        self._codes = NumberColumn(np.int32)
        self._texts = TextColumn()
        self._index = HashIndex()
        self._last = "", -1

    @property
    def codes(self) -> Any:
        """Numbers of the texts, equal for equal texts; valid until the next `keep`."""
        return self._codes.values

    @property
    def nbytes(self) -> int:
        return self._codes.nbytes + self._texts.nbytes + self._index.nbytes

    def __getitem__(self, row: int) -> str:
        return self._texts[self._codes[row]]

    @property
    def texts(self) -> Iterator[str]:
        """The different texts, in the order of their numbers."""
        return (self._texts[code] for code in range(len(self._texts)))

    def code_of(self, value: str) -> int:
        """Return the number of a text; -1 for an unknown text."""
        rows = (row for row in self._index.candidates(hash_of(value)) if self._texts[row] == value)
        return next(rows, -1)

    def append(self, value: str) -> None:
        # Equal texts often come one after another, and then need no search.
        if value != self._last[0] or self._last[1] < 0:
            self._last = value, self._code_for(value)
        self._codes.append(self._last[1])

    def extend(self, values: Any) -> None:
        for chunk in chunks_of(values):
            encoded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
            codes = self._intern(encoded.dictionary)
            self._codes.extend(codes[encoded.indices.to_numpy()])

    def take(self, rows: Int64s) -> pa.Array:
        """Return the texts of some rows, dictionary-encoded with only the texts that occur."""
        used, codes = np.unique(self.codes[rows], return_inverse=True)
        texts = self._texts.take(used.astype(np.int64)).cast(pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), texts)

    def keep(self, rows: Int64s) -> None:
        column = InternedColumn()
        column.extend(self.take(rows))
        self._codes, self._texts, self._index = column._codes, column._texts, column._index
        self._last = column._last

    def _code_for(self, value: str) -> int:
        code = self.code_of(value)
        if code < 0:
            code = len(self._texts)
            self._index.insert(hash_of(value), code)
            self._texts.append(value)
        return code

    def _intern(self, distinct: pa.Array) -> Any:
        """Return the numbers of distinct texts; new ones get the next numbers."""
        codes = np.empty(len(distinct), np.int32)
        for begin in range(0, len(distinct), _CHUNK_ROWS):
            # In chunks, because hashing makes Python strings of the texts. The texts are distinct,
            # so new ones are not compared with each other.
            part = distinct.slice(begin, _CHUNK_ROWS)
            hashes = text_hashes(part)
            part_codes = self._index.find(hashes, same_texts(self._texts, part))
            new = np.flatnonzero(part_codes < 0)
            part_codes[new] = np.arange(len(new)) + len(self._texts)
            self._index.insert_all(hashes[new], part_codes[new])
            self._texts.extend(part.take(pa.array(new)))
            codes[begin : begin + len(part)] = part_codes
        return codes


class HandleColumn:
    """Handles of 16 bytes, each as two numbers in the order of the bytes."""

    def __init__(self) -> None:
        self.high = NumberColumn(np.uint64)
        self.low = NumberColumn(np.uint64)

    @property
    def nbytes(self) -> int:
        return self.high.nbytes + self.low.nbytes

    def __getitem__(self, row: int) -> bytes:
        return self.high[row].to_bytes(8) + self.low[row].to_bytes(8)

    def append(self, value: bytes) -> None:
        self.high.append(int.from_bytes(value[:8]))
        self.low.append(int.from_bytes(value[8:]))

    def extend(self, values: Any) -> None:
        halves = handle_halves(values)
        self.high.extend(halves[:, 0])
        self.low.extend(halves[:, 1])

    def take(self, rows: Int64s) -> pa.Array:
        # Big-endian, as `append` reads them, so that the bytes are the handles end to end.
        halves = np.stack([self.high.values[rows], self.low.values[rows]], 1).astype(">u8")
        ends = np.arange(len(rows) + 1, dtype=np.int32) * HANDLE_BYTES
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(halves.tobytes())]
        return pa.Array.from_buffers(pa.binary(), len(rows), buffers)

    def keep(self, rows: Int64s) -> None:
        self.high.keep(rows)
        self.low.keep(rows)


def handle_halves(values: Any) -> Any:
    """Return handles, an Arrow array of binary, as an array of shape (n, 2): the two halves of each
    as numbers."""
    parts = [_layout(chunk, np.int32)[1].view(">u8") for chunk in chunks_of(values)]
    return np.concatenate([np.empty(0, ">u8"), *parts]).astype(np.uint64).reshape(-1, 2)


def with_constants(table: pa.Table, same: Mapping[str, str | int]) -> pa.Table:
    """Add columns to a table, each with one value in all rows."""
    # A dictionary of one value, so that a text is not repeated for each row.
    none = pa.array(np.zeros(table.num_rows, np.int32))
    for name, value in same.items():
        column = pa.DictionaryArray.from_arrays(none, pa.array([value]))
        table = table.append_column(
            name, column if isinstance(value, str) else column.cast("int64")
        )
    return table


def text_hashes(texts: pa.Array) -> UInt32s:
    return hashes_of(texts.to_pylist())


def same_texts(texts: TextColumn, expected: pa.Array) -> Any:
    """Return the comparison that `HashIndex.find` needs: which rows of `texts` hold the expected
    texts?"""

    def same(places: Int64s, rows: Int64s) -> Mask:
        wide = expected.take(pa.array(places)).cast(pa.large_string())
        equal = pc.equal(texts.take(rows), wide).to_numpy(zero_copy_only=False)
        return np.asarray(equal, np.bool_)

    return same


def chunks_of(values: Any) -> Iterator[pa.Array]:
    """Yield the arrays that a chunked array consists of, or an array itself."""
    if isinstance(values, pa.ChunkedArray):
        yield from values.chunks
    else:
        yield values


def _layout(array: pa.Array, offset_type: Any) -> tuple[Any, Any]:
    """Return the offsets of a text or binary array, and the bytes they point into, cut to them."""
    _, offsets, content = array.buffers()
    if not len(array):
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, offset_type)[array.offset : array.offset + len(array) + 1]
    whole = np.empty(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    return ends, whole[ends[0] : ends[-1]]
