"""Recovery: the start of an engine from the state in which the last one ended.

The last epoch is the truth. Commits above the versions it names are undone by one more commit for
each table, and another epoch names those. Doing it twice, or being killed in the middle, changes
nothing: row ids and positions come from the log.
"""

from __future__ import annotations

import logging

from psoup.engine.errors import SecondEngine
from psoup.engine.ledger import JOINS, STEM, Ledger, joins_name, only_engine, stem_name
from psoup.engine.matching.coverage import Cohorts
from psoup.engine.ownership.fence import Fence
from psoup.engine.repair.mend import (
    MATCH_TABLES,
    is_derived,
    load_coverage,
    rederive,
    restart_table,
)
from psoup.store.delta import DeltaFolder, Snapshot
from psoup.store.epochs import Epoch
from psoup.store.errors import CorruptStore, LogTrimmed
from psoup.store.layout import ENGINE_TABLES
from psoup.store.store import Store

log = logging.getLogger(__name__)

_ATTEMPTS = 4


def open_ledger(store: Store) -> Ledger:
    """Return the engine's tables exactly as the last epoch names them.

    Raise CorruptStore if a table that can't be derived again is damaged, or the log ends before the
    version that the epoch has consumed. Raise SecondEngine if another engine works on the store.
    """
    for attempt in range(_ATTEMPTS):
        version = store.epochs.folder.latest_version()
        try:
            return _open_ledger(store)
        except SecondEngine:
            # An engine that was taken over from may finish commits of its last step. No epoch can
            # name them: they are undone like those of an engine that ended.
            if attempt + 1 == _ATTEMPTS or not store.epochs.is_newest(version):
                raise
    raise AssertionError("unreachable")


def _open_ledger(store: Store) -> Ledger:
    # The one table that must be readable before it is known which epoch is the newest.
    store.epochs.folder.mend()
    epochs_version, epoch = store.epochs.latest()
    fence = Fence(store, epochs_version)
    for folder in (store.log.folder, *_folders(store)):
        fence.mend(folder)
    # If the log ended before the epoch's version, positions and row ids would be used twice.
    store.log.prove_end(epoch.log_version)
    tables, restarted = _tables(store, fence, epoch)
    ledger = Ledger(store, epoch, epochs_version, tables, store.state(epoch), Cohorts())
    # If one of them was emptied, `rederive` restarts the coverage instead.
    if MATCH_TABLES.isdisjoint(restarted):
        load_coverage(ledger)
    rederive(ledger, restarted)
    if any(tables[name].version != version for name, version in _versions(ledger.epoch).items()):
        log.info("undid what an unfinished step had written")
        ledger.publish("restore")
    return ledger


def _tables(store: Store, fence: Fence, epoch: Epoch) -> tuple[dict[str, Snapshot], list[str]]:
    """Return the tables as the epoch names them, and the names of derived ones that were emptied
    because their log can't be read. Remove unreadable tables that no epoch names."""
    tables, restarted = dict[str, Snapshot](), list[str]()
    versions = _versions(epoch)
    for name in (*versions, *(name for name in _on_disk(store) if name not in versions)):
        folder, version = store.table(name), versions.get(name)
        try:
            # An unfinished step made it, or its stream or composite has ended: it is to be empty.
            at = Snapshot(0) if version is None else folder.snapshot(version)
            tables[name] = _roll_back(folder, at, store.sync)
        except (CorruptStore, LogTrimmed) as error:
            if version is None:
                log.error("%s; no epoch names the table, so it is removed", error)
                fence.remove_table(folder)
            elif is_derived(epoch, name):
                log.error("%s; the table is derived again", error)
                tables[name] = restart_table(store, fence, epoch, name, version)
                restarted.append(name)
            else:
                raise
    return tables, restarted


def _versions(epoch: Epoch) -> dict[str, int]:
    """Return the version of every table that an epoch names."""
    stems = {stem_name(stream_id): mark.version for stream_id, mark in epoch.streams.items()}
    stems |= {
        stem_name(composite_id): mark.version for composite_id, mark in epoch.composites.items()
    }
    joins = {
        joins_name(composite_id): mark.joins_version
        for composite_id, mark in epoch.composites.items()
    }
    return {name: epoch.versions.get(name, 0) for name in ENGINE_TABLES} | stems | joins


def _folders(store: Store) -> list[DeltaFolder]:
    return [store.table(name) for name in (*ENGINE_TABLES, *_on_disk(store))]


def _on_disk(store: Store) -> list[str]:
    """Return the names of stems and joins on disk. A folder without a commit is not a table: the
    engine was killed while it made it."""
    names = [
        f"{kind}{log.parent.name}"
        for kind in (STEM, JOINS)
        for log in (store.root / kind).glob("*/_delta_log")
    ]
    return [name for name in names if store.table(name).exists]


def _roll_back(folder: DeltaFolder, named: Snapshot, sync: bool) -> Snapshot:
    """Undo the commits after a snapshot by one more commit; return the new snapshot."""
    newest = folder.snapshot()
    # Equal files need no commit: `open_ledger` publishes an epoch with the newest version.
    if newest.version == named.version or newest.files.keys() == named.files.keys():
        return newest
    extra = [file for path, file in newest.files.items() if path not in named.files]
    missing = [file for path, file in named.files.items() if path not in newest.files]
    version = newest.version + 1
    with only_engine():
        folder.commit(version, missing, extra, operation="RESTORE", sync=sync)
    return Snapshot(version, named.files)
