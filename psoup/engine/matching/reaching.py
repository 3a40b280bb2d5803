"""The oldest rows that the windows of predicates reach, as row ids: they decide what back-fill
matches, and which matches can be dropped."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from datastem.blocks import BLOCK_ROWS
from datastem.instants import FOR_EVER
from psoup.engine.ledger import Ledger, stem_name
from psoup.engine.matching.coverage import Cohort, Want
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import group_bounds, reader
from psoup.store.errors import CorruptStore
from psoup.store.interest import RowFloors

# A cohort is split into at most this many ranges. A stream with more cohorts than this splits none.
_MAX_RANGES, MAX_COHORTS = 256, 1024
_MAX_CACHED_FILES = 4096


class Reaching:
    """Turns the interest in streams into row ids, by the bounds of their files.

    Its caches depend on files only, which never change.
    """

    def __init__(self) -> None:
        # By stream: the version of its stem, the floors by file, and large files by first row.
        self._floors: dict[int, tuple[int, RowFloors, dict[int, DataFile]]] = {}
        self._groups: dict[str, RowFloors] = {}

    def wants(self, ledger: Ledger, stream_id: int) -> list[Want]:
        """Return the predicates of a stream, or of a composite, that still have to be matched with
        rows that one of their windows can reach."""
        floor = ledger.floor(stream_id)
        cohorts = [
            cohort for cohort in ledger.coverage.cohorts(stream_id) if cohort.gaps_above(floor)
        ]
        top = max((cohort.gaps[-1][1] for cohort in cohorts), default=0)
        if not cohorts or not self._can_reach(ledger, stream_id, top):
            return []
        return [
            want for cohort in cohorts for want in self._wants(ledger, stream_id, cohort, floor)
        ]

    def _can_reach(self, ledger: Ledger, stream_id: int, row: int) -> bool:
        """Return True if any window of a stream may hold rows with a lower id."""
        if stream_id not in ledger.state.streams:
            return True
        latest = self._rows(ledger, stream_id)[1].latest_below(row)
        if latest is None:
            return False
        return ledger.interests.can_reach(ledger.state, stream_id, latest)

    def level(self, ledger: Ledger, stream_id: int, lo: int, hi: int) -> int:
        """Return a row id below which no window of the predicates `[lo, hi)` reaches; 0 if they
        reach all rows."""
        if stream_id not in ledger.state.streams:
            return 0
        begin = ledger.interests.begin(ledger.state, stream_id, lo, hi)
        return self._level(ledger, stream_id, begin)

    def _level(self, ledger: Ledger, stream_id: int, begin: int) -> int:
        _, floors, files = self._rows(ledger, stream_id)
        row = floors.floor(begin)
        if row in files:
            row = self._inside(ledger, stream_id, files[row]).floor(begin)
        # From the first row on means all rows, also after retention has raised the first one.
        return 0 if row <= floors.least else row

    def _wants(self, ledger: Ledger, stream_id: int, cohort: Cohort, floor: int) -> Iterator[Want]:
        """Yield the wants of a cohort. For each gap that is one for each range of predicates that
        reach equally far, or one for all if there are too many ranges."""
        lo, hi = cohort.lo, cohort.hi
        furthest = self.level(ledger, stream_id, lo, hi)
        gaps = [gap for gap in cohort.gaps_above(floor) if furthest < gap[1]]
        # The usual case once back-fill is done. The begin of each predicate costs much more.
        if not gaps:
            return
        if stream_id not in ledger.state.streams:
            yield from (Want(lo, hi, end, max(begin, furthest)) for begin, end in gaps)
            return
        ids, begins = ledger.interests.begins(ledger.state, stream_id, lo, hi)
        # Per predicate: where its windows begin, and the row id that this is.
        different, inverse = np.unique(begins, return_inverse=True)
        levels = [self._level(ledger, stream_id, int(begin)) for begin in different]
        targets = np.minimum(np.array(levels, np.int64), gaps[-1][1])[inverse]
        # The places at which a range of predicates with another target begins.
        edges = np.flatnonzero(np.diff(targets)) + 1
        is_crowded = len(ledger.coverage.cohorts(stream_id)) > MAX_COHORTS
        if is_crowded or len(edges) >= _MAX_RANGES:
            yield from (Want(lo, hi, end, max(begin, furthest)) for begin, end in gaps)
            return
        # Ids that the stream does not have lie within some range, and do no harm there.
        cuts = [lo, *ids[edges].tolist(), hi]
        for place, (first, stop) in enumerate(zip(cuts[:-1], cuts[1:], strict=True)):
            # All predicates of a range have the target of the first.
            target = int(targets[edges[place - 1] if place else 0])
            for begin, end in gaps:
                if target < end:
                    yield Want(first, stop, end, max(begin, target))

    def _rows(self, ledger: Ledger, stream_id: int) -> tuple[int, RowFloors, dict[int, DataFile]]:
        """Return the version of a stream's stem, its floors by file, and the files of more than a
        block by their first row."""
        name = stem_name(stream_id)
        version = ledger.tables[name].version
        cached = self._floors.get(stream_id)
        high = ledger.high(stream_id)
        if cached is None or cached[0] != version or cached[1].high != high:
            files = [file for file in ledger.files(name) if file.low]
            # A file without bounds of its ts counts as reached by every window.
            runs = [(file.low["_row_id"], file.high.get("_ts", FOR_EVER)) for file in files]
            large = {file.low["_row_id"]: file for file in files if file.rows > BLOCK_ROWS}
            cached = version, RowFloors.of(runs, high), large
            self._floors[stream_id] = cached
        return cached

    def _inside(self, ledger: Ledger, stream_id: int, file: DataFile) -> RowFloors:
        """Return the floors within a file, by its row groups."""
        if file.path not in self._groups:
            if len(self._groups) >= _MAX_CACHED_FILES:
                self._groups.clear()
            self._groups[file.path] = _by_groups(ledger, stream_id, file)
        return self._groups[file.path]


def _by_groups(ledger: Ledger, stream_id: int, file: DataFile) -> RowFloors:
    first, high = file.low["_row_id"], file.high["_row_id"] + 1
    try:
        metadata = reader(ledger.folder(stem_name(stream_id)).root, file).metadata
    except (CorruptStore, FileNotFoundError):
        # Reads of its rows report the damage; here the whole file counts as reached.
        return RowFloors.of([(first, FOR_EVER)], high)
    runs = [
        (group_bounds(metadata, group, "_row_id")[0], group_bounds(metadata, group, "_ts")[1])
        for group in range(metadata.num_row_groups)
    ]
    return RowFloors.of(runs, high)
