"""The groups of files in which the check of a store compares row ids."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from psoup.store.checking import _holds, overlapping
from psoup.store.delta.checksums import Checks
from psoup.store.delta.files import DataFile

RANGES = st.tuples(st.integers(0, 40), st.integers(0, 9)).map(lambda pair: (pair[0], sum(pair)))


def file_of(number: int, low: int, high: int) -> DataFile:
    checks = Checks(0, 0)
    return DataFile(f"{number}", 1, 1, checks, {}, {"_row_id": low}, {"_row_id": high})


@given(st.lists(RANGES, max_size=12))
def test_files_are_in_one_group_if_an_id_may_be_in_both(ranges: list[tuple[int, int]]) -> None:
    files = [file_of(number, *range_) for number, range_ in enumerate(ranges)]
    groups = list(overlapping(files))
    assert sorted(file.path for group in groups for file in group) == sorted(f.path for f in files)
    ids = [
        {id_ for file in group for id_ in range(file.low["_row_id"], file.high["_row_id"] + 1)}
        for group in groups
    ]
    for group_ids in ids:
        # No cut is possible inside of a group.
        assert len(group_ids) == max(group_ids) - min(group_ids) + 1
    for before, after in zip(ids, ids[1:], strict=False):
        assert max(before) < min(after)


def test_files_that_follow_each_other_are_read_one_by_one() -> None:
    files = [file_of(number, 10 * number, 10 * number + 9) for number in range(5)]
    assert [len(group) for group in overlapping(reversed(files))] == [1] * 5


def test_rows_outside_of_the_ranges_of_their_files_are_noticed() -> None:
    files = [file_of(0, 3, 5), file_of(1, 4, 9)]
    assert _holds(files, 3, 9)
    assert not _holds(files, 2, 9) and not _holds(files, 3, 10)
