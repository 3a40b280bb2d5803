"""From a plan to an answer: the rows of its legs, their combinations or groups, the outputs.

There is one way from chosen rows to an answer. Answers on the event loop and in threads, Explain
and copies all take it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from datastem.arrays import Int64s
from datastem.blocks import Part, Picked
from datastem.instants import SINCE_EVER
from psoup.answers.caches import Memo
from psoup.answers.chosen import ChosenRows, choose_in_chunks, first_rows
from psoup.answers.joins.join_limits import JoinLimits
from psoup.answers.joins.stored_join import StoredJoin
from psoup.answers.matching.matcher import Uncovered
from psoup.answers.matching.permitted_rows import MatchSource
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
from querystem.expressions import uses_now
from querystem.grouping import Grouping
from querystem.join import JoinRoom
from querystem.legs import Leg
from querystem.query import Query, has_joins
from querystem.sources import From
from results.window import CountWindow

# The greatest weight of a query that is answered on the event loop: as a rule it takes well under a
# millisecond, and a few at the worst.
_QUICK_WEIGHT = 64


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of an answer: `batches`, one or more, have the query's outputs, in order."""

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

    def first(self, max_rows: int) -> Answer:
        """Return the answer with at most its first `max_rows` rows."""
        return replace(self, batches=first_rows(self.batches, max_rows))


def evaluate(plan: Plan, matchers: LegMatchers, memo: Memo, limits: JoinLimits) -> Answer:
    """Return the answer of a plan that is settled.

    Raises FileNotFoundError if the engine has removed a file that the plan names, TooMuchWork.
    """
    legs = legs_of(plan, matchers, memo)
    if isinstance(plan.query.source, Leg):
        batches = Selection(plan.query, legs[0], memo, plan.now).answer()
    else:
        combinations = combined(plan, legs, matchers, limits, memo, fold=True)
        shape = arrange if combinations.grouped else _whole_answer
        with matchers.work.stage("shape"):
            batches = [shape(plan.present_query, combinations.rows)]
        return Answer(batches, plan.answered, matchers.work.rows, combinations.pairs)
    return Answer(batches, plan.answered, matchers.work.rows)


def evaluate_in_chunks(
    plan: Plan, matchers: LegMatchers, memo: Memo, limits: JoinLimits, chunk_bytes: int
) -> Answer | ChosenRows:
    """Return the answer of `evaluate`, or the ids of its rows if those are many and can be read in
    chunks of about `chunk_bytes`."""
    if not isinstance(plan.query.source, Leg) or not plan.query.plain:
        return evaluate(plan, matchers, memo, limits)
    (rows,) = legs_of(plan, matchers, memo)
    with matchers.work.stage("take"):
        picked, chunks = choose_in_chunks(plan.present_query, rows, chunk_bytes)
    if chunks:
        # The client may read for long, so the answer must not keep rows in memory.
        leg = plan.leg.released()
        return ChosenRows(plan.present_query, leg, chunks, plan.answered, matchers.work.rows)
    # `picked` is None if many rows could not be cut into chunks: they are then found again.
    batches = Selection(plan.query, rows, memo, plan.now).answer(picked)
    return Answer(batches, plan.answered, matchers.work.rows)


def _whole_answer(query: Query, rows: pa.RecordBatch) -> pa.RecordBatch:
    return answer_of(query, [rows])


def evaluate_at_once(plan: Plan, matchers: LegMatchers, memo: Memo) -> Answer | None:
    """Return the answer of `evaluate`; None if making it takes longer than waiting for a thread.

    That is so if files are read, a predicate is evaluated, many rows are read or any are joined.
    """
    if plan.now is None or not _is_plain(plan):
        return None
    (rows,) = legs_of(plan, matchers, memo)
    picked = rows.picked_at_once()
    if picked is None:
        return None
    batches = Selection(plan.query, rows, memo, plan.now).answer(picked)
    return Answer(batches, plan.answered, matchers.work.rows)


def _is_plain(plan: Plan) -> bool:
    """Return True if window and instant alone decide which rows there are, and the query does
    little with them."""
    if plan.unsettled or not isinstance(plan.query.source, Leg):
        return False
    leg = plan.leg
    # With a history, a limit or a count, files may be read to know which rows there are.
    needs_rows = leg.keyed or leg.limits or isinstance(leg.window, CountWindow)
    return not needs_rows and plan.query.weight <= _QUICK_WEIGHT


def legs_of(plan: Plan, matchers: LegMatchers, memo: Memo) -> list[LegRows]:
    """Return the rows of each leg of a plan."""
    with matchers.work.stage("window"):
        return [leg_rows(leg, matchers.of(leg), memo) for leg in plan.legs]


def leg_rows(leg: LegPlan, matcher: MatchSource, memo: Memo) -> LegRows:
    return LegRows(leg, matcher, chosen_rows(leg, matcher, memo))


# ---- one leg


@dataclass(frozen=True)
class Selection:
    """The answer of a query over one leg at `now`, from the leg's rows."""

    standing: Query
    rows: LegRows
    memo: Memo
    now: int | None

    @cached_property
    def query(self) -> Query:
        """The query with NOW put in."""
        return self.standing.at_instant(self.now)

    def answer(self, picked: Picked | None = None) -> Sequence[pa.RecordBatch]:
        """Return the query's outputs, in order; from the rows `picked`, if they are found
        already."""
        query, work = self.query, self.rows.matcher.work
        if query.grouping is not None:
            groups = self.matched(picked)
            with work.stage("shape"):
                return [arrange(query, groups)]
        with work.stage("take"):
            picked = self.rows.picked() if picked is None else picked
        with work.stage("shape"):
            return outputs_of(query, self.rows.leg.schema, picked)

    def matched(self, picked: Picked | None = None) -> pa.RecordBatch:
        """Return the matching rows in any order, or their groups, as `arrange` and `identified`
        take them."""
        grouping = self.query.grouping
        with self.rows.matcher.work.stage("take" if grouping is None else "aggregate"):
            if grouping is not None and picked is None:
                return finish(grouping, self._folded(grouping))
            picked = self.rows.picked() if picked is None else picked
            return rows_or_groups(self.query, [self.rows.gather(picked, self.query.reads)])

    def _folded(self, grouping: Grouping) -> Partial:
        rows, reads = self.rows, self.query.reads

        def of(part: Part, among: Int64s | None = None) -> Partial:
            return partial(grouping, rows.gather([(part, rows.places(part, among))], reads))

        # Cached summaries are of all rows of a run, of which a choice by ids has only some. What
        # depends on NOW is never cached: no later answer could use it.
        if rows.choice.ids is not None or not rows.leg.is_timeless or self._groups_by_now:
            partials = [of(part) for part in rows.parts()]
        else:
            subject = (rows.leg.subject, self.query.grouping_key)
            region = rows.choice.region
            partials = Fold(self.memo, subject, rows.leg.stem, region, of, merge).values()
        return merge(partials or [partial(grouping, rows.gather([], reads))])

    @property
    def _groups_by_now(self) -> bool:
        grouping = self.standing.grouping
        return grouping is not None and uses_now(*grouping.expressions)


# ---- several legs


@dataclass(frozen=True, slots=True)
class Combined:
    """The combinations of a plan's legs, and how they were found: the number of rows of each leg,
    None if they were not counted; how they were joined; and how many combinations were `stored`.

    If they are `grouped`, the rows are the groups of the query.
    """

    rows: pa.RecordBatch
    leg_counts: tuple[int | None, ...]
    runs: Sequence[JoinRun]
    stored: int = 0
    grouped: bool = False

    @property
    def pairs(self) -> int:
        """The number of pairs of rows that were compared."""
        return sum(step.candidates for run in self.runs for step in run.steps)


def combined(
    plan: Plan,
    legs: Sequence[LegRows],
    matchers: LegMatchers,
    limits: JoinLimits,
    memo: Memo | None,
    *,
    parts: bool = False,
    fold: bool = False,
) -> Combined:
    """Return the rows of a query's source, as `arrange` takes them, from the rows of its legs.

    Stored combinations are kept in `memo`, if it is given. With `parts` the rows have the row ids
    of the legs; with `fold` they may be grouped already, from cached summaries. Raises TooMuchWork
    past the limits; Uncovered if the caller waits for the engine, which has combinations yet to
    find.
    """
    composing = plan.composing
    if plan.composite is not None:
        try:
            with matchers.work.stage("take"):
                return _with_stored(plan, plan.composite, legs, matchers, limits, memo, parts, fold)
        except (CorruptStore, DataFileGone) as damage:
            # Only combinations can be joined again; damaged rows of a stream can't be replaced.
            if not damage.file.startswith(f"stems/{plan.composite.composite_id}/"):
                raise
            plan.composite.leave_out(damage)
            composing = True
    if composing and matchers.work.limit is None:
        raise Uncovered
    with matchers.work.stage("take"):
        inputs = leg_inputs(plan, legs)
    with matchers.work.stage("join" if has_joins(plan.query.source) else "combine"):
        return joined(plan, inputs, limits, parts)


def joined(
    plan: Plan, inputs: Sequence[LegInput], limits: JoinLimits, parts: bool = False
) -> Combined:
    """Return the combinations of what `leg_inputs` gives. Raises TooMuchWork."""
    counts = [len(rows) if isinstance(rows, PickedRows) else None for rows in inputs]
    with limits.joining() as room:
        room.take(sum(rows.nbytes for rows in inputs if isinstance(rows, PickedRows)))
        combining = _combining(plan, limits, room)
        combinations = combining.source_rows(plan.query, inputs, parts)
    return Combined(combinations, tuple(counts), combining.runs)


def _with_stored(
    plan: Plan,
    composite: CompositePlan,
    legs: Sequence[LegRows],
    matchers: LegMatchers,
    limits: JoinLimits,
    memo: Memo | None,
    parts: bool,
    fold: bool,
) -> Combined:
    """Return the combinations of a plan whose FROM the engine has joined, for the most part."""
    source = plan.query.source
    assert isinstance(source, From), "only a FROM is joined ahead"
    count = len(source.items)
    with limits.joining() as room:
        combining = _combining(plan, limits, room)
        matcher = matchers.of_combinations(plan, composite)
        stored = StoredJoin(composite, source, legs[:count], matcher, combining, memo)
        if matchers.work.limit is None and not stored.is_complete:
            raise Uncovered
        groups = stored.folded(plan.query) if fold else None
        if groups is None:
            # The legs after those of FROM are read by subqueries, which are not stored.
            remaining = leg_inputs(plan, legs)[count:] if len(legs) > count else []
            rows = combining.source_rows(plan.query, remaining, parts, stored.combinations)
        else:
            rows = groups
    counts = (None,) * len(legs)
    return Combined(rows, counts, combining.runs, stored.stored_count, groups is not None)


def _combining(plan: Plan, limits: JoinLimits, room: JoinRoom) -> Combining:
    now, *nows = [SINCE_EVER if now is None else now for now in (plan.now, *plan.nows)]
    return Combining(now, limits.pairs, [], room, iter(nows), plan.mask)


def leg_inputs(plan: Plan, legs: Sequence[LegRows]) -> list[LegInput]:
    """Return the rows of each leg with the columns that the query reads of them. Legs that have the
    same rows and are read alike share one input."""
    inputs_by_key = dict[tuple[Hashable, ...], LegInput]()
    inputs = []
    for rows, names in zip(legs, leg_reads(plan.query), strict=True):
        leg = rows.leg
        # The policy need not be in the key: one caller has one policy for a stream.
        key = leg.leg, leg.stream_id, leg.now, leg.oldest, leg.limits, names
        if key not in inputs_by_key:
            inputs_by_key[key] = _input(plan, rows, names)
        inputs.append(inputs_by_key[key])
    return inputs


def _input(plan: Plan, rows: LegRows, reads: frozenset[str]) -> LegInput:
    """Return the rows of a leg; with AS OF, all versions of its stream's rows."""
    as_of = rows.leg.leg.as_of
    if as_of is None:
        return PickedRows(rows, rows.picked(), reads)
    referrers = next((leg.stem for leg in plan.legs if leg.leg.stream == as_of.stream), None)
    return StoredVersions(rows.leg, rows.matcher, referrers)
