"""Copies of answers that consist of rows: what of the target the client does not have.

The rows of a copy are told by its mark alone, whoever holds it, so the difference of two marks
needs no log: rows with newer ids, rows that enter later than was sent ahead; and where a window
counts rows, those that it has since left behind. What has merely expired is never mentioned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from datastem.blocks import Int64s, Part
from psoup.server.choosing import Choice, Horizon
from psoup.server.core import Core
from psoup.server.invoke import NO_ROWS, Plan, Selection, rows_at
from psoup.server.matcher import Matcher, Work
from psoup.server.planning import matcher_of
from psoup.server.sync.copier import Difference
from psoup.server.sync.jobs import Job
from psoup.server.sync.parts import Chunk
from psoup.server.sync.tokens import Claim, Mark
from psoup.v1 import psoup_pb2 as pb
from querystem.shape import project
from querystem.sortkeys import sort_keys
from results.checksum import Digest
from results.idruns import Mask, member, to_runs
from results.visibility import entered, held, leaving, visible
from results.window import TimeWindow

# No row of a copy is smaller than this.
_LEAST_ROW = 40
_RUN_BYTES = 3
_COLUMNS_BYTES = 200


@dataclass(frozen=True)
class RowCopier:
    """For one plan; the job's target may be earlier than it, never later."""

    core: Core
    plan: Plan
    job: Job

    # ---- the difference

    def difference(self) -> Difference:
        if self._forgotten:
            return self._without_copy(pb.SYNC_REASON_RETENTION)
        found = _Count(self.job.repair.have, self._counted is not None)
        for ids, ts, _, _ in self._target_rows():
            found.add(ids, self._lacking(ids, ts))
        whole = self.job.claim.copy is None
        removed = np.empty(0, np.int64) if whole else self.job.unsent(self._removed(found))
        reason = self.job.reason
        if not whole and not self.job.continued and self._is_smaller_whole(found, removed):
            return self._without_copy(pb.SYNC_REASON_SMALLER)
        return Difference(
            self.job,
            whole,
            reason,
            removed,
            found.lacking,
            found.rows,
            found.digest.content,
            self._good_until,
        )

    def _without_copy(self, reason: pb.SyncReason) -> Difference:
        """As if the client had nothing."""
        fresh = replace(self.job, claim=Claim(), reason=reason)
        return self.renewed(self.plan, fresh).difference()

    def _is_smaller_whole(self, found: _Count, removed: Int64s) -> bool:
        row = _LEAST_ROW + 8 * len(self.plan.query.outputs)
        kept = (found.rows - found.lacking) * row + _COLUMNS_BYTES
        return _RUN_BYTES * len(to_runs(removed)) > kept

    def _removed(self, found: _Count) -> Int64s:
        """Rows of the copy that are no longer among the target's, and have not expired."""
        gone = self._counted
        if gone is not None:
            gone = gone[~member(gone, found.all_ids)]
        have = found.strangers
        parts = [part for part in (gone, have) if part is not None]
        return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)

    @property
    def _good_until(self) -> int | None:
        horizon = self.job.target.horizon
        return None if horizon is None else horizon + 1

    # ---- the rows

    def renewed(self, plan: Plan, job: Job) -> RowCopier:
        return RowCopier(self.core, plan, job)

    def piece(self, cursor: int, limit: int) -> Chunk | None:
        chunks: list[Chunk] = []
        left = limit
        for ids, ts, part, places in self._target_rows(cursor):
            wanted = self._lacking(ids, ts)
            chosen = places[wanted][: max(1, left // _LEAST_ROW)]
            if not len(chosen):
                continue
            whole = self._chunk(part, chosen)
            chunks.append(whole.cut(left))
            left -= chunks[-1].nbytes
            if left <= 0 or len(chunks[-1].ids) < len(places[wanted]):
                break
        return _joined(chunks) if chunks else None

    def _chunk(self, part: Part, places: Int64s) -> Chunk:
        plan = self.plan
        ids, ts = part.ids[places], part.ts[places]
        rows = self._selection.gather([(part, places)])
        window = plan.window
        retain = None if plan.keyed is not None else plan.schema.retain
        if isinstance(window, TimeWindow):
            begin, until = visible(window, ts, retain)
            slid = window.slide is not None
        else:
            begin, until, slid = ts, leaving(ts, retain), False
        keys = sort_keys(plan.query, rows, moments=slid)
        return Chunk(ids, begin, until, keys, project(plan.query, rows))

    def _target_rows(self, low: int = 0) -> Iterator[tuple[Int64s, Int64s, Part, Int64s]]:
        """Ids and ts of the target's rows from `low` on, and where they stand in a part."""
        selection = self._selection
        region = selection.choice.region
        ids = selection.choice.ids
        left = None if ids is None else ids[np.searchsorted(ids, low) :]
        choice = Choice(replace(region, lo=max(region.lo, low)), left)
        rest = replace(selection, choice=choice)
        for part in rest.parts():
            places = rest.places(part)
            if len(places):
                yield part.ids[places], part.ts[places], part, places

    @cached_property
    def _selection(self) -> Selection:
        return Selection(self.plan, self._matcher, self._choice(self.job.target))

    @cached_property
    def _matcher(self) -> Matcher:
        return matcher_of(self.core, self.plan, Work(self.core.settings.compute_rows), Matcher)

    # ---- what the client has

    def _lacking(self, ids: Int64s, ts: Int64s) -> Mask:
        claim, repair = self.job.claim, self.job.repair
        had = self._had(claim.copy, ids, ts)
        if repair.have is not None:
            had &= member(ids, repair.have)
        if len(repair.resend):
            had &= ~member(ids, repair.resend)
        if claim.target is not None:
            had |= (ids < claim.next_id) & self._sent(claim.target, ts)
        return ~had

    def _had(self, copy: Mark | None, ids: Int64s, ts: Int64s) -> Mask:
        if copy is None or copy.now is None:
            return np.zeros(len(ids), np.bool_)
        if self._counted is not None:
            return member(ids, self._counted)
        return (ids < copy.high) & self._sent(copy, ts)

    def _sent(self, mark: Mark, ts: Int64s) -> Mask:
        """Which rows the mark's horizon reached."""
        if not isinstance(self.plan.window, TimeWindow) or mark.horizon is None:
            return np.ones(len(ts), np.bool_)
        return np.asarray(ts < entered(self.plan.window, mark.horizon))

    @cached_property
    def _counted(self) -> Int64s | None:
        """The rows of the copy that have not expired, where only looking at them tells which."""
        copy = self.job.claim.copy
        by_instant = isinstance(self.plan.window, TimeWindow) and self.plan.keyed is None
        if by_instant or copy is None or copy.now is None:
            return None
        selection = Selection(self.plan, self._matcher, self._choice(copy))
        found = [part.ids[selection.places(part)] for part in selection.parts()]
        return np.concatenate([np.empty(0, np.int64), *found])

    # ---- windows

    def _choice(self, mark: Mark) -> Choice:
        """The rows of a mark, of the copy or the target, that have not expired at the target."""
        plan, now = self.plan, self.job.target.now
        if mark.now is None or now is None:
            return NO_ROWS
        if not isinstance(plan.window, TimeWindow):
            return rows_at(plan, Horizon(mark.now, self._oldest, mark.high), self.core.summaries)
        if plan.keyed is None:
            return Choice(held(plan.window, now, mark.horizon, self._oldest, mark.high))
        region = held(plan.window, now, mark.horizon, None, mark.high)
        rows = plan.keyed.current(mark.high, mark.now, self._cut)
        return Choice(region, rows.ids[region.holds(rows.ts, rows.ids)])

    @property
    def _oldest(self) -> int | None:
        """The least ts that is retained at the target's NOW; of a key's rows, the least end."""
        return None if self._cut is None else self._cut + 1

    @property
    def _cut(self) -> int | None:
        now, retain = self.job.target.now, self.plan.schema.retain
        return None if retain is None or now is None else now - retain

    @property
    def _forgotten(self) -> bool:
        """Whether rows of the copy may have ended and been forgotten since."""
        copy = self.job.claim.copy
        if self.plan.keyed is None or copy is None or copy.now is None or self._cut is None:
            return False
        return copy.now < self._cut


class _Count:
    """What a walk over the target's rows comes to."""

    def __init__(self, have: Int64s | None, keeps_ids: bool) -> None:
        self.rows = 0
        self.lacking = 0
        self.digest = Digest()
        self._have = have
        self._keeps_ids = keeps_ids
        self._seen = None if have is None else np.zeros(len(have), np.bool_)
        self._ids: list[Int64s] = []

    def add(self, ids: Int64s, lacking: Mask) -> None:
        self.rows += len(ids)
        self.lacking += int(lacking.sum())
        self.digest.add(ids.view(np.uint64))
        if self._keeps_ids:
            self._ids.append(ids)
        if self._have is not None and self._seen is not None:
            self._seen |= member(self._have, ids)

    @property
    def all_ids(self) -> Int64s:
        return np.concatenate([np.empty(0, np.int64), *self._ids])

    @property
    def strangers(self) -> Int64s | None:
        """What the client has and should not."""
        if self._have is None or self._seen is None:
            return None
        return self._have[~self._seen]


def _joined(chunks: list[Chunk]) -> Chunk:
    if len(chunks) == 1:
        return chunks[0]
    return Chunk(
        np.concatenate([one.ids for one in chunks]),
        np.concatenate([one.visible_from for one in chunks]),
        np.concatenate([one.visible_until for one in chunks]),
        pa.concat_arrays([one.sort_keys for one in chunks]),
        pa.concat_batches([one.rows for one in chunks]),
    )
