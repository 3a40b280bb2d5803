"""What changed between two marks of an answer, told without a server, and applied to a copy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from datastem.memory import Memory
from psoup.answers import AnswerMaker, Plan, Question, Replica, View
from psoup.answers.difference import (
    BEGINNING,
    Claim,
    CopyJob,
    Difference,
    Mark,
    Repair,
    ResultCopier,
    RowCopier,
    WholeReason,
)
from psoup.answers.difference.job import by_rows, make_job
from psoup.store import Store
from tests.answers.test_without_server import NOW, define, fill, running

NO_REPAIR = Repair(np.empty(0, np.int64), None)
QUERIES = [
    "SELECT lane, speed FROM cars WHERE speed > 50 RANGE 1 HOUR",
    "SELECT lane, speed FROM cars WHERE lane = 1 ROWS 7",
    "SELECT place, plate FROM parked WHERE place < 7",
    "SELECT lane, count(*) AS n FROM cars GROUP BY lane",
    "SELECT lane, speed FROM cars ORDER BY speed DESC LIMIT 5",
]


class Reader:
    """One reading of a store, and the difference of an answer from a mark to now."""

    def __init__(self, folder: Path) -> None:
        self._store = Store.open(folder)
        self.view = View.at(Replica.open(self._store, Memory(1 << 24)), NOW)
        self._maker = AnswerMaker(self._store)

    def difference(self, sql: str, copy: Mark | None) -> tuple[Difference, dict[int, list[object]]]:
        question = replace(Question.of_text(sql, self.view.state), ahead=True)
        plan = self._maker.plan(self.view, question)
        reason = WholeReason.FIRST if copy is None else WholeReason.NONE
        job = make_job(question, plan, Claim(copy), reason, NO_REPAIR, None)
        copier = self._copier(plan, job)
        difference = copier.difference()
        if not difference.lacking:
            return difference, {}
        chunk = copier.renewed(plan, difference.job).piece(BEGINNING, 1 << 30)
        assert chunk is not None
        rows = [list(row.values()) for row in chunk.rows.to_pylist()]
        return difference, dict(zip(chunk.ids.tolist(), rows, strict=True))

    def _copier(self, plan: Plan, job: CopyJob) -> RowCopier | ResultCopier:
        return (RowCopier if by_rows(plan) else ResultCopier)(self._maker, plan, job)


@pytest.mark.parametrize("sql", QUERIES)
async def test_the_difference_makes_of_the_old_answer_the_new_one(tmp_path: Path, sql: str) -> None:
    async with running(tmp_path / "store") as core:
        await define(core)
        await fill(core, 0)
        first, copy = Reader(tmp_path / "store").difference(sql, None)
        assert first.whole and first.row_count == len(copy)
        await fill(core, 40)
    reader = Reader(tmp_path / "store")
    change, rows = reader.difference(sql, first.job.target)
    for row_id in change.removed.tolist():
        del copy[row_id]
    copy = {**copy, **rows}
    whole, expected = reader.difference(sql, None)
    assert (rows if change.whole else copy) == expected
    assert (change.row_count, change.digest) == (whole.row_count, whole.digest)
    again, nothing = reader.difference(sql, change.job.target)
    assert again.nothing and not nothing
