"""Starting from whatever the last engine left.

The last epoch is the truth. What was committed above the versions it names is taken back by one
more commit each, and an epoch of its own makes that the new truth. Doing it twice, or being killed
in the middle, changes nothing: row ids and positions come from the log.
"""

from __future__ import annotations

import logging

from psoup.engine.coverage import Cohorts
from psoup.engine.ledger import STEM, Ledger, only_engine, stem_name
from psoup.engine.mend import load_coverage
from psoup.store.delta import DeltaFolder, Snapshot
from psoup.store.epochs import Epoch
from psoup.store.format import make_known, with_checks
from psoup.store.layout import ENGINE_TABLES
from psoup.store.store import Store

log = logging.getLogger(__name__)


def open_ledger(store: Store) -> Ledger:
    """The engine's tables exactly as the last epoch names them.

    Raises CorruptStore where a table has a hole, or the log ends before what the epoch consumed.
    """
    for folder in (store.log.folder, store.epochs.folder, *_folders(store)):
        folder.mend()
    make_known(store.log.folder)
    epochs_version, epoch = store.epochs.latest()
    store.log.prove_end(epoch.log_version)
    named = _named(store, epoch)
    tables = {name: _roll_back(store.table(name), at, store.sync) for name, at in named.items()}
    ledger = Ledger(store, epoch, epochs_version, tables, store.state(epoch), Cohorts())
    load_coverage(ledger)
    if any(tables[name].version != version for name, version in _versions(epoch).items()):
        log.info("took back what an unfinished step had written")
        ledger.publish("restore")
    return ledger


def _versions(epoch: Epoch) -> dict[str, int]:
    stems = {stem_name(stream_id): mark.version for stream_id, mark in epoch.streams.items()}
    return {name: epoch.versions.get(name, 0) for name in ENGINE_TABLES} | stems


def _named(store: Store, epoch: Epoch) -> dict[str, Snapshot]:
    named = {name: store.snapshot(epoch, name) for name in ENGINE_TABLES}
    for stream_id in epoch.streams:
        named[stem_name(stream_id)] = store.stem_snapshot(epoch, stream_id)
    for stem in _stems(store):
        named.setdefault(f"{STEM}{stem.root.name}", Snapshot(0))
    return named


def _folders(store: Store) -> list[DeltaFolder]:
    return [*map(store.table, ENGINE_TABLES), *_stems(store)]


def _stems(store: Store) -> list[DeltaFolder]:
    """The stems on disk. A folder without a commit is none yet: its maker was killed."""
    names = (f"{STEM}{log.parent.name}" for log in (store.root / STEM).glob("*/_delta_log"))
    found = (store.table(name) for name in names)
    return [stem for stem in found if stem.exists]


def _roll_back(folder: DeltaFolder, named: Snapshot, sync: bool) -> Snapshot:
    newest = folder.snapshot()
    if newest.version == named.version or newest.files.keys() == named.files.keys():
        return newest
    extra = [file for path, file in newest.files.items() if path not in named.files]
    missing = [
        with_checks(folder.root, file)
        for path, file in named.files.items()
        if path not in newest.files
    ]
    version = newest.version + 1
    with only_engine():
        folder.commit(version, missing, extra, operation="RESTORE", sync=sync)
    return Snapshot(version, named.files)
