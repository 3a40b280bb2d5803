"""Housekeeping of the table `reached`: many small files become one, without heartbeats whose
stream would not retain a row of their ts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from psoup.engine.ledger import Ledger
from psoup.engine.maintain.retain import retained_after
from psoup.engine.settings import EngineSettings
from psoup.store.delta.files import write_data_file
from psoup.store.layout import REACHED, REACHED_BOUNDS
from psoup.store.tables import read_files

_NAME = "reached"
# Beyond so many rows there is one file more.
_ROWS_PER_FILE = 1000


class ThinHeartbeats:
    """Rewrites the table when it has many files, by stream and position."""

    def __init__(self, settings: EngineSettings) -> None:
        self._files = settings.compact_files
        self._grace = int(settings.grace * 1_000_000)

    def advance(self, ledger: Ledger) -> bool:
        files = ledger.files(_NAME)
        rows = sum(file.rows for file in files)
        if len(files) <= max(self._files, rows // _ROWS_PER_FILE):
            return False
        folder, sync = ledger.folder(_NAME), ledger.store.sync
        table = self._retained(ledger, read_files(folder, ledger.tables[_NAME], REACHED))
        table = table.sort_by([("stream_id", "ascending"), ("position", "ascending")])
        added = []
        if table.num_rows:
            added = [write_data_file(folder.root, table, bounds=REACHED_BOUNDS, sync=sync)]
        ledger.commit(_NAME, added, files, operation="COMPACT")
        ledger.publish("compact")
        return True

    def _retained(self, ledger: Ledger, table: pa.Table) -> pa.Table:
        streams = table.column("stream_id").to_numpy()
        reached = table.column("reached").cast(pa.int64()).to_numpy()
        kept = np.ones(len(streams), np.bool_)
        for stream_id in np.unique(streams).tolist():
            stream = ledger.state.streams[stream_id]
            limit = retained_after(ledger, stream, self._grace)
            if stream.dropped:
                kept &= streams != stream_id
            elif limit is not None:
                kept &= (streams != stream_id) | (reached > limit)
        return table if kept.all() else table.filter(pa.array(kept))
