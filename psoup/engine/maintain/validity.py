"""Rows whose validity ended before the retention, in the files of a stem."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int64s
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import group_bounds, reader


def ended_rows(root: Path, files: Iterable[DataFile], ends: str, cut: int) -> Int64s:
    """Return the ascending ids of the rows that were valid until an instant of the column `ends`
    that is not later than `cut`. Row groups in which none was are not read."""
    ids = [np.empty(0, np.int64)]
    for file in files:
        content = reader(root, file)
        groups = [
            group
            for group in range(content.metadata.num_row_groups)
            if group_bounds(content.metadata, group, ends)[0] <= cut
        ]
        if groups:
            rows = content.row_groups(groups, ["_row_id", ends])
            # NULL is for ever, and never true here.
            ended = pc.less_equal(rows.column(ends).cast(pa.int64()), cut)
            ids.append(rows.filter(ended).column("_row_id").to_numpy())
    return np.sort(np.concatenate(ids))
