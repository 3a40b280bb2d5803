"""The engine on a real cluster: a Spark master and two workers, executors in other processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from psoup.store import Store
from querystem.expressions import TRUE
from tests.support.engine.author import OTHER, READINGS, Author, above, readings
from tests.support.engine.composites import (
    assert_complete,
    combinations,
    equal,
    mark_of,
    register_join,
)
from tests.support.engine.reading import matched
from tests.support.system.fleet import Fleet
from tests.support.system.processes import REPOSITORY, Process, RunningStore
from tests.support.system.scenario import Scenario

pytestmark = [pytest.mark.long, pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(900)]

SPARK = Path(pyspark.__file__).parent
WORKERS = 2
STEPS = 60


@dataclass(frozen=True)
class Cluster:
    """The address of a Spark master, and its workers."""

    master: str
    workers: list[Process]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Workers have this project on their path, as an operator must ensure."""
    monkeypatch.setenv("SPARK_HOME", str(SPARK))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    started: list[Process] = []
    try:
        master = _spark_class("master.Master", ["--port", "0"], tmp_path / "master.log")
        started.append(master)
        address = master.wait_for(r"Starting Spark master at (spark://\S+)")[1]
        for number in range(WORKERS):
            limits = ["--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "work")]
            log = tmp_path / f"worker-{number}.log"
            started.append(_spark_class("worker.Worker", [*limits, address], log))
        for worker in started[1:]:
            worker.wait_for("Successfully registered with master")
        yield Cluster(address, started[1:])
    finally:
        for process in reversed(started):
            process.stop()


def _spark_class(name: str, arguments: list[str], log: Path) -> Process:
    local = ["--host", "127.0.0.1", "--webui-port", "0"]
    program = str(SPARK / "bin" / "spark-class")
    return Process([f"org.apache.spark.deploy.{name}", *local, *arguments], log, program)


def test_answers_are_the_naive_evaluation_with_executors_elsewhere(
    cluster: Cluster, tmp_path: Path
) -> None:
    with RunningStore(tmp_path, master=cluster.master) as store, Fleet(store, servers=1) as fleet:
        store.start_engine()
        tenant = Scenario(fleet, 77)
        tenant.run(STEPS)
        fleet.settle()
        tenant.check_everything(0)
        assert tenant.tally["with rows"]
        executors = list((tmp_path / "work").glob("app-*/*/stderr"))
        assert len(executors) >= WORKERS
        assert fleet.client("main", 0).status().epoch > 0


def test_executors_can_have_a_python_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that `venv-pack` ships: PYSPARK_PYTHON is kept on a cluster."""
    calls, python = tmp_path / "calls", tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho >> {calls}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(SPARK))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    store = Store.open(tmp_path / "store", create=True)
    author = Author(store)
    stream = author.create(READINGS)
    _, predicate = author.register(stream, above(1.0))
    position = author.publish(stream, readings([1, 2], [1.0, 2.0]))
    with RunningStore(tmp_path, master="local-cluster[2,1,1024]") as running:
        engine_process = running.start_engine()
        deadline = time.monotonic() + SECONDS
        while store.epochs.latest()[1].position < position:
            assert time.monotonic() < deadline, engine_process.text()
            time.sleep(0.1)
    assert matched(store, predicate) == [1]
    assert calls.exists()


SECONDS = 600


@pytest.mark.parametrize("engine", ["psoup.engine", "tests.support.engine.spark_joins"])
def test_composites_are_found_with_executors_elsewhere(
    cluster: Cluster, tmp_path: Path, engine: str
) -> None:
    """Old rows are joined by Arrow in tasks or by Spark, then rows that arrive."""
    store = Store.open(tmp_path / "store", create=True)
    author = Author(store)
    left_stream, right_stream = author.create(READINGS), author.create(OTHER)
    for _ in range(3):
        author.publish(left_stream, readings(list(range(400)), [float(n) for n in range(400)]))
        author.publish(right_stream, readings(list(range(100, 500)), [1.0] * 400))
    join = register_join(author, [(left_stream, above(199.0)), (right_stream, TRUE)], [equal(0, 1)])
    with RunningStore(tmp_path, master=cluster.master, engine_module=engine) as running:
        engine_process = running.start_engine()
        wait_for_box(store, join.composite_id, (1200, 1200), engine_process)
        author.publish(left_stream, readings([450, 250], [450.0, 250.0]))
        author.publish(right_stream, readings([250], [1.0]))
        wait_for_box(store, join.composite_id, (1202, 1201), engine_process)
    assert_complete(store, join)
    # 200 keys with 3 rows of each stream; 450 finds 3, 250 finds 3 and 4 find the last row.
    assert len(combinations(store, join.composite_id)) == 200 * 9 + 3 + 3 + 4


def test_a_worker_that_is_lost_costs_a_retry_and_no_combination(
    cluster: Cluster, tmp_path: Path
) -> None:
    """It dies while rows keep arriving, so that a step has a task there."""
    store = Store.open(tmp_path / "store", create=True)
    author = Author(store)
    left_stream, right_stream = author.create(READINGS), author.create(OTHER)
    join = register_join(author, [(left_stream, TRUE), (right_stream, TRUE)], [equal(0, 1)])
    with RunningStore(tmp_path, master=cluster.master) as running:
        engine_process = running.start_engine()
        wait_for_box(store, join.composite_id, (0, 0), engine_process)
        for number in range(40):
            author.publish(left_stream, readings([number, number + 1], [1.0, 2.0]))
            author.publish(right_stream, readings([number], [3.0]))
            if number == 20:
                cluster.workers[0].kill()
        wait_for_box(store, join.composite_id, (80, 40), engine_process)
    assert_complete(store, join)
    assert len(combinations(store, join.composite_id)) == 2 * 40 - 1


def wait_for_box(store: Store, composite_id: int, highs: tuple[int, ...], engine: Process) -> None:
    """Wait until a composite's box holds all rows."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if composite_id in store.epochs.latest()[1].composites:
            mark = mark_of(store, composite_id)
            if mark.since == 0 and mark.highs == highs:
                return
        time.sleep(0.1)
    marks = store.epochs.latest()[1].composites
    raise AssertionError(f"no box of {highs}: {marks}\n{engine.text()}")
