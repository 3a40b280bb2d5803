"""Repair after a wrong clock: every stamp past an instant is set to that instant.

The tables are written again as in a step of the engine, and nothing is visible until the epoch
names it. Commits of the log that the engine has not consumed are appended to the log again, after
the version that the new epoch has consumed. So one commit, the epoch's, switches from old to new.
It also gives the store another incarnation, since earlier positions and answers may have wrong
stamps.

Nothing may use the store during a repair. Until it appends to the log, a repair that fails or is
killed has changed nothing. From then on a note in the folder keeps servers and engines out until
the repair has been run again. It then starts over from the epoch, and skips what it had appended.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from datastem.codec import INSTANT
from datastem.schema import StreamSchema
from psoup.engine.composites.boxes import forget_composite
from psoup.engine.ledger import Ledger, stem_name
from psoup.engine.maintain.rewriting import rewrite_files
from psoup.engine.ownership.lock import exclusive_store
from psoup.engine.repair.recover import open_ledger
from psoup.engine.steps.worker import CLOSURE_BOUNDS, write_segments
from psoup.store import (
    CorruptStore,
    Data,
    Entry,
    Event,
    Jump,
    Position,
    Store,
    StreamAltered,
    StreamCreated,
    Tick,
)
from psoup.store.delta.files import DataFile, write_data_file
from psoup.store.delta.reading import reader
from psoup.store.layout import CLOSURES, REACHED_BOUNDS, TABLES
from psoup.store.presence import ClockRepair, leave_note, read_note, remove_note
from psoup.store.state.leases import outages_until
from psoup.store.state.state import State
from psoup.store.state.streams import StreamState
from psoup.store.tables import read_newest

_OPERATION = "CLOCK"
# The columns with instants of the newest-wins tables.
_INSTANT_COLUMNS = {
    "registrations": ("stamp",),
    "publishers": ("stamp",),
    "leases": ("renewed", "expired"),
}


def repair_clock(root: Path, clock: int, allow: Callable[[int], bool]) -> bool:
    """Set the stamps past `clock` to it, or finish such a repair that was interrupted.

    `allow` is called first, with the last stamp. Return False if no stamp is past `clock`, or if
    `allow` returns False. Raise ServersRunning, SecondEngine, StoreError.
    """
    store = Store.open(root, repairing=True)
    with exclusive_store(root):
        repair = read_note(root)
        if repair is None:
            last = last_stamp(store)
            if last <= clock or not allow(last):
                return False
            repair = ClockRepair(clock, store.log.latest_version(), uuid.uuid4().hex)
        # If they are equal, the interrupted repair had published its epoch and left only the note.
        if store.epochs.latest()[1].incarnation != repair.incarnation:
            _carry_out(store, repair)
        remove_note(root)
        return True


def last_stamp(store: Store) -> int:
    """Return the greatest stamp of the store."""
    _, epoch = store.epochs.latest()
    last = epoch.clock
    for version in range(epoch.log_version + 1, store.log.latest_version() + 1):
        last = max(last, *(entry.stamp for entry in store.log.read(version, payloads=False)), 0)
    return last


def _carry_out(store: Store, repair: ClockRepair) -> None:
    """Rewrite the tables and the tail of the log, and publish an epoch of a new incarnation."""
    ledger = open_ledger(store)
    tail = range(ledger.epoch.log_version + 1, repair.log_version + 1)
    for stream in ledger.state.streams.values():
        if not stream.dropped and stem_name(stream.id) in ledger.tables:
            _set_stem(ledger, stream, repair.clock)
            _set_closures(ledger, stream, repair.clock)
    # Combinations hold instants of their parts. They are found again from the new rows.
    for composite_id in list(ledger.composites):
        forget_composite(ledger, composite_id)
    for name, columns in _INSTANT_COLUMNS.items():
        _set_newest(ledger, name, columns, repair.clock)
    _set_heartbeats(ledger, repair.clock)
    _check_tail(store, tail)
    # From here on the log changes: the note keeps others out until the repair is finished.
    leave_note(store.root, repair)
    # Listed first: after the next call the snapshot names only the new files.
    old = list(store.log.folder.snapshot().files.values())
    consumed = _append_again(ledger, tail, repair.clock)
    _set_state(ledger.state, repair.clock)
    ledger.epoch = replace(ledger.epoch, incarnation=repair.incarnation)
    ledger.publish("clock", consumed)
    # They have the wrong stamps: no reader may find them.
    ledger.fence.delete(map(store.log.folder.path_of, old))


# ---- the tables


def _farthest(schema: StreamSchema, clock: int) -> int | None:
    """Return how far a stream can have come by the clock; None if its event times alone say that.

    A row that took NOW less far than its limit keeps doing so, and stamps do not fall. So to limit
    NOW after each event is to compute it again from the new stamps.
    """
    if schema.ts_is_stamp:
        return clock
    return None if schema.lead is None else clock + schema.lead


def _set_stem(ledger: Ledger, stream: StreamState, clock: int) -> None:
    limits: dict[str, int] = {"_stamp": clock}
    # Without ORDERED BY the times of rows are stamps of their arrival, too.
    if stream.schema.ts_is_stamp:
        limits["_ts"] = clock
    farthest = _farthest(stream.schema, clock)
    if farthest is not None:
        limits |= {"_before": farthest, "_reached": farthest}
    files = ledger.files(stem_name(stream.id))
    # A file without bounds may have a stamp past the clock.
    late = [file for file in files if file.high.get("_stamp", clock + 1) > clock]
    limit = partial(_limited, limits=limits)
    rewrite_files(ledger, stream.id, late, operation=_OPERATION, change=limit)


def _set_closures(ledger: Ledger, stream: StreamState, clock: int) -> None:
    """Limit the ends of closures of a stream in order of arrival. Event times stay as they are."""
    if not (stream.schema.ts_is_stamp and stream.schema.key):
        return
    store, name = ledger.store, "closures"
    added: list[DataFile] = []
    removed: list[DataFile] = []
    for file in ledger.files(name):
        if int(file.partition["stream_id"]) != stream.id:
            continue
        rows = _read(ledger, name, file)
        fixed = _limited(rows, {"end": clock})
        if not fixed.equals(rows):
            whole = _with_partition(fixed, file)
            folder = store.table(name).root
            added += write_segments(folder, stream.id, whole, CLOSURE_BOUNDS, store.sync)
            removed.append(file)
    if removed:
        ledger.commit(name, added, removed, operation=_OPERATION)


def _set_newest(ledger: Ledger, name: str, columns: Iterable[str], clock: int) -> None:
    folder = ledger.folder(name)
    rows = read_newest(folder, ledger.tables[name], TABLES[name])
    fixed = _limited(rows, dict.fromkeys(columns, clock))
    if not fixed.equals(rows):
        written = write_data_file(folder.root, fixed, sync=ledger.store.sync)
        ledger.commit(name, [written], ledger.files(name), operation=_OPERATION)


def _set_heartbeats(ledger: Ledger, clock: int) -> None:
    """Limit the stamps of heartbeats, and the instants that they took their streams to if these
    depend on stamps."""
    name, root = "reached", ledger.folder("reached").root
    late = [file for file in ledger.files(name) if file.high.get("stamp", clock + 1) > clock]
    if late:
        read = pa.concat_tables([_read(ledger, name, file) for file in late])
        rows, sync = _limited(read, {"stamp": clock}), ledger.store.sync
        for stream in ledger.state.streams.values():
            farthest = _farthest(stream.schema, clock)
            if farthest is not None:
                of_stream = pc.equal(rows.column("stream_id"), stream.id)
                rows = _limited(rows, {"reached": farthest, "before": farthest}, of_stream)
        written = write_data_file(root, rows, bounds=REACHED_BOUNDS, sync=sync)
        ledger.commit(name, [written], late, operation=_OPERATION)


def _read(ledger: Ledger, name: str, file: DataFile) -> pa.Table:
    return reader(ledger.folder(name).root, file).whole()


def _limited(
    rows: pa.Table, limits: Mapping[str, int], only: pa.ChunkedArray | None = None
) -> pa.Table:
    """Return the rows with the instants in some columns limited; `only` in rows that a mask
    chooses."""
    for name, instant in limits.items():
        limit = pa.scalar(instant, INSTANT)
        index = rows.column_names.index(name)
        values = rows.column(name)
        is_late = pc.greater(values, limit)
        is_late = is_late if only is None else pc.and_(is_late, only)
        least = pc.if_else(is_late, limit, values)
        rows = rows.set_column(index, rows.schema.field(index), least)
    return rows


def _with_partition(rows: pa.Table, file: DataFile) -> pa.Table:
    for name, value in file.partition.items():
        rows = rows.append_column(name, pa.repeat(pa.scalar(int(value), pa.int64()), len(rows)))
    return rows.select(CLOSURES.names)


# ---- the log


def _check_tail(store: Store, tail: Iterable[int]) -> None:
    """Raise CorruptStore if the tail of the log can't be appended again."""
    for version in tail:
        for entry in store.log.read(version):
            event = entry.event
            if isinstance(event, Data) and event.rows and event.payload is None:
                raise CorruptStore(
                    f"rows of version {version} of the log are lost. Restore its file from a "
                    "back-up, or let the engine note the loss, before you repair the clock"
                )


def _append_again(ledger: Ledger, tail: Iterable[int], clock: int) -> int:
    """Append the tail of the log again; return the version before it, which the new epoch has
    consumed."""
    log, sync = ledger.store.log, ledger.store.sync
    consumed = version = log.folder.latest_version() + 1
    # First remove all files, those of an interrupted repair included.
    files = log.folder.snapshot().files.values()
    log.folder.commit(version, (), files, operation=_OPERATION, sync=sync)
    schemas = {stream.id: stream.schema for stream in ledger.state.streams.values()}
    for old in tail:
        entries = log.read(old)
        if entries:
            version += 1
            log.append(version, list(_limited_entries(entries, version, schemas, clock)))
    return consumed


def _limited_entries(
    entries: Iterable[Entry], version: int, schemas: dict[int, StreamSchema], clock: int
) -> Iterator[Entry]:
    for entry in entries:
        # The tail may create streams that the epoch does not have.
        if isinstance(entry.event, StreamCreated | StreamAltered):
            schemas[entry.event.stream_id] = entry.event.schema
        yield replace(
            entry,
            position=Position(version, entry.position.ordinal),
            stamp=min(entry.stamp, clock),
            clock=_least(entry.clock, clock),
            event=_limited_event(entry, schemas, clock),
        )


def _limited_event(entry: Entry, schemas: dict[int, StreamSchema], clock: int) -> Event:
    """Return the event as it is appended again; a jump past the clock becomes a tick."""
    match entry.event:
        case Jump(_, to) if to > clock:
            return Tick()
        case Data() as event:
            schema = schemas[event.stream_id]
            if schema.ts_is_stamp:
                low, high = _least(event.min_ts, clock), _least(event.max_ts, clock)
                event = replace(event, min_ts=low, max_ts=high)
            farthest = _farthest(schema, clock)
            before, reached = _least(event.before, farthest), _least(event.reached, farthest)
            return replace(event, before=before, reached=reached)
    return entry.event


def _least(instant: int | None, limit: int | None) -> int | None:
    return instant if instant is None or limit is None else min(instant, limit)


# ---- the state


def _set_state(state: State, clock: int) -> None:
    """Limit the instants that only the epoch holds; all others are in the tables."""
    state.clock = min(state.clock, clock)
    state.jumps = state.jumps.until(clock)
    state.leases.outages = outages_until(state.leases.outages, clock)
    for stream in list(state.streams.values()):
        reached = _least(stream.reached, _farthest(stream.schema, clock))
        leap = stream.leap
        right = leap is not None and leap.stamp <= clock
        state.streams[stream.id] = replace(stream, reached=reached, leap=leap if right else None)
    ids = {stream.id for stream in state.streams.values() if stream.schema.ts_is_stamp}
    holes = tuple(
        replace(hole, ts_lo=_least(hole.ts_lo, clock), ts_hi=_least(hole.ts_hi, clock))
        if hole.stream_id in ids
        else hole
        for hole in state.losses.holes
    )
    state.losses = replace(state.losses, holes=holes)
