"""The data SteM compared with a list of rows: in memory, in files, or evicted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem.blocks import BLOCK_ROWS, MAX_MERGED_BYTES, Block, Part, SplitRows
from datastem.codec import stem_schema
from datastem.memory import Memory
from datastem.schema import Column, StreamSchema
from datastem.segments import Inserts, RowSegment
from datastem.stem import DataStem
from datastem.types import BIGINT

SCHEMA = stem_schema(StreamSchema("s", (Column("a", BIGINT),)))


def rows(ids: Sequence[int], ts: Sequence[int], stamp: int = 0) -> pa.RecordBatch:
    numbers = pa.array(ids, pa.int64())
    instants = pa.array(ts, pa.int64()).view(SCHEMA.field("_ts").type)
    stamps = pa.array([stamp] * len(ids), pa.int64())
    moments = stamps.view(SCHEMA.field("_stamp").type)
    columns = [numbers, instants, stamps, moments, moments, moments]
    ops = pa.array([0] * len(ids), pa.int8())
    return pa.RecordBatch.from_arrays([*columns, ops, numbers], schema=SCHEMA)


class Files:
    """Segments over rows in a list, and a log of inserts by their place; it counts reads."""

    def __init__(self) -> None:
        self.held: list[pa.RecordBatch] = []
        self.log: dict[int, pa.RecordBatch] = {}
        self.reads = 0
        self.blocks: set[int] = set()

    def read(
        self, segments: Sequence[RowSegment], lo: int, hi: int, names: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        self.reads += 1
        self.blocks.add(lo // BLOCK_ROWS)
        table = pa.concat_tables([self._table(segment) for segment in segments])
        ids = table["_row_id"].to_numpy()
        table = table.filter(pa.array((ids >= lo) & (ids < hi))).sort_by("_row_id")
        return table.combine_chunks().to_batches()[0] if table.num_rows else rows([], [])

    def _table(self, segment: RowSegment) -> pa.Table:
        if not isinstance(segment.source, Inserts):
            return pa.Table.from_batches([self.held[segment.source]], SCHEMA)
        places = segment.source.places(segment.row_lo, segment.row_hi)
        table = pa.Table.from_batches([self.log[place] for place in places], SCHEMA)
        ids = table["_row_id"].to_numpy()
        return table.filter(pa.array((ids >= segment.row_lo) & (ids < segment.row_hi)))

    def write(self, batch: pa.RecordBatch) -> None:
        self.held.append(batch)

    @property
    def segments(self) -> list[RowSegment]:
        segments = []
        for place, batch in enumerate(self.held):
            part = Part(batch)
            segments.append(RowSegment(part.first, part.stop, *part.bounds, place))
        return segments


def probe(stem: DataStem, begin: int | None, end: int, high: int | None = None) -> list[int]:
    row_ids: list[int] = []
    for part in stem.view().probe(begin, end, high):
        lo, hi = part.span(begin, end)
        inside = (part.ids >= lo) & (part.ids < hi) & (part.ts < end)
        if begin is not None:
            inside &= part.ts >= begin
        row_ids += part.ids[inside].tolist()
    return row_ids


BATCHES = st.lists(
    st.tuples(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(0, 40_000)),
    max_size=12,
)


@given(BATCHES, st.lists(st.integers(0, 12)), st.integers(-1, 41), st.integers(0, 42), st.data())
def test_oracle(
    batches: list[tuple[list[int], int]],
    covers: list[int],
    begin: int,
    end: int,
    data: st.DataObject,
) -> None:
    files, memory = Files(), Memory(data.draw(st.sampled_from([0, 500, 10**6])))
    logged = data.draw(st.booleans())
    probes = data.draw(st.sets(st.integers(0, 12)))
    stem, high = DataStem(memory, files.read), 0
    inserted: list[tuple[int, int]] = []
    pending: list[pa.RecordBatch] = []
    for number, (ts, gap) in enumerate(batches):
        ids = list(range(high + gap, high + gap + len(ts)))
        batch = rows(ids, ts)
        files.log[number] = batch
        stem.insert(SplitRows.of(batch), high, ids[-1] + 1, number if logged else None)
        high = ids[-1] + 1
        inserted += zip(ids, ts, strict=True)
        pending.append(batch)
        if number in covers:
            files.write(pa.concat_batches(pending))
            pending.clear()
            stem.cover(stem.indexed(high, files.segments))
            # The log is trimmed up to the epoch.
            files.log.clear()
        if logged:
            assert memory.used <= memory.limit or len(stem.view().blocks) == 1
        if number in probes:
            assert probe(stem, None, 50) == [i for i, _ in inserted]
    first = None if begin < 0 else begin
    expected = [i for i, t in inserted if (first is None or t >= first) and t < end]
    for _ in range(2):
        assert probe(stem, first, end) == expected
    limit = data.draw(st.integers(0, high + 1))
    assert probe(stem, first, end, limit) == [i for i in expected if i < limit]


def test_a_block_of_which_files_have_all_rows_is_not_pinned_by_the_tail() -> None:
    """Its last ids have no rows, so that it looked as if it was still growing."""
    files, memory = Files(), Memory(0)
    stem, high = DataStem(memory, files.read), 0
    for number, first in enumerate([10, BLOCK_ROWS, BLOCK_ROWS + 1]):
        files.log[number] = rows([first], [0])
        stem.insert(SplitRows.of(files.log[number]), high, first + 1, number)
        high = first + 1
        if number == 0:
            files.write(files.log.pop(0))
            stem.cover(stem.indexed(high, files.segments))
        assert probe(stem, None, 1) == [10, BLOCK_ROWS, BLOCK_ROWS + 1][: number + 1]
        assert len(stem.view().blocks) == 1


@given(st.lists(st.integers(1, 3000), max_size=60))
def test_a_block_has_few_parts(sizes: list[int]) -> None:
    block, at = Block(0), 0
    for size in sizes:
        if at + size > BLOCK_ROWS:
            break
        block = block.append(Part(rows(range(at, at + size), [0] * size)))
        at += size
    lengths = [len(part.ids) for part in block.parts]
    assert sum(lengths) == at
    assert all(earlier >= 2 * later for earlier, later in zip(lengths, lengths[1:], strict=False))


def test_an_append_copies_a_bounded_part_of_a_block_of_long_rows() -> None:
    text, block = "x" * (MAX_MERGED_BYTES // 64), Block(0)
    for number in range(40):
        batch = rows(range(10 * number, 10 * number + 10), [0] * 10)
        before, block = block, block.append(Part(batch.append_column("t", pa.array([text] * 10))))
        copied = [part for part in block.parts if not any(part is old for old in before.parts)]
        assert sum(part.nbytes for part in copied) <= MAX_MERGED_BYTES
    assert len(block.parts) <= 2 * block.nbytes // MAX_MERGED_BYTES
    assert [id_ for part in block.parts for id_ in part.ids.tolist()] == [*range(400)]
    for number in range(400, 500):
        block = block.append(Part(rows([number], [0]).append_column("t", pa.array(["short"]))))
    assert len(block.parts) <= 2 * block.nbytes // MAX_MERGED_BYTES + 7


def test_the_parts_of_a_large_insert_do_not_keep_it_in_memory() -> None:
    batch = rows(range(2 * BLOCK_ROWS), [0] * (2 * BLOCK_ROWS))
    for part in SplitRows.of(batch).parts.values():
        assert part.rows.get_total_buffer_size() < batch.nbytes * 3 // 4


def test_an_insert_copies_no_more_than_the_block_it_shares_with_earlier_rows() -> None:
    stem, count = DataStem(Memory(10**9), Files().read), 3 * BLOCK_ROWS
    stem.insert(SplitRows.of(rows(range(10), [0] * 10)), 0, 10)
    split = SplitRows.of(rows(range(10, count), [0] * (count - 10)))
    stem.insert(split, 10, count)
    blocks = stem.view().blocks
    assert [len(blocks[number].parts) for number in range(3)] == [1, 1, 1]
    assert all(blocks[number].parts[0] is split.parts[number] for number in (1, 2))


def test_rows_are_split_at_the_edges_of_blocks() -> None:
    ids = [0, 5, BLOCK_ROWS - 1, BLOCK_ROWS, 5 * BLOCK_ROWS + 1]
    parts = SplitRows.of(rows(ids, [0] * 5)).parts
    assert {number: part.ids.tolist() for number, part in parts.items()} == {
        0: [0, 5, BLOCK_ROWS - 1],
        1: [BLOCK_ROWS],
        5: [5 * BLOCK_ROWS + 1],
    }


@pytest.mark.parametrize("ids", [[3, 4, 5, 6], [3, 5, 9]])
def test_a_part_finds_rows_by_id(ids: list[int]) -> None:
    part = Part(rows(ids, [0] * len(ids)))
    row_ids = np.array([0, 3, 5, 6, 9, 12])
    places = part.find(row_ids)
    assert part.ids[places].tolist() == [i for i in ids if i in row_ids.tolist()]


def test_rows_only_in_the_log_stay_and_others_leave() -> None:
    files, memory = Files(), Memory(1)
    stem = DataStem(memory, files.read)
    for number in range(3):
        start = number * BLOCK_ROWS
        batch = rows(range(start, start + BLOCK_ROWS), [number] * BLOCK_ROWS)
        files.write(batch)
        stem.insert(SplitRows.of(batch), start, start + BLOCK_ROWS)
    used = memory.used
    stem.cover(stem.indexed(2 * BLOCK_ROWS, files.segments[:2]))
    assert memory.used <= used // 3 + 1
    assert len(probe(stem, 2, 3)) == BLOCK_ROWS
    assert files.reads == 0, "the tail is in memory"
    assert len(probe(stem, 0, 1)) == BLOCK_ROWS
    assert files.reads == 1, "one block was read"
    stem.forget()
    assert memory.used == 0


def test_the_tail_leaves_memory_and_is_read_again_from_the_log() -> None:
    files, memory = Files(), Memory(3 * rows(range(BLOCK_ROWS), [0] * BLOCK_ROWS).nbytes)
    stem, step, count = DataStem(memory, files.read), 10_000, 60
    for place in range(count):
        files.log[place] = rows(range(place * step, (place + 1) * step), [place] * step)
        stem.insert(SplitRows.of(files.log[place]), place * step, (place + 1) * step, place)
        assert memory.used <= memory.limit
    assert files.reads == 0
    assert probe(stem, None, count) == list(range(count * step))
    assert memory.used <= memory.limit
    files.reads = 0
    assert probe(stem, 3, 4) == list(range(3 * step, 4 * step))
    assert files.reads == 1, "the others are known by their ts to have none"
    stem.insert(SplitRows.of(rows([], [])), count * step, count * step + 5, count)
    assert probe(stem, count - 1, count) == list(range((count - 1) * step, count * step))


def test_blocks_of_the_tail_are_found_by_their_ts() -> None:
    """Full blocks and the growing one, before and after an epoch has some of them."""
    stem, half = DataStem(Memory(10**8), Files().read), BLOCK_ROWS // 2
    for place, ts in enumerate((30, 31, 10, 11, 20, 21, 5)):
        first = place * half
        stem.insert(
            SplitRows.of(rows(range(first, first + half), [ts] * half)), first, first + half, place
        )
    intervals = ((None, 100), (10, 11), (5, 6), (21, 31), (40, 50))
    for _ in range(2):
        view = stem.view()
        numbers = [view.numbers(begin, end, view.high) for begin, end in intervals]
        assert numbers == [[0, 1, 2, 3], [1], [3], [0, 2], []]
        stored = (
            RowSegment(0, 2 * half, 30, 31, "one"),
            RowSegment(2 * half, 3 * half, 10, 10, "two"),
        )
        stem.cover(stem.indexed(3 * half, stored))
    assert stem.view().numbers(11, 31, 3 * half) == [0, 1], "rows of the tail, of whatever id"


def test_how_far_the_stream_was_at_an_instant() -> None:
    files = Files()
    stem = DataStem(Memory(10**6), files.read)
    assert stem.view().high_at("_stamp", 10) == (0, None)
    for number, stamp in enumerate([10, 20, 20, 30]):
        start = number * 40_000
        batch = rows(range(start, start + 40_000), [0] * 40_000, stamp)
        stem.insert(SplitRows.of(batch), start, start + 40_000)
    expected = {9: (0, None), 10: (40_000, 10), 19: (40_000, 10), 20: (120_000, 20)}
    for instant, high_and_position in {**expected, 29: (120_000, 20), 30: (160_000, 30)}.items():
        assert stem.view().high_at("_stamp", instant) == high_and_position


def test_marks_that_are_null_come_first() -> None:
    stem = DataStem(Memory(10**6), Files().read)
    batches = [rows(range(n * 3, n * 3 + 3), [0] * 3, n) for n in range(3)]
    nulls = pa.nulls(3, SCHEMA.field("_before").type)
    batches[0] = batches[0].set_column(SCHEMA.names.index("_before"), "_before", nulls)
    for number, batch in enumerate(batches):
        stem.insert(SplitRows.of(batch), 3 * number, 3 * number + 3)
    view = stem.view()
    highs = [view.high_at("_before", most) for most in (-1, 0, 1, 2)]
    assert highs == [(3, 0), (3, 0), (6, 1), (9, 2)]
    assert [view.high_at("_position", most)[0] for most in (0, 1)] == [3, 6]
    assert view.first_from(3, "_before") == view.first_from(5, "_before") == 1
    assert view.first_from(9, "_before") is None
    first = view.first_from(0, "_before")
    assert first is not None and first < -(10**18)


def test_the_first_row_from_an_id_and_a_ts_on() -> None:
    stem = DataStem(Memory(10**6), Files().read)
    for number, ts in enumerate((5, 9, 7)):
        stem.insert(
            SplitRows.of(rows(range(number * 2, number * 2 + 2), [ts, 1], number)),
            number * 2,
            number * 2 + 2,
        )
    view = stem.view()
    positions = [view.first_from(high, "_position", 6) for high in (0, 3, 5)]
    assert positions == [1, 2, None]
    assert view.first_from(0, "_position", 10) is None


def test_recent_marks_are_found_in_the_newest_blocks() -> None:
    files = Files()
    stem = DataStem(Memory(1), files.read)
    for number in range(8):
        start = number * BLOCK_ROWS
        files.held.append(rows(range(start, start + BLOCK_ROWS), [0] * BLOCK_ROWS, number))
    stem.cover(stem.indexed(8 * BLOCK_ROWS, files.segments))
    for mark in range(-1, 9):
        files.blocks.clear()
        newest = min(mark, 7)
        expected = (0, None) if mark < 0 else ((newest + 1) * BLOCK_ROWS, newest)
        assert stem.view().high_at("_stamp", mark) == expected
        assert mark < 7 or files.blocks <= {7}


def test_an_error_while_reading_leaves_the_stem_as_it_was() -> None:
    files = Files()
    stem = DataStem(Memory(10**6), files.read)
    stem.cover(stem.indexed(10, [RowSegment(0, 10, 0, 9, 0)]))
    with pytest.raises(IndexError):
        probe(stem, None, 10)
    files.write(rows(range(10), range(10)))
    assert probe(stem, 3, 5) == [3, 4]


def test_a_block_read_before_it_was_full_is_read_again() -> None:
    files = Files()
    stem = DataStem(Memory(1), files.read)
    files.write(rows(range(10), [5] * 10))
    stem.cover(stem.indexed(10, files.segments))
    assert probe(stem, 5, 6) == list(range(10)), "half a block, from the files"
    later_rows = rows(range(10, BLOCK_ROWS + 10), [7] * BLOCK_ROWS)
    stem.insert(SplitRows.of(later_rows), 10, BLOCK_ROWS + 10)
    files.write(later_rows)
    stem.cover(stem.indexed(BLOCK_ROWS + 10, files.segments))
    assert probe(stem, 7, 8) == list(range(10, BLOCK_ROWS + 10))


def test_a_reader_overtaken_by_everything_keeps_no_half_block() -> None:
    files = Files()
    stem = DataStem(Memory(1), files.read)
    files.write(rows(range(10), [5] * 10))
    stem.cover(stem.indexed(10, files.segments))
    old = stem.view()
    later_rows = rows(range(10, 2 * BLOCK_ROWS), [5] * (2 * BLOCK_ROWS - 10))
    stem.insert(SplitRows.of(later_rows), 10, 2 * BLOCK_ROWS)
    files.write(later_rows)
    stem.cover(stem.indexed(2 * BLOCK_ROWS, files.segments))
    assert [part.ids.tolist() for part in old.probe(5, 6)] == [list(range(10))]
    assert probe(stem, 5, 6) == list(range(2 * BLOCK_ROWS))


@pytest.mark.parametrize(("first", "high"), [(5, 8), (11, 14), (10, 9)])
def test_rows_that_do_not_go_on_where_the_stem_stands_are_refused(first: int, high: int) -> None:
    stem = DataStem(Memory(10**6), Files().read)
    stem.insert(SplitRows.of(rows(range(10), [0] * 10)), 0, 10)
    with pytest.raises(ValueError, match="do not follow"):
        stem.insert(SplitRows.of(rows(range(first, high), [0] * max(0, high - first))), first, high)
    assert (stem.high, probe(stem, None, 50)) == (10, list(range(10)))


def test_what_is_read_of_a_forgotten_stem_is_not_kept() -> None:
    """Half a block would be pinned for ever, because no epoch covers it any more."""
    files, memory = Files(), Memory(10**6)
    stem = DataStem(memory, files.read)
    files.write(rows(range(10), [0] * 10))
    stem.cover(stem.indexed(10, files.segments))
    view = stem.view()
    stem.forget()
    assert [part.ids.tolist() for part in view.probe(None, 50)] == [list(range(10))]
    assert memory.used == 0


def test_the_ids_that_files_lack_tell_what_was_deleted() -> None:
    files = Files()
    stem = DataStem(Memory(1 << 20), files.read)
    for first, ts in ((0, 10), (100, 20), (200, 30), (300, 5)):
        batch = rows(range(first, first + 100), [ts] * 100)
        files.write(batch)
        stem.insert(SplitRows.of(batch), first, first + 100)
    every = files.segments
    stem.cover(stem.indexed(400, every))
    assert [stem.view().first_id(*span) for span in ((20, 21), (None, 6), (25, 99))] == [
        100,
        300,
        200,
    ]
    assert stem.view().first_id(40, 50) == 400, "no file has such rows"
    assert stem.view().is_whole(0)
    stem.cover(stem.indexed(400, every[1:]))
    assert not stem.view().is_whole(0) and stem.view().is_whole(100)
    stem.cover(stem.indexed(400, every[1:3]))
    assert not stem.view().is_whole(200) and stem.view().is_whole(400)


# ---- stems of which nothing is inserted

CHANGES = st.lists(
    st.tuples(st.sampled_from(["more", "more", "merged", "forgotten"]), st.integers(0, 4))
)


@given(CHANGES)
def test_oracle_a_stored_stem_has_the_rows_of_its_files(changes: list[tuple[str, int]]) -> None:
    """It does not matter what was read before, or what an older view reads at the same time."""
    files, named = Files(), list[int]()
    stem, high = DataStem(Memory(10**6), files.read, stored=True), BLOCK_ROWS - 5
    for what, count in changes:
        before = stem.view()
        if what == "merged" and named:
            files.write(pa.concat_batches([files.held[place] for place in named]))
        if what in ("merged", "forgotten"):
            named = [len(files.held) - 1] if what == "merged" and named else []
        if count:
            files.write(rows(range(high, high + count), [1] * count))
            named.append(len(files.held) - 1)
            high += count
        stem.cover(stem.indexed(high, [files.segments[place] for place in named]))
        now = [row for place in named for row in files.held[place].column("_row_id").to_pylist()]
        assert probe(stem, None, 2) == now
        list(before.probe(None, 2))
        assert probe(stem, None, 2) == now
