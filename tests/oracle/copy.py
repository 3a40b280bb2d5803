"""A client's copy as docs/reference/protocol.md specifies it, of dicts and sorted lists."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from datastem.instants import from_micros
from datastem.types import Type, parse_type
from psoup.v1 import psoup_pb2 as pb
from tests.oracle import checksums

Values = tuple[Any, ...]


@dataclass(frozen=True)
class Kept:
    row_id: int
    visible_from: int | None
    visible_until: int | None
    sort_key: bytes
    checksum: int
    values: Values
    key: int | None = None

    def visible(self, now: int) -> bool:
        begun = self.visible_from is None or self.visible_from <= now
        return begun and not self.expired(now)

    def expired(self, now: int) -> bool:
        return self.visible_until is not None and self.visible_until <= now


@dataclass
class Staged:
    whole: bool
    columns: list[pb.Column] = field(default_factory=list)
    digest_of: int = 0
    slides: bool = False
    keyed: bool = False
    rows: dict[int, Kept] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)


@dataclass
class Copy:
    """`token` is what the next sync sends. `end` is None before the first one."""

    token: bytes = b""
    resume: bytes = b""
    rows: dict[int, Kept] = field(default_factory=dict)
    columns: list[pb.Column] = field(default_factory=list)
    digest_of: int = 0
    slides: bool = False
    keyed: bool = False
    end: pb.SyncEnd | None = None
    staged: Staged | None = None
    rows_received: int = 0
    removed_received: int = 0

    @property
    def types(self) -> list[Type]:
        return [parse_type(column.type) for column in self.columns]

    @property
    def now(self) -> int | None:
        if self.end is None or not self.end.HasField("now"):
            return None
        return self.end.now.seconds * 10**6 + self.end.now.nanos // 1000

    def answer(self, now: int | None) -> list[Values]:
        """In order. Without a NOW only rows that have no interval are visible."""
        visible_rows = [
            row for row in self.rows.values() if row.visible(now if now is not None else -1)
        ]
        visible_rows.sort(key=lambda row: (row.sort_key, row.visible_from or 0, row.row_id))
        return [row.values for row in visible_rows]

    # ---- parts

    def take(self, part: pb.SyncPart, *, lose_end: bool = False) -> None:
        match part.WhichOneof("part"):
            case "begin":
                self._begin(part.begin)
            case "removed":
                ids = ids_of(part.removed.runs)
                assert ids_of(part.removed.ended) <= ids
                self.removed_received += len(ids)
                self._stage.removed |= ids
            case "rows" | "arrow":
                rows = self._typed(part.rows) if part.HasField("rows") else self._arrow(part.arrow)
                self.rows_received += len(rows)
                self._stage.rows |= {row.row_id: row for row in rows}
            case "resume":
                self.resume = part.resume
                self.staged = self.staged or Staged(False)
            case "end" if not lose_end:
                self._end(part.end)
            case "end":
                pass
            case _:
                raise AssertionError(f"not expected: {part}")

    @property
    def _stage(self) -> Staged:
        assert self.staged is not None
        return self.staged

    def _begin(self, begin: pb.SyncBegin) -> None:
        whole = begin.mode == pb.SYNC_MODE_WHOLE
        if begin.continued:
            assert self._stage.whole == whole
            return
        self.staged = Staged(whole)
        self.resume = b""
        assert bool(begin.columns) == whole
        if whole:
            properties = begin.digest_of, begin.slides, begin.keyed
            self.staged = Staged(whole, list(begin.columns), *properties)

    def _end(self, end: pb.SyncEnd) -> None:
        staged = self._stage
        if staged.whole:
            self.rows = dict(staged.rows)
            self.columns, self.digest_of = staged.columns, staged.digest_of
            self.slides, self.keyed = staged.slides, staged.keyed
        else:
            remaining = {i: row for i, row in self.rows.items() if i not in staged.removed}
            self.rows = remaining | staged.rows
        self.end, self.token, self.resume, self.staged = end, end.token, b"", None
        now = self.now
        if now is not None:
            self.rows = {i: row for i, row in self.rows.items() if not row.expired(now)}

    def cut(self) -> None:
        """Lose the connection: what came after the last resume token is dropped."""
        if not self.resume:
            self.staged = None

    # ---- rows

    def _columns_now(self) -> list[pb.Column]:
        return self._stage.columns or self.columns

    def _typed(self, rows: pb.SyncRows) -> list[Kept]:
        kinds = [parse_type(column.type) for column in self._columns_now()]
        return [self._checked(_typed(row), kinds) for row in rows.rows]

    def _arrow(self, content: bytes) -> list[Kept]:
        kinds = [parse_type(column.type) for column in self._columns_now()]
        table = pa.ipc.open_stream(content).read_all()
        for name in ("_visible_from", "_visible_until"):
            place = table.column_names.index(name)
            table = table.set_column(place, name, table.column(name).cast(pa.int64()))
        received = []
        for row in table.to_pylist():
            row_id, begin, until, checksum, sort_key, *values = row.values()
            key = values.pop(0) if self._keyed_now() else None
            received.append(Kept(row_id, begin, until, sort_key, checksum, tuple(values), key))
        return [self._checked(row, kinds) for row in received]

    def _keyed_now(self) -> bool:
        return self._stage.keyed if self._stage.whole else self.keyed

    def _checked(self, row: Kept, kinds: list[Type]) -> Kept:
        assert (row.key is not None) == self._keyed_now()
        assert row.checksum == checksum_of(row, kinds)
        return row

    # ---- integrity

    def sound(self) -> bool:
        """Count and digest are those of the last end."""
        assert self.end is not None
        by_id = self.digest_of == pb.DIGEST_OF_UNSPECIFIED
        numbers = [row.row_id if by_id else row.checksum for row in self.rows.values()]
        digest = checksums.digest(numbers)
        return len(numbers) == self.end.row_count and digest == self.end.digest

    def damaged(self) -> set[int]:
        return {i for i, row in self.rows.items() if row.checksum != checksum_of(row, self.types)}

    def damage(self, chance: random.Random) -> str:
        """Breaks one row, or loses it, or makes one up. Says what a client would find."""
        row_id = chance.choice(sorted(self.rows))
        match chance.choice(("checksum", "lost", "made up")):
            case "checksum":
                row = self.rows[row_id]
                self.rows[row_id] = replace(row, checksum=row.checksum ^ 1 << chance.randrange(64))
                return "damaged"
            case "lost":
                del self.rows[row_id]
            case _:
                invented = replace(self.rows[row_id], row_id=row_id + 2**40)
                invented = replace(invented, checksum=checksum_of(invented, self.types))
                self.rows[invented.row_id] = invented
        return "different"


def values_in(part: pb.SyncPart) -> list[Values]:
    """Return the values of the rows of a part, whatever a copy makes of them."""
    if part.HasField("arrow"):
        rows = pa.ipc.open_stream(part.arrow).read_all().to_pylist()
        return [tuple(v for name, v in row.items() if not name.startswith("_")) for row in rows]
    return [_typed(row).values for row in part.rows.rows]


def checksum_of(row: Kept, kinds: list[Type]) -> int:
    values = row.values if row.key is None else (*row.values, row.key)
    kinds = kinds if row.key is None else [*kinds, parse_type("BIGINT")]
    return checksums.checksum(
        row.row_id, row.visible_from, row.visible_until, row.sort_key, values, kinds
    )


def ids_of(runs: Sequence[int]) -> set[int]:
    ids: set[int] = set()
    place = 0
    for skip, take in zip(runs[::2], runs[1::2], strict=True):
        ids |= set(range(place + skip, place + skip + take))
        place += skip + take
    return ids


def runs_of(ids: set[int]) -> pb.Ids:
    runs: list[int] = []
    place = 0
    for row_id in sorted(ids):
        if runs and row_id == place:
            runs[-1] += 1
        else:
            runs += [row_id - place, 1]
        place = row_id + 1
    return pb.Ids(runs=runs)


def _typed(row: pb.SyncRow) -> Kept:
    return Kept(
        row.row_id,
        row.visible_from if row.HasField("visible_from") else None,
        row.visible_until if row.HasField("visible_until") else None,
        row.sort_key,
        row.checksum,
        tuple(_value(value) for value in row.values),
        row.key if row.HasField("key") else None,
    )


def _value(value: pb.Value) -> Any:
    match value.WhichOneof("kind"):
        case None:
            return None
        case "timestamp":
            return from_micros(value.timestamp.seconds * 10**6 + value.timestamp.nanos // 1000)
        case "decimal":
            return Decimal(value.decimal)
        case "date":
            return date.fromisoformat(value.date)
        case kind:
            return getattr(value, kind)
