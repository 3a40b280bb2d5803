"""An epoch: one step of the engine made visible, and the only truth about its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from psoup.store.composite_marks import CompositeMark, mark_row, read_mark
from psoup.store.delta import DataFile, DeltaFolder
from psoup.store.delta.files import write_data_file
from psoup.store.delta.reading import reader
from psoup.store.errors import CorruptStore
from psoup.store.layout import EPOCHS
from psoup.store.log.events import Jump
from psoup.store.log.position import START, Position
from psoup.store.state.jumps import JumpRecord, Jumps
from psoup.store.state.losses import NO_LOSS, Hole, Losses, Lost
from psoup.store.state.quarantine import EMPTY_QUARANTINE, Quarantine, QuarantineEntry
from psoup.store.state.streams import Leap, StreamState


@dataclass(frozen=True, slots=True)
class StreamMark:
    """A stream at an epoch: its rows with ids below `high` are in `version` of its stem. The other
    fields are those of the stream's state."""

    high: int
    reached: int | None
    version: int
    late_rows: int = 0
    leap: Leap | None = None

    @classmethod
    def of(cls, stream: StreamState, version: int) -> StreamMark:
        return cls(stream.high, stream.reached, version, stream.late_rows, stream.leap)


@dataclass(frozen=True, slots=True)
class Epoch:
    """Everything of the log up to and including `log_version` is in the named table versions.

    `incarnation` is the store's since its last repair, empty if it was never repaired.
    """

    number: int
    kind: str
    log_version: int
    position: Position
    clock: int
    made_at: int
    next_predicate_id: int
    versions: Mapping[str, int]
    streams: Mapping[int, StreamMark]
    outages: tuple[tuple[int, int], ...] = ()
    jumps: Jumps = field(default_factory=Jumps)
    losses: Losses = NO_LOSS
    quarantine: Quarantine = EMPTY_QUARANTINE
    incarnation: str = ""
    composites: Mapping[int, CompositeMark] = field(default_factory=dict)
    # Keyed streams whose closures are incomplete, and the epoch since which they are.
    unclosed: Mapping[int, int] = field(default_factory=dict)
    # The rows that were erased up to this position are in no file that the epoch names.
    erased: Position = START
    # Those that were erased up to this position are in no file of the store's folder.
    wiped: Position = START

    @property
    def stems(self) -> Mapping[int, StreamMark | CompositeMark]:
        """The marks of all stems, of rows and of combinations, by id: each has a high, the next id,
        and a version."""
        return {**self.streams, **self.composites}

    def stem(self, id_: int) -> StreamMark | CompositeMark | None:
        """Return the mark of one stem; None if the epoch does not name it."""
        return self.streams.get(id_) or self.composites.get(id_)


# Columns whose instants are read as microseconds.
_MICROSECOND_COLUMNS = frozenset(
    {"clock", "made_at", "streams", "jumps", "holes", "accepted", "quarantine"}
)

# The fields of a StreamMark that are numbers.
_MARK_NUMBERS = ("high", "reached", "version", "late_rows")

# Before the first step: every table as it was made.
GENESIS = Epoch(0, "genesis", 0, START, 0, 0, 1, {}, {})


class Epochs:
    """The epochs table. The engine appends; each commit also drops the file of an old epoch."""

    def __init__(self, folder: DeltaFolder, *, keep: int = 16, sync: bool = True) -> None:
        self.folder = folder
        self._keep = keep
        self._sync = sync

    def latest(self, at_least: int = 0) -> tuple[int, Epoch]:
        """Return the newest epoch and the version of this table that brought it.

        `seen` is a version read before: with nothing newer this costs a few looks at the disk, and
        (seen, …) comes back with the same epoch. Raise CorruptStore if the table has a hole, or
        names no epoch.
        """
        version = self.folder.latest_version(at_least)
        if version == 0:
            return 0, GENESIS
        commit = self.folder.read_commit(version)
        # A commit behind a checkpoint is gone; the snapshot has the last epochs, too.
        added = commit.added if commit else self.folder.snapshot(version).files.values()
        if not added:
            raise CorruptStore(f"version {version} of the table epochs names no epoch")
        return version, self._read(max(added, key=lambda file: file.high["epoch"]))

    def is_newest(self, version: int) -> bool:
        """Return True if no epoch came after this version of the table."""
        return self.folder.latest_version(version) == version

    def append(self, version: int, epoch: Epoch) -> None:
        """Commit an epoch at exactly `version`. Raise Conflict if another engine did."""
        table = pa.Table.from_pylist([_row(epoch)], schema=EPOCHS)
        written = write_data_file(self.folder.root, table, bounds=["epoch"], sync=self._sync)
        old = self.folder.read_commit(version - self._keep) if version > self._keep else None
        removed = old.added if old else ()
        self.folder.commit(version, [written], removed, operation="EPOCH", sync=self._sync)

    def _read(self, file: DataFile) -> Epoch:
        try:
            return _epoch(reader(self.folder.root, file).whole())
        except FileNotFoundError as error:
            raise CorruptStore(f"the epoch in epochs/{file.path} is gone") from error


def _row(epoch: Epoch) -> dict[str, Any]:
    return {
        "epoch": epoch.number,
        "kind": epoch.kind,
        "log_version": epoch.log_version,
        "position": epoch.position.packed,
        "clock": epoch.clock,
        "made_at": epoch.made_at,
        "next_predicate_id": epoch.next_predicate_id,
        "outages": [number for outage in epoch.outages for number in outage],
        "incarnation": epoch.incarnation or None,
        "jump_count": epoch.jumps.count,
        "jump_total": epoch.jumps.total,
        "jumps": [_jump_row(record) for record in epoch.jumps.records],
        "holes": [asdict(hole) for hole in epoch.losses.holes],
        "accepted": [asdict(rows) for rows in epoch.losses.accepted],
        "quarantine": [asdict(entry) for entry in epoch.quarantine.entries],
        "versions": list(epoch.versions.items()),
        "streams": [_stream_row(*id_and_mark) for id_and_mark in epoch.streams.items()],
        "composites": [mark_row(*id_and_mark) for id_and_mark in epoch.composites.items()],
        "unclosed": list(epoch.unclosed.items()),
        "erased": epoch.erased.packed,
        "wiped": epoch.wiped.packed,
    }


def _epoch(table: pa.Table) -> Epoch:
    # Columns with instants are cast in Arrow: `to_pylist` would make datetimes of them.
    apart = list(_MICROSECOND_COLUMNS.intersection(table.column_names))
    row: dict[str, Any] = table.drop_columns(apart).to_pylist()[0]
    return Epoch(
        number=row["epoch"],
        kind=row["kind"],
        log_version=row["log_version"],
        position=Position.unpack(row["position"]),
        clock=_micros(table, "clock"),
        made_at=_micros(table, "made_at"),
        next_predicate_id=row["next_predicate_id"],
        versions=dict(row["versions"]),
        streams=dict(map(_stream_mark, _records(table, "streams"))),
        outages=_pairs(row.get("outages") or []),
        jumps=_jumps(table, row),
        losses=Losses(
            tuple(Hole(**hole) for hole in _records(table, "holes")),
            tuple(Lost(**rows) for rows in _records(table, "accepted")),
        ),
        quarantine=Quarantine(
            tuple(QuarantineEntry(**entry) for entry in _records(table, "quarantine"))
        ),
        incarnation=row.get("incarnation") or "",
        composites=dict(read_mark(mark) for mark in row.get("composites") or ()),
        unclosed=dict(row.get("unclosed") or ()),
        erased=Position.unpack(row["erased"]),
        wiped=Position.unpack(row.get("wiped") or 0),
    )


def _stream_row(stream_id: int, mark: StreamMark) -> dict[str, Any]:
    row = {"stream_id": stream_id} | {name: getattr(mark, name) for name in _MARK_NUMBERS}
    leap = {} if mark.leap is None else asdict(mark.leap)
    return row | {f"leap_{name}": value for name, value in leap.items()}


def _stream_mark(row: dict[str, Any]) -> tuple[int, StreamMark]:
    leap = {name[5:]: value for name, value in row.items() if name.startswith("leap_")}
    numbers = {name: row[name] for name in _MARK_NUMBERS}
    return row["stream_id"], StreamMark(
        **numbers, leap=None if leap["stamp"] is None else Leap(**leap)
    )


def _jump_row(record: JumpRecord) -> dict[str, Any]:
    fields = {"number": record.number, "total": record.total, "confirmed": record.confirmed}
    return asdict(record.jump) | fields


def _jumps(table: pa.Table, row: Mapping[str, Any]) -> Jumps:
    records = tuple(_jump_record(record) for record in _records(table, "jumps"))
    return Jumps(records, row.get("jump_count") or 0, row.get("jump_total") or 0)


def _records(table: pa.Table, name: str) -> Iterator[dict[str, Any]]:
    """Yield the values of a column of lists of structs, instants as microseconds."""
    parts = table.column(name).combine_chunks().flatten()
    names = [field.name for field in parts.type]
    columns = [
        (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for column in parts.flatten()
    ]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _jump_record(row: dict[str, Any]) -> JumpRecord:
    number, total, confirmed = (row.pop(name) for name in ("number", "total", "confirmed"))
    return JumpRecord(number, Jump(**row), total, confirmed)


def _pairs(numbers: list[int]) -> tuple[tuple[int, int], ...]:
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def _micros(table: pa.Table, name: str) -> int:
    return int(table.column(name).cast(pa.int64())[0].as_py())
