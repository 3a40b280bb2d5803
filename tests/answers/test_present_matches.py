"""Matches that a condition on NOW leaves, in parts of blocks from which rows have left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from datastem.arrays import Int64s
from datastem.blocks import Part
from psoup.answers.matching.matcher import Work
from psoup.answers.matching.present_matches import matches_at, remaining_matches
from querystem.language import CreateStream, bind_query, parse_statement
from querystem.visibility import visibility_of

_STATEMENT = parse_statement("CREATE STREAM tasks (id BIGINT, due TIMESTAMP)")
assert isinstance(_STATEMENT, CreateStream)
LEG = bind_query("SELECT id FROM tasks WHERE due > NOW", {"tasks": _STATEMENT.schema}.get).leg


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
