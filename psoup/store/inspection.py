"""The inspection of every file that a store names, for the operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from psoup.store.delta import DeltaFolder, Snapshot
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import DataFileGone, reader
from psoup.store.epochs import Epoch
from psoup.store.errors import Conflict, CorruptStore, LogTrimmed
from psoup.store.layout import ENGINE_TABLES
from psoup.store.log.decoding import rows_of
from psoup.store.log.events import Accept, Data, Entry, Release, StreamAltered, StreamCreated
from psoup.store.log.position import Position
from psoup.store.state.losses import Hole, Losses, Lost
from psoup.store.state.quarantine import Quarantine
from psoup.store.store import Store


@dataclass(frozen=True, slots=True)
class Damage:
    """A problem, described for people. `rows` are lost with the file, if it held only rows."""

    problem: str
    rows: Lost | None = None


def damage(store: Store) -> Iterator[Damage]:
    """Yield everything that can't be read of what the log and the newest epoch name. Raise
    CorruptStore if these can't be read themselves."""
    _, epoch = store.epochs.latest()
    for folder in _folders(store, epoch):
        yield from _damaged_commits(folder)
    for name in ENGINE_TABLES:
        yield from _damaged_files(store.table(name), store.snapshot(epoch, name), None)
    for stream_id in epoch.streams:
        snapshot = store.stem_snapshot(epoch, stream_id)
        yield from _damaged_files(store.stem(stream_id), snapshot, stream_id)
    for composite_id in epoch.composites:
        stem, joins = store.stem(composite_id), store.joins(composite_id)
        yield from _damaged_files(stem, store.stem_snapshot(epoch, composite_id), None)
        yield from _damaged_files(joins, store.joins_snapshot(epoch, composite_id), None)
    yield from _damaged_events(store, epoch)


def losses(store: Store) -> Losses:
    """Return the holes that the newest epoch names, and all losses accepted up to the end of the
    log."""
    _, epoch = store.epochs.latest()
    result = epoch.losses
    for entry in _after(store, epoch):
        if isinstance(entry.event, Accept):
            result = result.accept(entry.event.rows)
    return result


def accept(store: Store, rows: Iterable[Lost]) -> Position:
    """Append to the log that these rows are lost and that answers may go on without them."""
    return _append(store, Accept(tuple(rows)))


def quarantine(store: Store) -> Quarantine:
    """Return the quarantine of the newest epoch, without the entries that were released since."""
    _, epoch = store.epochs.latest()
    entries = epoch.quarantine
    for entry in _after(store, epoch):
        if isinstance(entry.event, Release):
            entries = entries.release(entry.event.names, entry.position.packed)
    return entries


def release(store: Store, names: Iterable[str]) -> Position:
    """Append to the log that the engine retries the quarantine entries with these names."""
    return _append(store, Release(tuple(names)))


def _append(store: Store, event: Accept | Release) -> Position:
    while True:
        version = store.log.latest_version() + 1
        stamp = store.log.last_stamp(store.epochs.latest()[1], version)
        position = Position(version, 0)
        try:
            store.log.append(version, [Entry(position, stamp, "", "", event)])
            return position
        except Conflict:
            continue


# ---- the tables


def _folders(store: Store, epoch: Epoch) -> list[DeltaFolder]:
    stems = [store.stem(number) for number in (*epoch.streams, *epoch.composites)]
    joins = [store.joins(composite_id) for composite_id in epoch.composites]
    tables = map(store.table, ENGINE_TABLES)
    return [store.log.folder, store.epochs.folder, *tables, *stems, *joins]


def _damaged_commits(folder: DeltaFolder) -> Iterator[Damage]:
    for version in folder.versions():
        try:
            folder.read_commit(version)
        except CorruptStore as error:
            yield Damage(str(error))


def _damaged_files(
    folder: DeltaFolder, snapshot: Snapshot, stream_id: int | None
) -> Iterator[Damage]:
    for file in snapshot.files.values():
        try:
            reader(folder.root, file).check()
        except (CorruptStore, DataFileGone) as error:
            yield Damage(str(error), None if stream_id is None else _rows(stream_id, file))


def _rows(stream_id: int, file: DataFile) -> Lost:
    return Lost(stream_id, file.low["_row_id"], file.high["_row_id"] + 1)


# ---- the log after the epoch


def _after(store: Store, epoch: Epoch) -> Iterator[Entry]:
    for version in range(epoch.log_version + 1, store.log.latest_version(epoch.log_version) + 1):
        yield from store.log.read(version, payloads=False)


def _damaged_events(store: Store, epoch: Epoch) -> Iterator[Damage]:
    schemas = {stream.id: stream.schema for stream in store.state(epoch).streams.values()}
    for version in range(epoch.log_version + 1, store.log.latest_version(epoch.log_version) + 1):
        try:
            entries, file = store.log.read(version), store.log.file(version)
        except (CorruptStore, LogTrimmed) as error:
            # Later events depend on those that are lost, so they can't be checked.
            yield Damage(str(error))
            return
        for entry in entries:
            event = entry.event
            if isinstance(event, StreamCreated | StreamAltered):
                schemas[event.stream_id] = event.schema
            elif isinstance(event, Data) and event.rows and file is not None:
                schema = schemas[event.stream_id]
                rows = rows_of(entry, event, schema, file.path)
                if isinstance(rows, Hole):
                    yield Damage(rows.text(schema.name), rows.rows)
