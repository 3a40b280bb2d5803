"""Steps and slices of back-fill are grids of rows × predicates; the tables do not depend on it."""

from __future__ import annotations

import os
import shutil
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from psoup.engine.engine import Engine
from psoup.engine.matching.backfill import SliceSizes
from psoup.engine.settings import EngineSettings
from psoup.engine.spark.jobs import Outcome, Probed, SparkJob, Spent, run_tasks
from psoup.engine.steps import step as step_module
from psoup.engine.steps.grid import StepCosts, StreamCost, cells
from psoup.engine.steps.pieces import IdRange
from psoup.engine.steps.worker import Intake, LogFile, Slice, fresh
from psoup.store import Entry, Store
from psoup.store.delta import commits as delta_commits
from psoup.store.delta import durable
from psoup.store.delta.checksums import Checks
from psoup.store.delta.files import DataFile
from psoup.store.errors import CorruptStore
from tests.support.engine.author import READINGS, Author, above, readings, sensor_is
from tests.support.engine.killing import Killed, Killer
from tests.support.engine.pump import Pump
from tests.support.engine.reading import (
    assert_joined,
    covered,
    covered_by,
    matched,
    matched_by,
    pieces,
    stem_rows,
)
from tests.support.lengths import short_first

# Enough equalities that they are hashed, and some intervals, which are not.
EQUALITIES, INTERVALS = 140, 12
ONE_TASK = EngineSettings(housekeeping=0.0, task_bytes=1 << 40)
GRID = EngineSettings(housekeeping=0.0, task_bytes=1, merge_files=4)


def write_log(store: Store) -> tuple[Author, int, list[int]]:
    author = Author(store)
    stream = author.create(READINGS)
    predicates = [author.register(stream, sensor_is(n))[1] for n in range(EQUALITIES)]
    predicates += [author.register(stream, above(10.0 * n))[1] for n in range(INTERVALS)]
    publish(author, stream, 3)
    return author, stream, predicates


def publish(author: Author, stream: int, count: int) -> None:
    for number in range(count):
        rng = np.random.default_rng(number)
        rows = readings(rng.integers(0, 200, 90).tolist(), rng.uniform(0, 130, 90).tolist())
        author.publish(stream, rows)


def divide(pump: Pump, stream: int, predicates: list[int]) -> Pump:
    """Let the next steps and slices believe that a row takes long."""
    ids = np.array(predicates)
    pump.memory.costs._streams[stream] = StreamCost(100.0, 0.0, ids, np.ones(len(ids)))
    pump.backfill._sizes._row_seconds[stream] = 100.0
    return pump


def tables(store: Store, stream: int, predicates: list[int]) -> object:
    return (
        stem_rows(store, stream),
        matched_by(store, predicates),
        covered_by(store, stream, predicates),
    )


def copy(origin: Store, folder: Path) -> Store:
    shutil.copytree(origin.root, folder)
    return Store.open(folder, sync=False)


@pytest.mark.spark
@pytest.mark.parametrize("task_bytes", [1, 1 << 40])
def test_tables_are_equal_whatever_the_grid(
    store: Store, tmp_path: Path, spark: SparkSession, task_bytes: int
) -> None:
    author, stream, predicates = write_log(store)
    tasks: list[int] = []

    def counted(*arguments: Any, **options: Any) -> list[Outcome]:
        tasks.append(len(arguments[3]))
        return run_tasks(*arguments, **options)

    whole = copy(store, tmp_path / "whole")
    for target, settings in (
        (whole, ONE_TASK),
        (store, EngineSettings(housekeeping=0.0, task_bytes=task_bytes)),
    ):
        pump = Pump(target, spark, settings)
        if target is store:
            divide(pump, stream, predicates)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(step_module, "run_tasks", counted)
            pump.step()
    assert tasks[0] == 1 and tasks[1] > 2
    assert tables(store, stream, predicates) == tables(whole, stream, predicates)
    # Every task of a chunk wrote the pieces of its own predicates.
    assert len(store.snapshot(store.epochs.latest()[1], "matches").files) > 2


@pytest.mark.spark
def test_backfill_and_merges_are_equal_whatever_the_grid(
    store: Store, tmp_path: Path, spark: SparkSession
) -> None:
    author = Author(store)
    stream = author.create(READINGS)
    publish(author, stream, 3)
    Pump(store, spark, ONE_TASK).run()
    predicates = [author.register(stream, sensor_is(n))[1] for n in range(EQUALITIES)]
    predicates += [author.register(stream, above(10.0 * n))[1] for n in range(INTERVALS)]
    publish(author, stream, 2)
    whole = copy(store, tmp_path / "whole")
    Pump(whole, spark, ONE_TASK).run()
    pump = divide(Pump(store, spark, GRID), stream, predicates)
    pump.step()
    slices = pump.backfill._slices
    groups: set[IdRange] = set()

    def noted(*arguments: Any) -> list[Slice]:
        work = slices(*arguments)
        groups.update(part.group for part in work)
        return work

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pump.backfill, "_slices", noted)
        pump.run()
    assert len(groups) > 1
    assert tables(store, stream, predicates) == tables(whole, stream, predicates)
    # Merges joined the files of different groups.
    assert len(pieces(store)) == len(pieces(whole))


# The commits after which a run of the test dies are this far apart.
EVERY = 2


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", short_first(range(EVERY)))
def test_a_grid_killed_between_any_two_commits(
    store: Store, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    _, stream, predicates = write_log(store)
    whole = copy(store, tmp_path / "whole")
    Pump(whole, spark, ONE_TASK).step()
    expected = tables(whole, stream, predicates)
    passed, is_killed = first, True
    while is_killed:
        victim = copy(store, tmp_path / f"victim-{passed}")
        monkeypatch.setattr(delta_commits, "put_if_absent", Killer(passed))
        try:
            divide(Pump(victim, spark, GRID), stream, predicates).step()
            is_killed = False
        except Killed:
            passed += EVERY
        monkeypatch.setattr(delta_commits, "put_if_absent", durable.put_if_absent)
        # What is not visible after a kill is done again.
        divide(Pump(victim, spark, GRID), stream, predicates).step()
        assert tables(victim, stream, predicates) == expected
    assert passed >= 4


def lose_a_worker(flag: Path, job: SparkJob, work: Intake) -> list[Outcome]:
    """Work in an executor whose process ends during one task of a grid."""
    if not work.stores and not flag.exists():
        flag.touch()
        os._exit(9)
    return fresh(job, work)


@pytest.mark.spark
def test_a_worker_lost_in_a_grid(
    store: Store, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, stream, predicates = write_log(store)
    whole = copy(store, tmp_path / "whole")
    Pump(whole, spark, ONE_TASK).step()
    flag = tmp_path / "lost"
    monkeypatch.setattr(step_module, "fresh", partial(lose_a_worker, flag))
    engine = Engine(store, spark, GRID)
    ids = np.array(predicates)
    engine._memory.costs._streams[stream] = StreamCost(100.0, 0.0, ids, np.ones(len(ids)))
    engine.start()
    try:
        engine.wait_idle()
    finally:
        engine.stop()
    assert flag.exists()
    assert tables(store, stream, predicates) == tables(whole, stream, predicates)


@pytest.mark.spark
def test_many_new_predicates_leave_the_rows_of_their_step_to_back_fill(
    store: Store, author: Author, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_module, "_MAX_NEW_PREDICATES", 2)
    stream = author.create(READINGS)
    _, old = author.register(stream, above(5.0))
    pump = Pump(store, spark)
    pump.step()
    author.publish(stream, readings([1, 2, 3], [1.0, 10.0, 20.0]))
    new = [author.register(stream, sensor_is(number))[1] for number in (1, 2, 3)]
    pump.step()
    assert covered(store, stream, old) == [(0, 3)] and matched(store, old) == [1, 2]
    assert [covered(store, stream, id_) for id_ in new] == [[], [], []]
    assert not any(matched(store, id_) for id_ in new)
    author.publish(stream, readings([1], [1.0]))
    pump.step()
    assert covered(store, stream, new[0]) == [(3, 4)] and matched(store, new[0]) == [3]
    pump.run()
    meanings = {id_: lambda row, n=n: row["sensor"] == n for n, id_ in enumerate(new, 1)}
    assert_joined(store, stream, {old: lambda row: row["value"] > 5, **meanings})


@pytest.mark.spark
def test_a_hole_counts_once_and_every_group_must_see_it(
    store: Store, author: Author, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = author.create(READINGS)
    predicates = [author.register(stream, above(10.0 * n))[1] for n in range(4)]
    author.publish(stream, readings([1], [50.0]))
    author.publish_bytes(stream, b"not a batch", 3, 0, 0)
    divide(Pump(store, spark, GRID), stream, predicates).step()
    (hole,) = store.epochs.latest()[1].losses.holes
    assert (hole.row_lo, hole.row_hi) == (1, 4)
    assert matched_by(store, predicates) == dict.fromkeys(predicates, [0])
    units = [Intake((), {}, {}), Intake((), {}, {}, stores=False)]
    with pytest.raises(ValueError, match="1 of 0 tasks"):
        step_module._check_hole(hole, 1, units)


# ---- headers read ahead


@pytest.mark.spark
def test_headers_are_read_while_tasks_run(
    store: Store, author: Author, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = author.create(READINGS)
    _, predicate = author.register(stream, above(0.0))
    publish(author, stream, 2)
    end = author.state.position.version
    publish(author, stream, 2)
    author.register(stream, above(60.0))
    pump = Pump(store, spark)
    pump.step(end)
    read: list[int] = []
    headers = step_module._headers

    def noted(root: Path, file: LogFile) -> list[Entry]:
        read.append(file.version)
        return headers(root, file)

    monkeypatch.setattr(step_module, "_headers", noted)
    publish(author, stream, 1)
    pump.step()
    # Only the commit that came after the first step had begun.
    assert read == [author.state.position.version]
    assert_joined(store, stream, {predicate: lambda row: row["value"] > 0})


@pytest.mark.spark
def test_damage_ahead_is_reported_by_the_step_that_needs_it(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream = author.create(READINGS)
    publish(author, stream, 1)
    end = author.state.position.version
    publish(author, stream, 1)
    pump = Pump(store, spark)
    file = store.log.file(end + 1)
    assert file is not None
    path = store.log.folder.root / file.path
    content = path.read_bytes()
    path.write_bytes(content[:100])
    pump.step(end)
    assert len(stem_rows(store, stream)) == 90
    with pytest.raises(CorruptStore):
        pump.step()
    path.write_bytes(content)
    pump = Pump(store, spark)
    pump.step()
    assert len(stem_rows(store, stream)) == 180


# ---- sizes


@given(
    st.lists(st.integers(1, 10**6), unique=True, max_size=200),
    st.floats(0, 100),
    st.floats(0, 1),
    st.integers(1, 64),
    st.integers(1, 10**6),
)
def test_every_predicate_is_in_one_group(
    ids: list[int], divided: float, repeated: float, most: int, end: int
) -> None:
    costs = StepCosts()
    costs._streams[1] = StreamCost(divided, repeated, np.array(sorted(ids)), np.ones(len(ids)))
    ranges = costs.groups(1, 10, most, end)
    assert len(ranges) <= most
    assert ranges[0][0] == 0 and ranges[-1][1] == end
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
    assert costs.groups(2, 10, most, end) == [(0, end)]


def test_groups_hold_equally_many_graph_predicates() -> None:
    costs = StepCosts()
    # 900 of 1,000 graph predicates have ids above 100,000; what took 8 s is divided by 4.
    probed = [
        Probed(1, 0, 1000, 4.0, 0.0, 100, tuple(range(0, 100_000, 2000))),
        Probed(1, 100_000, 1000, 4.0, 0.0, 900, tuple(range(100_000, 200_000, 2000))),
    ]
    costs.note([*probed, Spent(8.0)], 1 << 20)
    ranges = costs.groups(1, 1000, 4, 1 << 40)
    counts = [sum(100 / 50 for n in probed[0].sample if lo <= n < hi) for lo, hi in ranges]
    counts = [
        count + sum(900 / 50 for n in probed[1].sample if lo <= n < hi)
        for count, (lo, hi) in zip(counts, ranges, strict=True)
    ]
    assert len(ranges) == 4 and max(counts) - min(counts) <= 40
    # Small chunks are not divided, nor those whose hashed probes would be repeated too often.
    assert costs.groups(1, 100, 4, 1 << 40) == [(0, 1 << 40)]
    costs.note([Probed(1, 0, 1000, 16.0, 8.0)] * 40, 1 << 20)
    assert len(costs.groups(1, 1000, 4, 1 << 40)) == 1


def test_a_step_follows_the_cluster_and_its_time() -> None:
    costs, settings = StepCosts(), EngineSettings()
    two, many = costs.limits(settings, 2), costs.limits(settings, 64)
    assert (two.commits, two.bytes) == (256, 64 << 20)
    assert (many.commits, many.bytes) == (8192, 2048 << 20)
    set_ = EngineSettings(step_bytes=1 << 20, step_commits=7)
    assert (costs.limits(set_, 64).commits, costs.limits(set_, 64).bytes) == (7, 1 << 20)
    # A short step does not count.
    costs.note([Spent(0.5)], 1)
    assert costs.limits(settings, 2) == two
    # 4 s for each MB: ten seconds of 8 cores are 20 MB, and never less than one task.
    costs.note([Spent(2.0), Spent(2.0)], 1 << 20)
    assert costs.limits(settings, 8).bytes == 20 << 20
    costs.note([Spent(1e6)], 1 << 20)
    assert costs.limits(settings, 8).bytes == settings.task_bytes


def test_cells_are_chunks_times_groups() -> None:
    costs = StepCosts()
    costs._streams[1] = StreamCost(1.0, 0.0, np.arange(100), np.ones(100))
    schemas = {1: READINGS, 2: READINGS, 3: READINGS}
    file = DataFile("part", 1, 1, Checks(0, 0))
    chunks = [(LogFile(version, file),) for version in (7, 8, 9)]
    rows = {7: {1: 10, 2: 10}, 8: {2: 5, 9: 1}}
    units = cells(chunks, rows, schemas, {2: 50}, costs, 8)
    # Two chunks have rows, so each may have 8 tasks on 8 cores.
    assert [sorted(unit.schemas) for unit in units] == [[1, 2], *[[1]] * 7, [2]]
    assert [unit.stores for unit in units] == [True, *[False] * 7, True]
    assert units[0].groups[2] == units[-1].groups[2] == (0, 50)


@pytest.mark.parametrize("parallelism", [1, 8])
@pytest.mark.parametrize("fixed", [0.02, 0.1, 0.5, 3.0])
def test_slices_follow_throughput_not_the_cost_of_a_job(parallelism: int, fixed: float) -> None:
    settings = EngineSettings()
    sizes = SliceSizes(settings, parallelism)
    rate = 1e6
    for _ in range(20):
        rows = sizes.rows(1, 0)
        seconds = rows / rate / parallelism
        sizes.note(1, rows, fixed + seconds, [seconds] * parallelism)
    if fixed <= 0.2 * settings.slice_seconds:
        assert fixed <= 0.21 * (fixed + seconds)
        assert fixed + seconds <= settings.slice_seconds
    # A slow cluster does not settle at tiny slices.
    assert seconds >= 0.8 * min(fixed, settings.slice_seconds)


def test_a_slice_gives_each_core_whole_blocks() -> None:
    sizes = SliceSizes(EngineSettings(slice_rows=20 << 16), 8)
    assert sizes.rows(1, 100 << 16) == 24 << 16
    assert sizes.rows(1, (100 << 16) + 5) == (23 << 16) + 5
    small = SliceSizes(EngineSettings(slice_rows=1000), 8)
    assert small.rows(1, 100 << 16) == 1000
