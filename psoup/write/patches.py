"""Patches that were completed with the current rows of their stream keys, and when these count.

The rows are read before the batch is proposed. If one of them is no longer current then, the batch
has to be completed again: also if an earlier batch of the same commit replaced it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from datastem.arrays import Int64s, Mask
from datastem.errors import RowError
from datastem.keyed_rows import KeyedRows, SortedRuns
from datastem.schema import NO_ROW, OP, OP_ROW, StreamSchema
from psoup.errors import NoCurrentRow
from psoup.write.conditions import ProposedRows, check_times, later_rows


class Outdated(Exception):
    """A row that a patch was completed with is not the current one any more: the caller completes
    it again."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What the patches of a batch were completed with.

    `places` are those of the patches. `last` are the last rows of their keys among the rows with
    ids below `high`, each with the id -1 if there is none; a patch can't be completed with those
    that are not `usable`: a delete, or a row that the caller may not see. `rows` are those of the
    completed batch, None if it could not be completed. `problem` is why a batch whose rows are all
    usable is refused nevertheless.
    """

    places: Int64s
    last: KeyedRows
    high: int
    usable: Mask
    rows: ProposedRows | None
    problem: RowError | None = None

    def check(self, schema: StreamSchema, newest: SortedRuns) -> None:
        """Raise Outdated if the batch must be completed again, NoCurrentRow and NotCurrent for the
        first patch that is refused. `newest` must have all rows of the stream from `high` on."""
        if (later_rows(self.last, newest).ids != self.last.ids).any():
            raise Outdated
        missing = np.flatnonzero(~self.usable)
        if len(missing):
            place = int(self.places[missing[0]])
            raise NoCurrentRow(
                f"row {place}: its key has no current row that this caller may see, so there is "
                "nothing to patch",
                row=place,
                field=OP,
                got="patch",
                hint="send the whole row instead",
            )
        if self.problem is not None:
            raise self.problem
        assert self.rows is not None, "a batch of which all rows are usable is completed"
        if self.rows.ts is not None:
            ts = self.rows.ts[self.places]
            check_times(schema, self.places, ts, self._last_of_batch(ts))

    def _last_of_batch(self, ts: Int64s) -> KeyedRows:
        """Return the last rows of the keys as each patch finds them: later by an earlier patch of
        the same batch."""
        order = np.lexsort((self.places, self.last.keys))
        keys, times = self.last.keys[order], self.last.ts[order]
        # A patch is no earlier than the one before it, so that one is the last of the key.
        follows = np.flatnonzero(keys[1:] == keys[:-1]) + 1
        times[follows] = np.maximum(times[follows], ts[order][follows - 1])
        by_place = np.empty_like(times)
        by_place[order] = times
        return replace(self.last, ts=by_place)


def usable_rows(last: KeyedRows, hidden: Int64s) -> Mask:
    """Return a mask of the last rows of keys that a patch can be completed with."""
    usable = (last.ids != NO_ROW) & (last.ops == OP_ROW) & ~np.isin(last.ids, hidden)
    return np.asarray(usable)
