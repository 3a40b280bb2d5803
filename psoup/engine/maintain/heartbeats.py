"""The chore of the table `reached`: many small files become one, without heartbeats that are older
than their stream's retention."""

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
# The table may have one more file for each of this many rows.
_ROWS_PER_FILE = 1000


class ThinHeartbeats:
    """The chore that rewrites the table, sorted by stream and position, when it has many files."""

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
        # Parallel arrays, one entry per heartbeat: the stream, and the instant it was moved to.
        streams = table.column("stream_id").to_numpy()
        reached = table.column("reached").cast(pa.int64()).to_numpy()
        retained = np.ones(len(streams), np.bool_)
        for stream_id in np.unique(streams).tolist():
            stream = ledger.state.streams[stream_id]
            limit = retained_after(ledger, stream, self._grace)
            if stream.dropped:
                retained &= streams != stream_id
            elif limit is not None:
                retained &= (streams != stream_id) | (reached > limit)
        return table if retained.all() else table.filter(pa.array(retained))
