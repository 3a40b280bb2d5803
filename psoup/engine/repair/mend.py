"""Repair of damaged files: they are written again if possible, and named otherwise.

Matches, coverage and closures follow from the rows and are derived again. Streams, registrations,
predicates, publishers and leases are in the memory of a running engine; one that starts needs their
files. Rows are restored from the log, if it still has them. Otherwise they are a hole, which the
epoch names, and the engine continues.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from psoup.engine.composites.boxes import forget_composite
from psoup.engine.ledger import JOINS, STEM, Ledger, stem_name, stream_of
from psoup.engine.matching.coverage import Cohort, Cohorts
from psoup.engine.ownership.fence import Fence
from psoup.engine.spark.jobs import by_table, job_of
from psoup.engine.steps.worker import insert
from psoup.store.audit import AUDIT_BOUNDS, AuditRecord, audit_rows
from psoup.store.definitions import combinations_table, joins_table, system_table
from psoup.store.delta import Snapshot
from psoup.store.delta.files import DataFile, write_data_file
from psoup.store.delta.reading import reader
from psoup.store.epochs import Epoch
from psoup.store.errors import CorruptStore, LogTrimmed
from psoup.store.layout import COVERAGE
from psoup.store.log.decoding import rows_of
from psoup.store.log.events import Data
from psoup.store.log.position import Position
from psoup.store.state.losses import Hole
from psoup.store.state.touched import Touched
from psoup.store.store import Store
from psoup.store.tables import changed_rows, read_files

log = logging.getLogger(__name__)


def mend(ledger: Ledger, name: str) -> None:
    """Repair a damaged file, given its path in the store, or note its loss, and publish an epoch.

    Raise CorruptStore if it can't be repaired, or the file is not one of the ledger's.
    """
    if "/_delta_log/" in name:
        return _restart_damaged(ledger, name)
    # Paths in partitioned tables have folders such as `stream_id=7` after the table's name.
    table, _, path = name.rpartition("/") if "=" not in name else _in_partition(name)
    file = ledger.tables[table].files.get(path) if table in ledger.tables else None
    if table == "coverage":
        log.error("%s is damaged; all rows are matched again", name)
        return restart_coverage(ledger)
    if file is None:
        raise _irreparable(name)
    # A stem whose id is not that of a stream is that of a composite.
    if table.startswith((STEM, JOINS)) and stream_of(table) not in ledger.state.streams:
        log.error("%s is damaged; the combinations are found again", name)
        _drop_combinations(ledger, table, file)
        ledger.publish("mend")
    elif table.startswith(STEM):
        _mend_rows(ledger, stream_of(table), file, name)
    elif table == "matches":
        log.error("%s is damaged; its rows are matched again", name)
        forget_matches(ledger, int(file.partition["stream_id"]), file.high["hi"])
        ledger.publish("mend")
    elif table == "closures":
        log.error("%s is damaged; the stream's closures are derived again", name)
        ledger.commit(table, (), [file], operation="MEND")
        ledger.mark_unclosed(int(file.partition["stream_id"]))
        ledger.publish("mend")
    elif table == "reached":
        log.error("%s is damaged; refresh points that it held are found by rows alone", name)
        ledger.commit(table, (), [file], operation="MEND")
        ledger.publish("mend")
    elif table == "audit":
        log.error("LOST: %s is damaged, and with it %d records of the audit", name, file.rows)
        _note_lost_audit(ledger, file, name)
        ledger.publish("mend")
    else:
        log.error("%s is damaged; the table is written again from memory", name)
        _write_from_memory(ledger, table)
        ledger.publish("mend")


def _irreparable(name: str) -> CorruptStore:
    return CorruptStore(
        f"{name} is damaged and can't be derived again: restore it from a back-up", name
    )


def _in_partition(name: str) -> tuple[str, str, str]:
    table, _, path = name.partition("/")
    return table, "/", path


def _note_lost_audit(ledger: Ledger, file: DataFile, name: str) -> None:
    """Replace the records of a damaged file with a record of their loss."""
    at, now = file.high["position"], ledger.state.clock
    record = AuditRecord(at, now, "", "", "lose audit", name, f"{file.rows} records", "")
    root, sync = ledger.folder("audit").root, ledger.store.sync
    added = write_data_file(root, audit_rows([record]), bounds=AUDIT_BOUNDS, sync=sync)
    ledger.commit("audit", [added], [file], operation="MEND")


# ---- tables whose log can't be read

# Each of these is useless without the other.
MATCH_TABLES = frozenset({"matches", "coverage"})


def is_derived(epoch: Epoch, name: str) -> bool:
    """Return True for tables that follow from the rows: matches, coverage, closures, and the
    combinations and joins of composites."""
    if name.startswith((STEM, JOINS)):
        return stream_of(name) in epoch.composites
    return name in MATCH_TABLES or name == "closures"


def restart_table(store: Store, fence: Fence, epoch: Epoch, name: str, version: int) -> Snapshot:
    """Empty a derived table, whatever its log says, and return its snapshot.

    `version` is the last version that a reader may know.
    """
    folder = store.table(name)
    if name.startswith(JOINS):
        return fence.restart(folder, joins_table(stream_of(name)), version)
    if name.startswith(STEM):
        legs = len(epoch.composites[stream_of(name)].highs)
        return fence.restart(folder, combinations_table(stream_of(name), legs), version)
    return fence.restart(folder, system_table(name), version)


def rederive(ledger: Ledger, names: Iterable[str]) -> None:
    """Let later work derive the contents of tables that were emptied."""
    names = set(names)
    for composite_id in {stream_of(name) for name in names if name.startswith((STEM, JOINS))}:
        forget_composite(ledger, composite_id)
    if "closures" in names:
        _mark_all_unclosed(ledger)
    if not MATCH_TABLES.isdisjoint(names):
        log.error("the coverage is damaged; all rows are matched again")
        restart_coverage(ledger)


def forget_closures(ledger: Ledger) -> None:
    """Drop all closures, which are derived again. The caller publishes an epoch."""
    ledger.commit("closures", (), ledger.files("closures"), operation="FORGET")
    _mark_all_unclosed(ledger)


def _mark_all_unclosed(ledger: Ledger) -> None:
    for stream in ledger.state.streams.values():
        if stream.schema.key and stem_name(stream.id) in ledger.tables:
            ledger.mark_unclosed(stream.id)


def _restart_damaged(ledger: Ledger, name: str) -> None:
    """Empty a derived table and derive it again, given a damaged file of its Delta log."""
    table, _, _ = name.partition("/_delta_log/")
    if table not in ledger.tables or not is_derived(ledger.epoch, table):
        raise _irreparable(name)
    log.error("%s is damaged; the table is derived again", name)
    version = ledger.tables[table].version
    ledger.tables[table] = restart_table(ledger.store, ledger.fence, ledger.epoch, table, version)
    rederive(ledger, [table])
    ledger.publish("mend")


# ---- matches and coverage


def forget_matches(ledger: Ledger, stream_id: int, row_hi: int) -> None:
    """Drop the matches of rows below `row_hi`, and of as many more that no file is split. Back-fill
    matches those rows again."""
    files = [
        file
        for file in ledger.files("matches")
        if file.partition["stream_id"] == str(stream_id) and file.low
    ]
    removed = [file for file in files if file.low["lo"] < row_hi]
    # A removed file may have pieces above `row_hi`: then all rows up to its end are matched again.
    while (reach := max((file.high["hi"] for file in removed), default=row_hi)) > row_hi:
        row_hi = reach
        removed = [file for file in files if file.low["lo"] < row_hi]
    ledger.coverage.raise_to(stream_id, row_hi)
    ledger.commit("matches", (), removed, operation="MEND")
    write_coverage(ledger, "MEND")


def restart_coverage(ledger: Ledger, kind: str = "mend") -> None:
    """Drop all matches and restart the coverage, so that back-fill matches all rows again. Publish
    an epoch of this kind."""
    coverage, (_, predicates) = Cohorts(), ledger.state.columns
    for stream_id in filter(ledger.is_live, (*ledger.state.streams, *ledger.composites)):
        ids = np.sort(predicates.of_stream(stream_id))
        # Ids between those of a stream belong to others, so one range holds all of them.
        if len(ids):
            # A cohort that begins at the next row id has been matched with no row.
            high = ledger.high(stream_id)
            cohort = Cohort.since(int(ids[0]), int(ids[-1]) + 1, high)
            coverage.start(stream_id, cohort, ledger.state.quarantine.of_stream(stream_id))
    ledger.coverage = coverage
    ledger.commit("matches", (), ledger.files("matches"), operation="MEND")
    write_coverage(ledger, "MEND")
    ledger.publish(kind)


def load_coverage(ledger: Ledger) -> None:
    """Read the coverage from its table, or restart it if the table is damaged."""
    folder = ledger.folder("coverage")
    try:
        ledger.coverage = Cohorts.load(read_files(folder, ledger.tables["coverage"], COVERAGE))
    except (CorruptStore, FileNotFoundError):
        log.error("the coverage is damaged; all rows are matched again")
        restart_coverage(ledger)


def write_coverage(ledger: Ledger, operation: str) -> None:
    """Write the whole coverage table: appended rows can only add to it."""
    table, folder = ledger.coverage.table(), ledger.folder("coverage")
    sync = ledger.store.sync
    added = [write_data_file(folder.root, table, sync=sync)] if table.num_rows else []
    ledger.commit("coverage", added, ledger.files("coverage"), operation=operation)


# ---- tables that an engine has in memory


def _write_from_memory(ledger: Ledger, name: str) -> None:
    """Write a newest-wins table from memory. The ledger must be at its epoch."""
    state = ledger.state
    registrations, _ = state.columns
    handles = [handle for handle in registrations if registrations[handle].contact]
    everything = Touched(
        streams=set(state.streams),
        views=set(state.views),
        registrations=set(registrations),
        predicates=set(state.predicates),
        publishers=set(state.publishers),
        leases={*handles, *state.leases.expired},
        composites=set(state.composites),
        access=set(state.access.ids()),
    )
    table = changed_rows(state, everything, state.position).get(name)
    root, sync = ledger.folder(name).root, ledger.store.sync
    added = [] if table is None else [write_data_file(root, table, sync=sync)]
    ledger.commit(name, added, ledger.files(name), operation="MEND", data_change=False)


# ---- combinations


def _drop_combinations(ledger: Ledger, table: str, file: DataFile) -> None:
    """Forget the combinations of a composite, which are found again; of an ended one, the file."""
    if stream_of(table) in ledger.composites:
        forget_composite(ledger, stream_of(table))
    else:
        ledger.commit(table, (), [file], operation="MEND")


# ---- rows


def _mend_rows(ledger: Ledger, stream_id: int, file: DataFile, name: str) -> None:
    """Restore the rows of a damaged file from the log, or note a hole; publish either."""
    rows = _from_log(ledger, stream_id, file)
    if rows is None:
        hole = Hole(
            stream_id,
            file.low["_row_id"],
            file.high["_row_id"] + 1,
            file.low.get("_ts"),
            file.high.get("_ts"),
            name,
        )
        ledger.state.losses = ledger.state.losses.lose(hole)
        # The history may hold rows of the lost file. It is read again without them.
        ledger.histories.forget(stream_id)
        log.error("LOST: %s", hole.text(ledger.state.streams[stream_id].schema.name))
    else:
        log.error("%s is damaged; its rows were still in the log", name)
        written = insert(job_of(ledger), stream_id, rows)
        added = by_table(written)[stem_name(stream_id)]
        ledger.commit(stem_name(stream_id), added, [file], operation="MEND", data_change=False)
    ledger.publish("mend")


def _from_log(ledger: Ledger, stream_id: int, file: DataFile) -> pa.Table | None:
    """Return the rows of a damaged file, if the log still has all of them; None otherwise."""
    schema, events = ledger.state.streams[stream_id].schema, ledger.store.log
    ends = (Position.unpack(side["_position"]).version for side in (file.low, file.high))
    # The versions of the log that the file's rows came from.
    first, last = ends
    batches = []
    for version in range(first, last + 1):
        try:
            entries, source = events.read(version), events.file(version)
        except (LogTrimmed, CorruptStore):
            return None
        for entry in entries:
            event = entry.event
            if isinstance(event, Data) and event.rows and event.stream_id == stream_id:
                rows = rows_of(entry, event, schema, source.path if source else "")
                if isinstance(rows, Hole):
                    return None
                batches.append(rows)
    return _rows_of_file(file, batches)


def _rows_of_file(file: DataFile, batches: Iterable[pa.RecordBatch]) -> pa.Table | None:
    batches = list(batches)
    if not batches:
        return None
    table = pa.Table.from_batches(batches)
    ids = table.column("_row_id").to_numpy()
    inside = table.filter(pa.array((ids >= file.low["_row_id"]) & (ids <= file.high["_row_id"])))
    # Retention may have thinned the file. The log does not say which rows it removed.
    return inside if inside.num_rows == file.rows else None


# ---- holes


def check_holes(ledger: Ledger) -> bool:
    """Remove the files of accepted holes, and end the holes whose file was restored.

    Return True if it published an epoch.
    """
    changed = False
    for hole in ledger.state.losses.holes:
        table, _, path = hole.file.rpartition("/")
        file = ledger.tables[table].files.get(path) if table in ledger.tables else None
        if file is None:
            continue
        if ledger.state.losses.is_accepted(hole):
            ledger.commit(table, (), [file], operation="ACCEPT")
            changed = True
            continue
        try:
            reader(ledger.folder(table).root, file).check()
        except (CorruptStore, FileNotFoundError):
            continue
        _end_hole(ledger, hole)
        changed = True
    if changed:
        ledger.publish("mend")
    return changed


def _end_hole(ledger: Ledger, hole: Hole) -> None:
    """End a hole whose rows were restored. Back-fill matches them with the queries that were
    registered since."""
    log.warning("%s was restored; its rows are available again", hole.file)
    ledger.state.losses = ledger.state.losses.only(lambda entry: entry != hole)
    if ledger.state.streams[hole.stream_id].schema.key:
        # Closures that were derived while the rows were lost do not have theirs.
        ledger.histories.forget(hole.stream_id)
        ledger.mark_unclosed(hole.stream_id)
    for composite_id, composite in ledger.state.composites.items():
        if hole.stream_id in composite.legs and composite_id in ledger.composites:
            forget_composite(ledger, composite_id)
    forget_matches(ledger, hole.stream_id, hole.row_hi)
