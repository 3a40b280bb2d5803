"""The engine on a real cluster: a Spark master and two workers, executors in other processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.support.system.fleet import Fleet
from tests.support.system.processes import REPOSITORY, Process, RunningStore
from tests.support.system.scenario import Scenario

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(900)]

SPARK = Path(pyspark.__file__).parent
WORKERS = 2
STEPS = 60


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The master's address. Workers have this project on their path, as an operator sees to."""
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
        yield address
    finally:
        for process in reversed(started):
            process.stop()


def _spark_class(name: str, arguments: list[str], log: Path) -> Process:
    local = ["--host", "127.0.0.1", "--webui-port", "0"]
    program = str(SPARK / "bin" / "spark-class")
    return Process([f"org.apache.spark.deploy.{name}", *local, *arguments], log, program)


def test_answers_are_the_naive_evaluation_with_executors_elsewhere(
    cluster: str, tmp_path: Path
) -> None:
    with RunningStore(tmp_path, master=cluster) as store, Fleet(store, servers=1) as fleet:
        store.start_engine()
        tenant = Scenario(fleet, 77)
        tenant.run(STEPS)
        fleet.settle()
        tenant.check_everything(0)
        assert tenant.tally["with rows"]
        executors = list((tmp_path / "work").glob("app-*/*/stderr"))
        assert len(executors) >= WORKERS
        assert fleet.client("main", 0).status().epoch > 0
