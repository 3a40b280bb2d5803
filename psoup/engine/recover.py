"""Starting from whatever the last engine left.

The last epoch is the truth. What was committed above the versions it names is taken back by one
more commit each, and an epoch of its own makes that the new truth. Doing it twice, or being killed
in the middle, changes nothing: row ids and positions come from the log.
"""

from __future__ import annotations

import logging

from psoup.engine.coverage import Cohorts
from psoup.engine.ledger import JOINS, STEM, Ledger, joins_name, only_engine, stem_name
from psoup.engine.mend import COVERING, begin_again, derive_again, is_derived, load_coverage
from psoup.store.delta import DeltaFolder, Snapshot
from psoup.store.epochs import Epoch
from psoup.store.errors import CorruptStore, LogTrimmed
from psoup.store.layout import ENGINE_TABLES
from psoup.store.store import Store

log = logging.getLogger(__name__)


def open_ledger(store: Store) -> Ledger:
    """The engine's tables exactly as the last epoch names them.

    Raise CorruptStore if a table that can't be derived again has a hole, or the log ends before
    what the epoch consumed.
    """
    for folder in (store.log.folder, store.epochs.folder, *_folders(store)):
        folder.mend()
    epochs_version, epoch = store.epochs.latest()
    store.log.prove_end(epoch.log_version)
    tables, restarted = _tables(store, epoch)
    ledger = Ledger(store, epoch, epochs_version, tables, store.state(epoch), Cohorts())
    if COVERING.isdisjoint(restarted):
        load_coverage(ledger)
    derive_again(ledger, restarted)
    if any(tables[name].version != version for name, version in _versions(ledger.epoch).items()):
        log.info("took back what an unfinished step had written")
        ledger.publish("restore")
    return ledger


def _tables(store: Store, epoch: Epoch) -> tuple[dict[str, Snapshot], list[str]]:
    """Return the tables as the epoch names them, and the names of derived ones that were begun
    again because their log can't be read. Remove those that no epoch names."""
    tables, restarted = dict[str, Snapshot](), list[str]()
    versions = _versions(epoch)
    for name in (*versions, *(name for name in _on_disk(store) if name not in versions)):
        folder, version = store.table(name), versions.get(name)
        try:
            at = Snapshot(0) if version is None else folder.snapshot(version)
            tables[name] = _roll_back(folder, at, store.sync)
        except (CorruptStore, LogTrimmed) as error:
            if version is None:
                log.error("%s; no epoch names the table, so it is removed", error)
                folder.remove()
            elif is_derived(epoch, name):
                log.error("%s; the table is begun again", error)
                tables[name] = begin_again(store, epoch, name, version)
                restarted.append(name)
            else:
                raise
    return tables, restarted


def _versions(epoch: Epoch) -> dict[str, int]:
    stems = {stem_name(stream_id): mark.version for stream_id, mark in epoch.streams.items()}
    stems |= {stem_name(one): mark.version for one, mark in epoch.composites.items()}
    joins = {joins_name(one): mark.joins_version for one, mark in epoch.composites.items()}
    return {name: epoch.versions.get(name, 0) for name in ENGINE_TABLES} | stems | joins


def _folders(store: Store) -> list[DeltaFolder]:
    return [store.table(name) for name in (*ENGINE_TABLES, *_on_disk(store))]


def _on_disk(store: Store) -> list[str]:
    """The names of stems and joins on disk. A folder without a commit is none yet: its maker was
    killed."""
    names = [
        f"{kind}{log.parent.name}"
        for kind in (STEM, JOINS)
        for log in (store.root / kind).glob("*/_delta_log")
    ]
    return [name for name in names if store.table(name).exists]


def _roll_back(folder: DeltaFolder, named: Snapshot, sync: bool) -> Snapshot:
    newest = folder.snapshot()
    if newest.version == named.version or newest.files.keys() == named.files.keys():
        return newest
    extra = [file for path, file in newest.files.items() if path not in named.files]
    missing = [file for path, file in named.files.items() if path not in newest.files]
    version = newest.version + 1
    with only_engine():
        folder.commit(version, missing, extra, operation="RESTORE", sync=sync)
    return Snapshot(version, named.files)
