"""From the rows of a window to an answer: which match, their groups, the outputs in order.

There is one way from chosen rows to an answer, `Selection`: answers at once and in threads, Explain
and copies all take it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.blocks import Part, Picked, gather, in_order
from datastem.codec import StemColumns, columns_read, columns_shown
from psoup.answers.caches import Memo
from psoup.answers.folds import Fold
from psoup.answers.matching import MatchSource
from psoup.answers.plan import Plan
from psoup.answers.windows import NO_ROWS, Choice, Horizon, choose, choose_current, parts_of
from psoup.store import Position
from querystem.aggregate import Partial, finish, merge, partial
from querystem.evaluate import answer_of, arrange, rows_or_groups
from querystem.grouping import Grouping
from querystem.pace import spending
from results.window import CountWindow

# So many rows of a part are sent from where they are, not put together with others first.
_MANY_ROWS = 4096
# Units (`querystem.pace`) of a value that is copied.
_VALUE_UNITS = 10
# An answer at once takes at most so many bytes of rows, out of so many blocks, for a query of at
# most that weight: well under a millisecond as a rule, and a few at the worst.
_QUICK_BLOCKS, _QUICK_BYTES, _QUICK_WEIGHT = 4, 256 << 10, 64


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer's rows: `batches`, one or more, have the query's outputs, in order."""

    batches: Sequence[pa.RecordBatch]
    position: Position
    computed_rows: int

    @property
    def row_count(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.batches)


def evaluate(plan: Plan, matcher: MatchSource, memo: Memo) -> Answer:
    """The answer of a plan that is settled.

    Raises FileNotFoundError where the engine has removed a file the plan names, TooMuchWork.
    """
    choice, position = window_rows(plan, memo)
    selection = Selection(plan, matcher, choice, memo)
    return Answer(selection.answer(), position, matcher.work.rows)


def evaluate_at_once(plan: Plan, matcher: MatchSource, memo: Memo) -> Answer | None:
    """The answer of `evaluate`, or None where to make it would take longer than to wait for a
    thread: where files are read, a predicate is evaluated, or many rows are taken."""
    if plan.now is None or not _is_plain(plan):
        return None
    choice, position = window_rows(plan, memo)
    selection = Selection(plan, matcher, choice, memo)
    picked = selection.picked_at_hand()
    return None if picked is None else Answer(selection.answer(picked), position, matcher.work.rows)


def _is_plain(plan: Plan) -> bool:
    """Tells whether window and instant alone tell the rows, and the query does little with them."""
    elsewhere = plan.keyed or plan.limits or plan.triggers or isinstance(plan.window, CountWindow)
    return not elsewhere and plan.query.weight <= _QUICK_WEIGHT


def window_rows(plan: Plan, memo: Memo) -> tuple[Choice, Position]:
    """The rows of the plan's window, and the position the answer is of."""
    high, position = plan.known()
    if plan.now is None:
        return NO_ROWS, position
    return rows_at(plan, Horizon(plan.now, plan.oldest, high), memo), position


def rows_at(plan: Plan, horizon: Horizon, memo: Memo) -> Choice:
    """The rows of the plan's window as of another horizon than the plan's."""
    if plan.keyed is not None:
        return choose_current(plan.window, plan.keyed, horizon)
    return choose(plan.window, plan.stem, horizon, memo, plan.stream_id)


@dataclass(frozen=True)
class Selection:
    """The chosen rows that match, with the columns the query reads."""

    plan: Plan
    matcher: MatchSource
    choice: Choice
    memo: Memo

    # ---- rows to answer

    def answer(self, picked: Picked | None = None) -> Sequence[pa.RecordBatch]:
        """The query's outputs, in order; from the rows `picked`, where they are found already."""
        query, schema = self.plan.query, self.plan.schema
        if query.grouping is not None:
            return [arrange(query, self.matched(picked))]
        picked = self.picked() if picked is None else picked
        if query.shown is None or not in_order(picked):
            return [answer_of(query, [self.gather(picked)])]
        columns = columns_shown(schema, query.shown)
        many = sum(len(places) for _, places in picked) > _MANY_ROWS * len(picked) > 0
        groups = [[one] for one in picked] if many else [picked]
        return [_gather(group, columns) for group in groups]

    def matched(self, picked: Picked | None = None) -> pa.RecordBatch:
        """The matching rows in any order, or their groups, as `arrange` and `identified` take
        them."""
        grouping = self.plan.query.grouping
        if grouping is not None and picked is None:
            return finish(grouping, self._folded(grouping))
        rows = self.gather(self.picked() if picked is None else picked)
        return rows_or_groups(self.plan.query, [rows])

    def _folded(self, grouping: Grouping) -> Partial:
        def of(part: Part, among: Int64s | None = None) -> Partial:
            return partial(grouping, self.gather([(part, self.places(part, among))]))

        if self.choice.ids is not None:
            found = [of(part) for part in self.parts()]
        else:
            subject = (self.plan.predicate_id, self.plan.query.grouping_key)
            region = self.choice.region
            found = Fold(self.memo, subject, self.plan.stem, region, of, merge).values()
        return merge(found or [partial(grouping, self.gather([]))])

    def gather(self, picked: Picked) -> pa.RecordBatch:
        """Rows as the query sees them."""
        return _gather(picked, columns_read(self.plan.schema, self.plan.query.reads))

    # ---- which rows

    def picked(self) -> Picked:
        """The places of the rows, part by part."""
        return [(part, self.places(part)) for part in self.parts()]

    def picked_at_hand(self) -> Picked | None:
        """The places of the rows, where they are few and neither a file nor a row has to be looked
        at to find them; else None."""
        region, left = self.choice.region, float(_QUICK_BYTES)
        if region.empty:
            return []
        parts = self.plan.stem.held(region.begin, region.end, region.hi, _QUICK_BLOCKS)
        if parts is None:
            return None
        picked = []
        for part in parts:
            if part.stop <= region.lo:
                continue
            lo, hi, inside = self._span(part)
            ids = self.matcher.remembered(part, lo, hi)
            places = None if ids is None else self.choice.places(part, ids, inside)
            if places is None or len(places) * part.row_bytes > left:
                return None
            left -= len(places) * part.row_bytes
            picked.append((part, places))
        return picked

    def parts(self) -> Iterator[Part]:
        """The parts that may hold any of the rows, by ascending id."""
        region = self.choice.region
        if region.empty:
            return
        if self.choice.ids is not None:
            yield from parts_of(self.plan.stem, self.choice.ids, region.hi)
            return
        yield from self.plan.stem.probe(region.begin, region.end, region.hi, region.lo)

    def places(self, part: Part, among: Int64s | None = None) -> Int64s:
        """The places of the rows in a part; only places of `among`, which ascend, if it is
        given."""
        lo, hi, inside = self._span(part, among)
        places = self.choice.places(part, self.matcher.match(part, lo, hi), inside)
        if among is None or len(among) == len(part.ids):
            return places
        return np.intersect1d(places, among, assume_unique=True)

    def _span(self, part: Part, among: Int64s | None = None) -> tuple[int, int, bool]:
        """Row ids outside of which no row of the part is chosen, and whether all inside are."""
        region = self.choice.region
        lo, hi = part.span(region.begin, region.end)
        if among is not None:
            lo, hi = max(lo, int(part.ids[among[0]])), min(hi, int(part.ids[among[-1]]) + 1)
        first, stop = self.choice.span(part)
        lo, hi = max(lo, region.lo, first), min(hi, region.hi, stop)
        return lo, max(lo, hi), part.in_order and region.instants_only


def _gather(picked: Picked, columns: StemColumns) -> pa.RecordBatch:
    rows = sum(len(places) for _, places in picked)
    spending()(rows * len(columns.names) * _VALUE_UNITS)
    return gather(picked, columns.names, columns.schema)
