"""The table of intervals compared with a list, with and without its tree."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem import interval_table
from datastem.instants import FOR_EVER, SINCE_EVER
from datastem.interval_table import IntervalTable

_edges = st.integers(0, 12) | st.sampled_from((SINCE_EVER, FOR_EVER))
_steps = st.lists(st.tuples(_edges, _edges, st.booleans()), max_size=40)


@given(_steps, st.sampled_from((1, 4, 512)), st.sampled_from((0, 1, 200)))
def test_oracle_overlaps(steps: list[tuple[int, int, bool]], tree_from: int, scanned: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interval_table, "MIN_TREE_INTERVALS", tree_from)
        patch.setattr(interval_table, "SCANNED_PER_TREE_EDGE", scanned)
        table, entries, values = IntervalTable[int](), list[tuple[int, int, int]](), count()
        for first, second, removes in steps:
            if removes and entries:
                table.remove(*entries.pop(first % len(entries)))
            else:
                entries.append((first, second, next(values)))
                table.insert(*entries[-1])
            table._check()
            begin, end = min(first, second), max(first, second) + 1
            expected = [v for a, b, v in entries if a < b and a < end and begin < b]
            assert sorted(table.probe(begin, end)) == expected
        assert len(table) == len({(first, second) for first, second, _ in entries})


def test_what_is_not_here_is_not_removed() -> None:
    table = IntervalTable[str]()
    table.insert(1, 5, "one")
    with pytest.raises(KeyError):
        table.remove(1, 5, "two")
    with pytest.raises(KeyError):
        table.remove(1, 6, "one")
    assert [*table.probe(4, 5)] == ["one"] and not [*table.probe(5, 6)]
