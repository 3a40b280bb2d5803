"""The removal of everything that follows from rows and queries, so that the engine derives it
again: matches, coverage, combinations and closures."""

from __future__ import annotations

from pathlib import Path

from psoup.engine.composites.boxes import forget_composite
from psoup.engine.ledger import Ledger, stem_name
from psoup.engine.maintain.rewriting import rewrite_stem
from psoup.engine.ownership.lock import EngineLock
from psoup.engine.repair.mend import forget_closures, restart_coverage
from psoup.engine.repair.recover import open_ledger
from psoup.store import Store
from psoup.store.backup.making import NoProgress, Progress


def rebuild(root: Path, *, rows: bool = False, progress: Progress | None = None) -> None:
    """Drop what is derived in the store in a folder, by epochs. Servers may run: they compute what
    is not there. With `rows`, then write all rows again with the columns that their streams have
    now. Raise SecondEngine if an engine runs, and StoreError.

    Each epoch is right by itself, so a rebuild that was killed is run again, or left as it is.
    """
    store = Store.open(root)
    lock = EngineLock(root)
    lock.acquire()
    try:
        ledger = open_ledger(store)
        for composite_id in list(ledger.composites):
            forget_composite(ledger, composite_id)
        forget_closures(ledger)
        restart_coverage(ledger, "rebuild")
        if rows:
            _rewrite_rows(ledger, progress or NoProgress())
    finally:
        lock.release()


def _rewrite_rows(ledger: Ledger, progress: Progress) -> None:
    live = [
        stream.id
        for stream in ledger.state.streams.values()
        if not stream.dropped and stem_name(stream.id) in ledger.tables
    ]
    progress.begin(sum(file.size for id_ in live for file in ledger.files(stem_name(id_))))
    for stream_id in live:
        rewrite_stem(ledger, stream_id, kind="rewrite", progress=progress.advance)
