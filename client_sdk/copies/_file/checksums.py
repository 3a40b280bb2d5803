"""Checksums of rows and digests of answers, as docs/reference/protocol.md defines them.

Rows are lists of values as the file holds them, so that what is checked is what is stored. The sums
use plain integers: for 100,000 rows of a file most of the time goes into reading them anyway.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import mul
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from client_sdk._wire.values import Column

ALL = 2**64 - 1
SINCE_EVER, FOR_EVER = -(2**63), 2**63 - 1
# row_id, visible_from, visible_until, sort_key, checksum; then the values.
HEAD = 5

_STEP = 0x9E3779B97F4A7C15
_LANES = (_STEP, 0xC2B2AE3D27D4EB4F)
_NAN = 0x7FF8000000000000
_DOUBLE, _BITS = struct.Struct("<d"), struct.Struct("<Q")
_PACK_LANES, _UNPACK_LANES = struct.Struct("<2Q").pack, struct.Struct("<2Q").unpack

StoredRow: TypeAlias = Sequence[Any]
_Cells: TypeAlias = list[Iterable[int]]


def _mix(x: int) -> int:
    # The finalizer of SplitMix64, kept to 64 bits.
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & ALL
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & ALL
    return x ^ (x >> 31)


class _Factors:
    """The factors that the words of a sum are multiplied with, computed as far as they are
    needed.
    """

    def __init__(self) -> None:
        self._factors: list[int] = []

    def of(self, count: int) -> list[int]:
        """Return at least `count` factors."""
        while len(self._factors) < count:
            # Odd factors are invertible modulo 2**64, so a change of one word always changes the
            # sum.
            self._factors.append(_mix((len(self._factors) + 1) * _STEP & ALL) | 1)
        return self._factors


_FACTORS = _Factors()


def sum_of_bytes(content: bytes) -> int:
    # Words of 32 bits, little-endian, the last one padded with zeros. Callers put the length into a
    # cell of its own, since the padding hides it.
    count = (len(content) + 3) // 4
    words = struct.unpack(f"<{count}I", content.ljust(4 * count, b"\0"))
    total: int = sum(map(mul, _FACTORS.of(count), words))
    return total & ALL


class Checksums:
    """A function for the checksums of rows with certain columns."""

    def __init__(self, columns: Sequence[Column]) -> None:
        """Prepare for these columns. Raises ValueError for a type this version does not know."""
        self._kinds = [_KINDS[column.kind](column) for column in columns]
        # The head has HEAD cells too: the checksum has none, and the sort key has two, its length
        # and its sum.
        self._count = HEAD + sum(kind.width for kind in self._kinds)
        self._pack = struct.Struct(f"<{self._count}Q").pack
        self._words = struct.Struct(f"<{2 * self._count}I").unpack

    def of(self, rows: Sequence[StoredRow]) -> list[int]:
        """Return the checksum of each row.

        Raises TypeError, ValueError or AttributeError for a value that is not of its type.
        """
        if not rows:
            return []
        # One tuple for each stored column. Each list in `cells` is a column of unsigned 64-bit
        # integers. A row across them is summed as words of 32 bits, two for each cell.
        ids, begins, ends, keys, _, *values = zip(*rows, strict=True)
        cells: _Cells = [
            [row_id & ALL for row_id in ids],
            [(SINCE_EVER if begin is None else begin) & ALL for begin in begins],
            [(FOR_EVER if end is None else end) & ALL for end in ends],
            [len(key) for key in keys],
            [sum_of_bytes(key) if key else 0 for key in keys],
        ]
        for kind, column in zip(self._kinds, values, strict=True):
            cells += kind.cells(column)
        factors = _FACTORS.of(2 * self._count)
        pack, words = self._pack, self._words
        return [sum(map(mul, factors, words(pack(*row)))) & ALL for row in zip(*cells, strict=True)]

    def wrong(self, rows: Sequence[StoredRow]) -> list[int]:
        """Return the ids of the rows that their checksums don't match."""
        try:
            computed = self.of(rows)
        except _BAD_VALUES:
            # One value of a wrong type fails the whole batch, so the rows are checked singly.
            return [row[0] for row in rows if not self._is_right(row)]
        return [
            row[0]
            for row, checksum in zip(rows, computed, strict=True)
            if row[HEAD - 1] != signed(checksum)
        ]

    def _is_right(self, row: StoredRow) -> bool:
        try:
            return bool(row[HEAD - 1] == signed(self.of([row])[0]))
        except _BAD_VALUES:
            return False


_BAD_VALUES = (TypeError, ValueError, AttributeError, ArithmeticError, struct.error)


def signed(number: int) -> int:
    """Return an unsigned number of 64 bits as a signed one, which SQLite has."""
    return number - 2**64 if number >= 2**63 else number


def digest(numbers: Sequence[int]) -> bytes:
    """Return the digest of row ids or of checksums, signed or not."""
    if not numbers:
        return bytes(16)
    content = pa.array(numbers, pa.int64()).view(pa.uint64())
    # Each lane is a sum over the rows, modulo 2**64. So the order of rows does not matter, and rows
    # can be added and subtracted.
    return b"".join(_lane(content, lane).to_bytes(8, "little") for lane in _LANES)


@dataclass(frozen=True, slots=True)
class Sums:
    """The count and digest of an answer's rows. They can be updated as rows are added and removed.

    `numbers` are the row ids or the checksums of rows, depending on the answer.
    """

    count: int
    digest: bytes

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Sums:
        return cls(len(numbers), digest(numbers))

    def plus(self, numbers: Sequence[int]) -> Sums:
        return self._changed(numbers, 1)

    def minus(self, numbers: Sequence[int]) -> Sums:
        return self._changed(numbers, -1)

    def _changed(self, numbers: Sequence[int], sign: int) -> Sums:
        lanes = zip(_UNPACK_LANES(self.digest), _UNPACK_LANES(digest(numbers)), strict=True)
        changed = [(lane + sign * more) & ALL for lane, more in lanes]
        return Sums(self.count + sign * len(numbers), _PACK_LANES(*changed))


NO_ROWS = Sums(0, bytes(16))


def _lane(numbers: pa.Array, lane: int) -> int:
    # The same mixing as in `_mix`, for all numbers at once. Arrow's unsigned integers wrap around
    # at 64 bits, as they have to.
    x = pc.bit_wise_xor(numbers, pa.scalar(lane, pa.uint64()))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = pc.multiply(_folded(x, shift), pa.scalar(factor, pa.uint64()))
    return int(pc.sum(_folded(x, 31)).as_py())


def _folded(x: pa.Array, shift: int) -> pa.Array:
    return pc.bit_wise_xor(x, pc.shift_right(x, pa.scalar(shift, pa.uint64())))


# ---- the cells of a column


class _Kind:
    """A converter of a column to cells: one says whether there is a value, the others are the
    value.
    """

    width = 2

    def __init__(self, column: Column) -> None:
        pass

    def cells(self, values: Sequence[Any]) -> _Cells:
        is_present = [0 if value is None else 1 for value in values]
        return [is_present, *self.of(values)]

    def of(self, values: Sequence[Any]) -> _Cells:
        return [[0 if value is None else value & ALL for value in values]]


class _Doubles(_Kind):
    def of(self, values: Sequence[Any]) -> _Cells:
        return [[0 if value is None else _bits(value) for value in values]]


def _bits(value: Any) -> int:
    # All NaNs have one bit pattern here, since the file holds them as one text.
    if value == "NaN":
        return _NAN
    bits: int = _BITS.unpack(_DOUBLE.pack(value))[0]
    return bits


class _Texts(_Kind):
    width = 3

    def of(self, values: Sequence[Any]) -> _Cells:
        contents = [b"" if value is None else value.encode() for value in values]
        return [[len(content) for content in contents], [sum_of_bytes(c) for c in contents]]


class _Decimals(_Kind):
    width = 3

    def __init__(self, column: Column) -> None:
        self._scale = column.arrow.scale

    def of(self, values: Sequence[Any]) -> _Cells:
        numbers = [0 if value is None else self._unscaled(value) for value in values]
        # 128 bits in two's complement as two cells, the low half first.
        return [[n & ALL for n in numbers], [n >> 64 & ALL for n in numbers]]

    def _unscaled(self, text: str) -> int:
        sign, digits, exponent = Decimal(text).as_tuple()
        # NaN and Infinity have a letter as their exponent.
        if not isinstance(exponent, int) or exponent != -self._scale:
            raise ValueError(f"{text} is not written with {self._scale} digits after the point")
        number = int("".join(map(str, digits)))
        return -number if sign else number


_KINDS: dict[str, Callable[[Column], _Kind]] = {
    "BOOLEAN": _Kind,
    "BIGINT": _Kind,
    "DOUBLE": _Doubles,
    "DECIMAL": _Decimals,
    "TEXT": _Texts,
    "TIMESTAMP": _Kind,
    "DATE": _Kind,
}
