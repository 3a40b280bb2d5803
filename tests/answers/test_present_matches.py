"""Matches that a condition on NOW leaves, in parts of blocks from which rows have left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem.arrays import Int64s
from datastem.blocks import Part
from datastem.caches import LruCache
from psoup.answers.caches import Memo
from psoup.answers.matching.matcher import Work
from psoup.answers.matching.present_matches import PartSpans, matches_at, remaining_matches
from querystem.language import CreateStream, bind_query, parse_statement
from querystem.visibility import visibility_of

_STATEMENT = parse_statement("CREATE STREAM tasks (id BIGINT, due TIMESTAMP)")
assert isinstance(_STATEMENT, CreateStream)
LEG = bind_query("SELECT id FROM tasks WHERE due > NOW", {"tasks": _STATEMENT.schema}.get).leg

_PERIODS = parse_statement(
    "CREATE STREAM periods (due TIMESTAMP, until TIMESTAMP) VALID FROM due UNTIL until"
)
_TASKS = parse_statement("CREATE STREAM tasks (due TIMESTAMP, until TIMESTAMP)")
assert isinstance(_PERIODS, CreateStream) and isinstance(_TASKS, CreateStream)
_SCHEMAS = {"periods": _PERIODS.schema, "tasks": _TASKS.schema}
INTERVALS = [
    bind_query(text, _SCHEMAS.get).leg
    for text in (
        "SELECT due FROM periods",
        "SELECT due FROM periods BEGIN NOW END NOW + 4 MICROSECONDS",
        "SELECT due FROM periods RANGE 3 MICROSECONDS SLIDE 5 MICROSECONDS",
        "SELECT due FROM tasks WHERE due < NOW",
        "SELECT due FROM tasks WHERE due = NOW AND until > NOW",
        "SELECT due FROM tasks WHERE coalesce(until, due) >= NOW",
    )
]


@dataclass
class StoredMatches:
    """Stored matches, which may have ids of rows that are gone."""

    ids: Int64s
    work: Work
    permitted: None = None

    def match(self, part: Part, lo: int, hi: int) -> Int64s:
        return self.ids[(self.ids >= lo) & (self.ids < hi)]

    def cached(self, part: Part, lo: int, hi: int) -> Int64s | None:
        return self.match(part, lo, hi)

    def lacks(self, block: int, high: int) -> bool:
        return False


def part_of(ids: list[int]) -> Part:
    columns = {
        "id": pa.array(ids),
        "due": pa.array(ids, pa.timestamp("us", "UTC")),
        "_ts": pa.array(ids, pa.timestamp("us", "UTC")),
        "_row_id": pa.array(ids),
    }
    return Part(pa.record_batch(columns))


@pytest.mark.parametrize("ids", [[5, 6, 7, 8, 9], [5, 7, 9], [8, 9], [5]])
def test_rows_that_are_gone_match_nothing(ids: list[int]) -> None:
    stored = StoredMatches(np.array([5, 6, 8, 9]), Work(None))
    visibility = visibility_of(LEG.when)
    assert visibility is not None
    for now in (0, 6, 8, 9):
        expected = [id_ for id_ in ids if id_ in (5, 6, 8, 9) and id_ > now]
        for matcher in (
            matches_at(stored, LEG.when, now),
            remaining_matches(stored, visibility, now),
        ):
            part = part_of(ids)
            assert matcher.match(part, part.first, part.stop).tolist() == expected
            assert matcher.cached(part, part.first, part.stop) is None


instants = st.one_of(st.none(), st.integers(0, 20))


@given(
    st.lists(st.tuples(instants, instants, st.booleans()), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 22), st.booleans()), min_size=1, max_size=12),
)
def test_spans_of_parts_exclude_no_match(
    rows: list[tuple[int | None, int | None, bool]], moments: list[tuple[int, bool]]
) -> None:
    """Whatever instants were asked about before, matches are those without a cache."""
    memo: Memo = LruCache(1 << 20)
    columns = [
        pa.array([row[place] for row in rows], pa.timestamp("us", "UTC")) for place in (0, 1)
    ]
    ids = np.arange(len(rows))
    names = ["due", "until", "_ts", "_row_id"]
    part = Part(
        pa.RecordBatch.from_arrays([*columns, pa.array(ids, pa.timestamp("us", "UTC")), ids], names)
    )
    stored = StoredMatches(ids[[matching for *_, matching in rows]], Work(None))
    for leg in INTERVALS:
        visibility = visibility_of(leg.when)
        assert visibility is not None
        for now, or_later in moments:
            spans = PartSpans(memo, 1, visibility, now, or_later)
            # Rows with NULL don't match the predicate beside the condition.
            if or_later:
                has_instants = [None not in row[:2] for row in rows]
                known = StoredMatches(stored.ids[np.array(has_instants)[stored.ids]], Work(None))
                plain = remaining_matches(known, visibility, now)
                cached = remaining_matches(known, visibility, now, spans)
            else:
                plain = matches_at(stored, leg.when, now)
                cached = matches_at(stored, leg.when, now, spans)
            expected = plain.match(part, 0, len(rows)).tolist()
            assert cached.match(part, 0, len(rows)).tolist() == expected
            if spans.excludes(part):
                assert expected == []


def test_a_part_whose_rows_are_over_is_passed_over() -> None:
    memo: Memo = LruCache(1 << 20)
    stored, part = StoredMatches(np.arange(5, 10), Work(None)), part_of([5, 6, 7, 8, 9])
    visibility = visibility_of(LEG.when)
    assert visibility is not None
    for now, is_excluded in ((7, False), (9, True), (8, False)):
        spans = PartSpans(memo, 1, visibility, now)
        matches_at(stored, LEG.when, now, spans).match(part, 5, 10)
        assert spans.excludes(part) == is_excluded
