"""From a plan to an answer: the rows of its legs, their combinations or groups, the outputs.

There is one way from chosen rows to an answer: answers at once and in threads, Explain and copies
all take it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from datastem.arrays import Int64s
from datastem.blocks import Part, Picked
from datastem.instants import SINCE_EVER
from psoup.answers.caches import Memo
from psoup.answers.chosen import ChosenRows, choose_in_chunks
from psoup.answers.joins.join_limits import JoinLimits
from psoup.answers.joins.stored_join import StoredJoin
from psoup.answers.matching.matcher import Uncovered
from psoup.answers.matching.shown_rows import MatchSource
from psoup.answers.planning.plan import CompositePlan, LegPlan, Plan
from psoup.answers.rows.folds import Fold
from psoup.answers.rows.leg_rows import (
    LegMatchers,
    LegRows,
    PickedRows,
    chosen_rows,
    outputs_of,
)
from psoup.answers.rows.versions import StoredVersions
from psoup.store import CorruptStore, Position
from psoup.store.delta.reading import DataFileGone
from querystem.aggregate import Partial, finish, merge, partial
from querystem.combine import Combining, JoinRun, LegInput, leg_reads
from querystem.evaluate import answer_of, arrange, rows_or_groups
from querystem.grouping import Grouping
from querystem.join import JoinRoom
from querystem.query import From, Leg, Query
from results.window import CountWindow

# An answer at once is of a query of at most that weight: it takes well under a millisecond as a
# rule, and a few at the worst.
_QUICK_WEIGHT = 64


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer's rows: `batches`, one or more, have the query's outputs, in order."""

    batches: Sequence[pa.RecordBatch]
    position: Position
    computed_rows: int
    joined_pairs: int = 0

    @property
    def row_count(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.batches)


def evaluate(plan: Plan, matchers: LegMatchers, memo: Memo, limits: JoinLimits) -> Answer:
    """The answer of a plan that is settled.

    Raises FileNotFoundError where the engine has removed a file the plan names, TooMuchWork.
    """
    legs = legs_of(plan, matchers, memo)
    if isinstance(plan.query.source, Leg):
        batches = Selection(plan.query, legs[0], memo).answer()
    else:
        found = combined(plan, legs, matchers, limits, memo=memo)
        shaped = arrange if found.grouped else _whole_answer
        batches = [shaped(plan.query, found.rows)]
        return Answer(batches, plan.known, matchers.work.rows, found.pairs)
    return Answer(batches, plan.known, matchers.work.rows)


def evaluate_in_chunks(
    plan: Plan, matchers: LegMatchers, memo: Memo, limits: JoinLimits, chunk_bytes: int
) -> Answer | ChosenRows:
    """Return the answer of `evaluate`, or the ids of its rows if those are many and can be taken in
    chunks of about so many bytes."""
    if not isinstance(plan.query.source, Leg) or not plan.query.plain:
        return evaluate(plan, matchers, memo, limits)
    (rows,) = legs_of(plan, matchers, memo)
    picked, chunks = choose_in_chunks(plan.query, rows, chunk_bytes)
    if chunks:
        leg = plan.leg.released()
        return ChosenRows(plan.query, leg, chunks, plan.known, matchers.work.rows)
    batches = Selection(plan.query, rows, memo).answer(picked)
    return Answer(batches, plan.known, matchers.work.rows)


def _whole_answer(query: Query, rows: pa.RecordBatch) -> pa.RecordBatch:
    return answer_of(query, [rows])


def evaluate_at_once(plan: Plan, matchers: LegMatchers, memo: Memo) -> Answer | None:
    """The answer of `evaluate`, or None where to make it would take longer than to wait for a
    thread: where files are read, a predicate is evaluated, many rows are taken or any joined."""
    if plan.now is None or not _is_plain(plan):
        return None
    (rows,) = legs_of(plan, matchers, memo)
    picked = rows.picked_at_hand()
    if picked is None:
        return None
    batches = Selection(plan.query, rows, memo).answer(picked)
    return Answer(batches, plan.known, matchers.work.rows)


def _is_plain(plan: Plan) -> bool:
    """Tells whether window and instant alone tell the rows, and the query does little with them."""
    if plan.unsettled or not isinstance(plan.query.source, Leg):
        return False
    elsewhere = plan.leg.keyed or plan.leg.limits or isinstance(plan.leg.window, CountWindow)
    return not elsewhere and plan.query.weight <= _QUICK_WEIGHT


def legs_of(plan: Plan, matchers: LegMatchers, memo: Memo) -> list[LegRows]:
    """The rows of each leg of a plan."""
    return [leg_rows(leg, matchers.of(leg), memo) for leg in plan.legs]


def leg_rows(leg: LegPlan, matcher: MatchSource, memo: Memo) -> LegRows:
    return LegRows(leg, matcher, chosen_rows(leg, matcher, memo))


# ---- one leg


@dataclass(frozen=True)
class Selection:
    """The answer of a query over one leg, from the leg's rows."""

    query: Query
    rows: LegRows
    memo: Memo

    def answer(self, picked: Picked | None = None) -> Sequence[pa.RecordBatch]:
        """The query's outputs, in order; from the rows `picked`, where they are found already."""
        query = self.query
        if query.grouping is not None:
            return [arrange(query, self.matched(picked))]
        picked = self.rows.picked() if picked is None else picked
        return outputs_of(query, self.rows.leg.schema, picked)

    def matched(self, picked: Picked | None = None) -> pa.RecordBatch:
        """The matching rows in any order, or their groups, as `arrange` and `identified` take
        them."""
        grouping = self.query.grouping
        if grouping is not None and picked is None:
            return finish(grouping, self._folded(grouping))
        picked = self.rows.picked() if picked is None else picked
        return rows_or_groups(self.query, [self.rows.gather(picked, self.query.reads)])

    def _folded(self, grouping: Grouping) -> Partial:
        rows, reads = self.rows, self.query.reads

        def of(part: Part, among: Int64s | None = None) -> Partial:
            return partial(grouping, rows.gather([(part, rows.places(part, among))], reads))

        if rows.choice.ids is not None:
            found = [of(part) for part in rows.parts()]
        else:
            subject = (rows.leg.subject, self.query.grouping_key)
            region = rows.choice.region
            found = Fold(self.memo, subject, rows.leg.stem, region, of, merge).values()
        return merge(found or [partial(grouping, rows.gather([], reads))])


# ---- several legs


@dataclass(frozen=True, slots=True)
class Combined:
    """The combinations of a plan's legs, and how they were found: the rows of each leg, None where
    they were not counted; how they were joined; and how many combinations were `stored`.

    Where they are `grouped`, the rows are the groups of the query.
    """

    rows: pa.RecordBatch
    leg_counts: tuple[int | None, ...]
    runs: Sequence[JoinRun]
    stored: int = 0
    grouped: bool = False

    @property
    def pairs(self) -> int:
        """How many pairs of rows were looked at."""
        return sum(step.candidates for run in self.runs for step in run.steps)


def combined(
    plan: Plan,
    legs: Sequence[LegRows],
    matchers: LegMatchers,
    limits: JoinLimits,
    parts: bool = False,
    memo: Memo | None = None,
) -> Combined:
    """The rows of a query's source, as `arrange` takes them, from the rows of its legs.

    With `parts` they have the row ids of the legs. With `memo` they may be grouped already, from
    summaries that it keeps. Raises TooMuchWork past the limits; Uncovered
    where somebody waits for the engine, which has combinations yet to find.
    """
    composing = plan.composing
    if plan.composite is not None:
        try:
            return _with_stored(plan, plan.composite, legs, matchers, limits, parts, memo)
        except (CorruptStore, DataFileGone) as damage:
            if not damage.file.startswith(f"stems/{plan.composite.composite_id}/"):
                raise
            plan.composite.leave_out(damage)
            composing = True
    if composing and matchers.work.limit is None:
        raise Uncovered
    return joined(plan, leg_inputs(plan, legs), limits, parts)


def joined(
    plan: Plan, inputs: Sequence[LegInput], limits: JoinLimits, parts: bool = False
) -> Combined:
    """The combinations of what `leg_inputs` gives. Raises TooMuchWork."""
    counts = [len(one) if isinstance(one, PickedRows) else None for one in inputs]
    with limits.joining() as room:
        room.take(sum(one.nbytes for one in inputs if isinstance(one, PickedRows)))
        combining = _combining(plan, limits, room)
        found = combining.source_rows(plan.query, inputs, parts)
    return Combined(found, tuple(counts), combining.runs)


def _with_stored(
    plan: Plan,
    composite: CompositePlan,
    legs: Sequence[LegRows],
    matchers: LegMatchers,
    limits: JoinLimits,
    parts: bool,
    memo: Memo | None,
) -> Combined:
    """The combinations of a plan whose FROM the engine has joined, for the most part."""
    source = plan.query.source
    assert isinstance(source, From), "only a FROM is joined ahead"
    count = len(source.items)
    with limits.joining() as room:
        combining = _combining(plan, limits, room)
        matcher = matchers.of_combinations(plan, composite)
        stored = StoredJoin(composite, source, legs[:count], matcher, combining)
        if matchers.work.limit is None and not stored.is_complete:
            raise Uncovered
        groups = None if memo is None else stored.folded(plan.query, memo)
        if groups is None:
            others = leg_inputs(plan, legs)[count:] if len(legs) > count else []
            found = combining.source_rows(plan.query, others, parts, stored.combinations)
        else:
            found = groups
    counts = (None,) * len(legs)
    return Combined(found, counts, combining.runs, stored.taken, groups is not None)


def _combining(plan: Plan, limits: JoinLimits, room: JoinRoom) -> Combining:
    now, *nows = [SINCE_EVER if one is None else one for one in (plan.now, *plan.nows)]
    return Combining(now, limits.pairs, [], room, iter(nows), plan.mask)


def leg_inputs(plan: Plan, legs: Sequence[LegRows]) -> list[LegInput]:
    """The rows of each leg with the columns that the query reads of them; legs that have the same
    rows and are read alike have one input."""
    made = dict[tuple[Hashable, ...], LegInput]()
    inputs = []
    for rows, names in zip(legs, leg_reads(plan.query), strict=True):
        leg = rows.leg
        # Whoever asks sees the same rows of a stream in all legs.
        key = leg.leg, leg.stream_id, leg.now, leg.oldest, leg.limits, names
        if key not in made:
            made[key] = _input(plan, rows, names)
        inputs.append(made[key])
    return inputs


def _input(plan: Plan, rows: LegRows, reads: frozenset[str]) -> LegInput:
    """The rows of a leg, or where they are looked up, all versions of its stream's rows."""
    as_of = rows.leg.leg.as_of
    if as_of is None:
        return PickedRows(rows, rows.picked(), reads)
    other = next((leg.stem for leg in plan.legs if leg.leg.stream == as_of.stream), None)
    return StoredVersions(rows.leg, rows.matcher, other)
