"""Compaction of the driver's own tables: the newest row of each key, coverage in one piece."""

from __future__ import annotations

import pyarrow as pa

from psoup.engine.ledger import Ledger
from psoup.engine.settings import EngineSettings
from psoup.store.delta.files import write_data_file
from psoup.store.layout import TABLES
from psoup.store.tables import KEYS, read_newest

# A large table is rewritten less often: once for so many rows there is one file more.
_ROWS_PER_FILE = 1000


class Compact:
    def __init__(self, settings: EngineSettings) -> None:
        self._files = settings.compact_files

    def advance(self, ledger: Ledger) -> bool:
        for name in (*KEYS, "coverage"):
            files = ledger.files(name)
            rows = sum(file.rows for file in files)
            if len(files) > max(self._files, rows // _ROWS_PER_FILE):
                self._compact(ledger, name)
                return True
        return False

    def _compact(self, ledger: Ledger, name: str) -> None:
        table = _coverage(ledger) if name == "coverage" else _newest(ledger, name)
        folder, sync = ledger.folder(name), ledger.store.sync
        added = [write_data_file(folder.root, table, sync=sync)] if table.num_rows else []
        removed = ledger.files(name)
        ledger.commit(name, added, removed, operation="COMPACT", data_change=False)
        ledger.publish("compact")


def _newest(ledger: Ledger, name: str) -> pa.Table:
    return read_newest(ledger.folder(name), ledger.tables[name], TABLES[name])


def _coverage(ledger: Ledger) -> pa.Table:
    for stream_id in ledger.coverage.streams():
        if ledger.state.streams[stream_id].dropped:
            ledger.coverage.forget(stream_id)
    return ledger.coverage.table()
