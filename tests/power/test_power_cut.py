"""Whenever the power fails, acknowledged rows are stored once and every answer is right.

One run of a real server and a real engine is recorded, and cut at many moments. A server opens each
result, sometimes after an engine has.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from psoup.engine.repair.recover import open_ledger
from psoup.server.main import Server
from psoup.server.settings import Settings
from psoup.store import Store
from tests.power.disk import Recording
from tests.power.engine import EAGER
from tests.power.recorder import Journal, environment
from tests.power.world import STREAMS, Clients, check
from tests.support.engine.pump import Pump
from tests.support.lengths import scaled
from tests.support.system.processes import START_SECONDS, RunningStore

# In the group of the one test that needs Spark, so that one recording serves all of them: it takes
# an engine.
pytestmark = [pytest.mark.process, pytest.mark.xdist_group("spark")]

SEED = 20261117


def record(folder: Path, epochs: int) -> Recording:
    """Run a server and an engine under load until there are enough epochs; then kill both."""
    store, journal = folder / "store", folder / "journal"
    variables = environment(store, journal)
    running = RunningStore(folder, environment=variables, engine_module="tests.power.engine")
    with closing(Journal(store, journal)) as notes, running:
        clients = Clients(running.start_server(), notes)
        for stream in STREAMS:
            clients.define(stream)
        engine = running.start_engine(ready=False)
        deadline = time.monotonic() + START_SECONDS
        last = store / "epochs" / "_delta_log" / f"{epochs:020d}.json"
        clients.work(lambda: last.exists() or not engine.alive or time.monotonic() > deadline)
        assert last.exists(), (folder / "engine.log").read_text()
    return Recording(journal)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return record(tmp_path_factory.mktemp("power"), 20)


def cuts(recording: Recording, count: int, rng: random.Random) -> Iterator[int]:
    """Return moments: half of them anywhere, half at changes of checkpoints and commits."""
    near = recording.near("checkpoint.parquet") + recording.near("_last_checkpoint")
    for number in range(count):
        if number % 2 and near:
            yield min(len(recording), rng.choice(near) + rng.randrange(1, 12))
        else:
            yield rng.randrange(len(recording) + 1)


async def open_and_check(store: Path, marks: list[object]) -> None:
    server = Server(Settings(store=store, host="127.0.0.1", port=0))
    await server.start()
    try:
        await asyncio.to_thread(check, f"127.0.0.1:{server.port}", marks)
    finally:
        await server.stop()


def try_cut(recording: Recording, cut: int, folder: Path, rng: random.Random) -> None:
    recording.restore(cut, folder, rng)
    if rng.random() < 0.3:
        open_ledger(Store.open(folder, create=True))
    asyncio.run(open_and_check(folder, recording.marks(cut)))
    shutil.rmtree(folder)


def test_the_recording_has_what_it_is_made_for(recording: Recording) -> None:
    kinds = {event[0] for event in recording.events}
    assert kinds == {"name", "drop", "file", "folder", "mark"}
    assert len(recording.marks(len(recording))) > 20
    assert recording.near("checkpoint.parquet")
    dropped = [event for event in recording.events if event[0] == "drop"]
    assert any(event[2].endswith("0.json") and "_delta_log" in event[1] for event in dropped)


def test_nothing_acknowledged_is_lost(recording: Recording, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    for number, cut in enumerate(cuts(recording, scaled(15), rng)):
        try_cut(recording, cut, tmp_path / f"{number}-{cut}", rng)


def test_an_engine_goes_on_from_a_cut(
    recording: Recording, tmp_path: Path, spark: SparkSession
) -> None:
    rng = random.Random(SEED)
    for number, cut in enumerate(cuts(recording, 2, rng)):
        folder = tmp_path / f"{number}-{cut}"
        recording.restore(cut, folder, rng)
        Pump(Store.open(folder, create=True), spark, EAGER).run()
        asyncio.run(open_and_check(folder, recording.marks(cut)))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_nothing_acknowledged_is_lost_in_many_cuts(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    recording = record(tmp_path, 400)
    for number, cut in enumerate(cuts(recording, 2000, rng)):
        try_cut(recording, cut, tmp_path / f"{number}-{cut}", rng)
