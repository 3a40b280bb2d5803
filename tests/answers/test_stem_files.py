"""A few rows of a stem's files, picked by id, are those of the whole blocks: with gaps, several row
groups and files, rows in memory, and damage anywhere."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem.blocks import BLOCK_ROWS, SplitRows
from datastem.codec import stem_schema
from datastem.memory import Holding, Memory
from datastem.picking import pick_rows
from datastem.schema import Column, StreamSchema
from datastem.segments import RowSegment
from datastem.stem import DataStem
from datastem.stem_view import StemView
from datastem.types import BIGINT, BOOLEAN, DATE, DOUBLE, TEXT, TIMESTAMP, parse_type
from psoup.answers.replicas.stem_files import StemFiles
from psoup.store import CorruptStore, DataFile, DeltaFolder
from psoup.store.delta.files import write_data_file
from psoup.store.delta.reading import DataFileGone
from tests.damage import flip

TYPES = (BOOLEAN, BIGINT, DOUBLE, parse_type("DECIMAL(6,1)"), TEXT, TIMESTAMP, DATE)
STREAM = StreamSchema("s", tuple(Column(f"c{n}", type_) for n, type_ in enumerate(TYPES)))
SCHEMA = stem_schema(STREAM)
# Ids on both sides of the edges of blocks.
IDS = st.builds(
    lambda block, place: block * BLOCK_ROWS + place, st.integers(0, 2), st.integers(-20, 20)
).filter(lambda id_: id_ >= 0)


def rows_of(ids: Sequence[int]) -> pa.Table:
    """Rows with these ids. Their values follow from the ids, and a third of them is NULL."""

    def values(column: int, type_: pa.DataType) -> pa.Array:
        numbers = [None if (id_ + column) % 3 == 0 else id_ * (column + 1) for id_ in ids]
        if pa.types.is_boolean(type_):
            return pa.array([None if n is None else n % 4 < 2 for n in numbers], type_)
        if pa.types.is_decimal(type_):
            return pa.array(
                [None if n is None else Decimal(n % 99999) / 10 for n in numbers], type_
            )
        if pa.types.is_date(type_):
            return pa.array(numbers, pa.int32()).cast(type_)
        if pa.types.is_string(type_):
            return pa.array([None if n is None else f"text {n % 5}" for n in numbers], type_)
        return pa.array(numbers, pa.int64()).cast(type_)

    numbers = pa.array(ids, pa.int64())
    instants = numbers.cast(SCHEMA.field("_ts").type)
    system = [numbers, instants, numbers, instants, *[pa.nulls(len(ids), instants.type)] * 2]
    declared = [values(n, type_.arrow) for n, type_ in enumerate(TYPES)]
    operations = pa.array([0] * len(ids), pa.int8())
    return pa.Table.from_arrays([*system, operations, *declared], schema=SCHEMA)


@dataclass
class Files:
    """The files of a stem on disk."""

    root: Path
    written: list[DataFile]
    files: StemFiles

    def write(self, ids: Sequence[int], group_rows: int, bounds: bool) -> None:
        """Write a file. Without bounds it is read by row group, as one larger than a block is."""
        names = ("_row_id", "_ts") if bounds else ()
        edges = np.flatnonzero(np.diff(np.array(ids) // BLOCK_ROWS)) + 1
        self.written.append(
            write_data_file(
                self.root, rows_of(ids), bounds=names, sync=False, row_group_rows=group_rows,
                cuts=edges.tolist(),
            )
        )  # fmt: skip

    def views(self, high: int, memory: Memory) -> tuple[StemView, StemView]:
        """Views of the same rows: one of a stem that picks, one of a stem that reads blocks."""
        segments: list[RowSegment] = self.files.segments(self.written)
        picking = DataStem(memory, self.files.read, self.files.pick)
        reading = DataStem(memory, self.files.read)
        for stem in (picking, reading):
            stem.cover(stem.indexed(high, segments))
        return picking.view(), reading.view()


@contextmanager
def stored() -> Iterator[Files]:
    root = Path(tempfile.mkdtemp()) / "stems" / "1"
    root.mkdir(parents=True)
    try:
        yield Files(root, [], StemFiles(DeltaFolder(root), SCHEMA, Memory(1 << 20)))
    finally:
        shutil.rmtree(root.parent.parent)


def picked(view: StemView, ids: Sequence[int], names: Sequence[str]) -> list[dict[str, object]]:
    columns = ["_row_id", "_ts", *names]
    return [
        row
        for part, places in pick_rows(view, np.array(ids, np.int64), names)
        for row in part.rows.select(columns).take(pa.array(places)).to_pylist()
    ]


@st.composite
def contents(draw: st.DrawFn) -> list[list[int]]:
    """The ids of each file: any partition of some ids into runs, and perhaps a file whose rows lie
    between those of others, as one that was lost and is back."""
    ids = sorted(draw(st.sets(IDS, min_size=1, max_size=60)))
    dense = draw(st.booleans())
    if dense:
        ids = list(range(ids[0], ids[0] + len(ids)))
    cuts = sorted(draw(st.sets(st.integers(1, len(ids)), max_size=3)) | {len(ids)})
    runs = [ids[low:high] for low, high in zip([0, *cuts], cuts, strict=False)]
    if draw(st.booleans()) and len(runs[0]) > 2:
        low, high = sorted(draw(st.sets(st.integers(1, len(runs[0]) - 1), min_size=2, max_size=2))
                           if len(runs[0]) > 3 else (1, 2))  # fmt: skip
        runs.append(runs[0][low:high])
        runs[0] = runs[0][:low] + runs[0][high:]
    return [run for run in runs if run]


GROUP_ROWS = st.sampled_from([1, 3, 7, 1000])
COLUMNS = st.lists(st.sampled_from([f"c{n}" for n in range(len(TYPES))]), unique=True)


@given(contents(), GROUP_ROWS, st.data())
def test_picked_rows_are_those_of_whole_blocks(
    runs: list[list[int]], group_rows: int, data: st.DataObject
) -> None:
    with stored() as files:
        for run in runs:
            files.write(run, group_rows, data.draw(st.booleans()))
        ids = sorted(id_ for run in runs for id_ in run)
        view, whole = files.views(ids[-1] + 1, Memory(data.draw(st.sampled_from([0, 1 << 20]))))
        # Rows that no file has yet.
        if data.draw(st.booleans()):
            later = list(range(ids[-1] + 1, ids[-1] + 4))
            for stem in (view.stem, whole.stem):
                rows = SplitRows.of(rows_of(later).to_batches()[0])
                stem.insert(rows, later[0], later[-1] + 1)
            view, whole, ids = view.stem.view(), whole.stem.view(), [*ids, *later]
        for _ in range(3):
            requested_ids = sorted(
                {*data.draw(st.sets(st.sampled_from(ids))), *data.draw(st.sets(IDS))}
            )
            names = data.draw(COLUMNS)
            expected = rows_of([id_ for id_ in requested_ids if id_ in set(ids)])
            rows = expected.select(["_row_id", "_ts", *names]).to_pylist()
            assert picked(view, requested_ids, names) == rows == picked(whole, requested_ids, names)
            # A block that another answer has read is in memory from then on.
            if data.draw(st.booleans()):
                view.parts(data.draw(st.integers(0, 2)), view.high)


def test_an_id_between_two_row_groups_has_no_row() -> None:
    with stored() as files:
        files.write([0, 2], 1, False)
        view, _ = files.views(3, Memory(0))
        assert picked(view, [1], ["c1"]) == []


@given(contents(), GROUP_ROWS, st.data())
def test_a_damaged_file_gives_the_error_of_the_whole_block_or_right_rows(
    runs: list[list[int]], group_rows: int, data: st.DataObject
) -> None:
    with stored() as files:
        files.write(runs[0], group_rows, data.draw(st.booleans()))
        view, whole = files.views(runs[0][-1] + 1, Memory(0))
        path = files.root / files.written[0].path
        flip(path, data.draw(st.integers(0, 8 * path.stat().st_size - 1)))
        names = data.draw(COLUMNS)
        requested_ids = sorted(data.draw(st.sets(st.sampled_from(runs[0]), min_size=1)))
        expected = rows_of(requested_ids).select(["_row_id", "_ts", *names]).to_pylist()
        try:
            assert picked(view, requested_ids, names) == expected
        except CorruptStore as damage:
            with pytest.raises(CorruptStore) as error:
                picked(whole, requested_ids, names)
            assert error.value.file == damage.file == f"stems/1/{files.written[0].path}"


def test_damage_to_a_value_that_is_picked_is_noticed() -> None:
    ids, name = list(range(40)), "c1"
    for bounds in (True, False):
        with stored() as files:
            files.write(ids, 10, bounds)
            view, whole = files.views(40, Memory(0))
            path = files.root / files.written[0].path
            metadata = pa.parquet.read_metadata(path)
            column = metadata.row_group(2).column(metadata.schema.names.index(name))
            flip(path, 8 * (column.data_page_offset + column.total_compressed_size - 2))
            errors = []
            for damaged in (view, whole):
                with pytest.raises(CorruptStore) as error:
                    picked(damaged, [25], [name])
                errors.append(error.value.file)
            assert len(set(errors)) == 1
            # Other row groups are sound, and other columns.
            assert len(picked(view, [5, 15, 35], [name])) == 3 == len(picked(view, [5, 25, 35], []))


def test_a_file_that_is_gone_gives_the_error_of_the_whole_block() -> None:
    for bounds in (True, False):
        with stored() as files:
            files.write(range(40), 10, bounds)
            view, whole = files.views(40, Memory(0))
            (files.root / files.written[0].path).unlink()
            for without_file in (view, whole):
                with pytest.raises(DataFileGone):
                    picked(without_file, [25], ["c1"])


@given(contents(), GROUP_ROWS, st.data())
def test_a_view_before_a_merge_or_a_trim_picks_what_it_had(
    runs: list[list[int]], group_rows: int, data: st.DataObject
) -> None:
    with stored() as files:
        for run in runs:
            files.write(run, group_rows, data.draw(st.booleans()))
        ids = sorted(id_ for run in runs for id_ in run)
        before, _ = files.views(ids[-1] + 1, Memory(0))
        least = data.draw(st.sampled_from(ids))
        remaining = [id_ for id_ in ids if id_ >= least]
        files.written.clear()
        files.write(remaining, data.draw(GROUP_ROWS), data.draw(st.booleans()))
        index = before.stem.indexed(ids[-1] + 1, files.files.segments(files.written))
        before.stem.cover(index)
        requested_ids = sorted(data.draw(st.sets(st.sampled_from(ids))))
        assert [row["_row_id"] for row in picked(before, requested_ids, ["c1"])] == requested_ids
        after = [row["_row_id"] for row in picked(before.stem.view(), requested_ids, ["c1"])]
        assert after == [id_ for id_ in requested_ids if id_ >= least]


class ForgettingMemory(Memory):
    """A memory in whose `drop` another thread gets its turn, which forgets the files."""

    files: StemFiles

    def drop(self, key: Holding) -> None:
        super().drop(key)
        self.files.forget()


def test_files_that_another_thread_forgets_keep_their_runs_for_the_reader() -> None:
    with stored() as stem:
        memory = ForgettingMemory(1 << 20)
        memory.files = stem.files = StemFiles(DeltaFolder(stem.root), SCHEMA, memory)
        for ids in ([0, 1], [2, 3]):
            stem.write(ids, 1000, bounds=True)
        before, after = stem.written
        stem.files.segments([before])
        assert len(stem.files.segments([after])) == 1
