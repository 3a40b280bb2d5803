"""A stand-by takes over from an engine that has ended or stands still."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from psoup.engine.errors import SecondEngine
from psoup.engine.ownership import standby
from psoup.engine.ownership.lock import EngineLock
from psoup.engine.ownership.standby import stand_by, take_over, wait_for_end
from psoup.store import Store, presence
from psoup.store.epochs import Epoch
from psoup.store.errors import Repairing
from psoup.store.presence import ClockRepair, Pulse, leave_note
from tests.support.engine.author import READINGS, Author, above, readings
from tests.support.engine.reading import assert_joined, stem_rows

ROOT = Path(__file__).parents[2]
PATIENCE = 150.0


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "PULSE_SECONDS", 0.01)
    monkeypatch.setattr(standby, "_LOOK_SECONDS", 0.005)
    monkeypatch.setattr(standby, "_ENDED_SECONDS", 0.05)
    monkeypatch.setattr(standby, "ENGINE_TIMEOUT_SECONDS", 1.0)


@pytest.mark.usefixtures("hurried")
def test_it_waits_for_a_pulse_that_stands_still(tmp_path: Path) -> None:
    lock, ending = EngineLock(tmp_path), threading.Event()
    assert wait_for_end(tmp_path, ending), "there is no engine"
    lock.acquire()
    threading.Timer(1.5, ending.set).start()
    assert not wait_for_end(tmp_path, ending), "the engine's pulse goes on"
    # The pulse of a killed engine stays in the file.
    pulse = Pulse.read(tmp_path)
    assert pulse is not None
    lock.release()
    ending.clear()
    with (tmp_path / presence.ENGINE_LOCK).open("wb") as file:
        pulse.write(file.fileno())
    assert wait_for_end(tmp_path, ending)


def _same(latest: tuple[int, Epoch]) -> tuple[int, Epoch]:
    return latest


@pytest.mark.usefixtures("hurried")
def test_of_two_stand_bys_one_takes_over(store: Store) -> None:
    former = EngineLock(store.root)
    former.acquire()
    locks = [EngineLock(store.root) for _ in range(2)]
    stores = [Store.open(store.root, sync=False) for _ in range(2)]
    newest = [rival.epochs.latest() for rival in stores]
    # Both have seen the same last epoch.
    for rival, latest in zip(stores, newest, strict=True):
        vars(rival.epochs)["latest"] = partial(_same, latest)
    assert [take_over(*pair) for pair in zip(stores, locks, strict=True)] == [True, False]
    version, epoch = store.epochs.latest()
    assert (version, epoch.kind, epoch.number) == (newest[0][0] + 1, "takeover", 1)
    # The former engine keeps a lock that is worth nothing, and its end does not look like ours.
    with pytest.raises(SecondEngine, match="has taken over"):
        former.acquire()
    with pytest.raises(SecondEngine, match="already runs"):
        EngineLock(store.root).acquire()
    former.release()
    assert Pulse.read(store.root) is not None
    locks[0].acquire()
    locks[0].release()
    assert Pulse.read(store.root) is None


@pytest.mark.usefixtures("hurried")
def test_it_does_not_take_over_a_store_that_has_to_be_repaired(store: Store) -> None:
    leave_note(store.root, ClockRepair(1, 1, "x"))
    with pytest.raises(Repairing):
        stand_by(store.root, EngineLock(store.root), threading.Event())
    assert store.epochs.latest()[0] == 0


class Process:
    """An engine or a stand-by as a process."""

    def __init__(self, store: Store, output: Path, *options: str) -> None:
        self._output = output
        command = [sys.executable, "-m", "psoup.engine", "--store", str(store.root), *options]
        with output.open("wb") as sink:
            self.process = subprocess.Popen(
                [*command, "--master", "local[1]"],
                cwd=ROOT,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        return self._output.read_text()

    def wait_for(self, line: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while line not in self.output:
            assert self.process.poll() is None and time.monotonic() < deadline, self.output
            time.sleep(0.05)


Start = Callable[..., Process]


@pytest.fixture
def start(store: Store, tmp_path: Path) -> Iterator[Start]:
    processes: list[Process] = []

    def start_one(*options: str) -> Process:
        processes.append(Process(store, tmp_path / f"engine-{len(processes)}.log", *options))
        return processes[-1]

    yield start_one
    for started in processes:
        started.process.kill()
        started.process.wait()


@contextmanager
def stopped(process: Process) -> Iterator[None]:
    process.process.send_signal(signal.SIGSTOP)
    yield
    process.process.send_signal(signal.SIGCONT)


@pytest.mark.spark
@pytest.mark.process
def test_ctrl_c_ends_a_stand_by_that_waits(store: Store, start: Start) -> None:
    lock = EngineLock(store.root)
    lock.acquire()
    waiting = start("--standby")
    waiting.wait_for("engine stands by")
    pulse = Pulse.read(store.root)
    assert pulse is not None and pulse.pid == os.getpid(), "a stand-by shows no pulse"
    waiting.process.send_signal(signal.SIGINT)
    assert waiting.process.wait(PATIENCE) == 0
    assert "Traceback" not in waiting.output
    assert store.epochs.latest()[0] == 0
    lock.release()


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.timeout(900)
@pytest.mark.long
def test_it_takes_over_from_a_slow_engine_and_from_a_killed_one(
    store: Store, author: Author, start: Start
) -> None:
    stream = author.create(READINGS)
    _, predicate = author.register(stream, above(5.0))

    def publish(count: int) -> None:
        for number in range(count):
            author.publish(stream, readings([number, number], [float(number), 9.0]))

    def wait_until_done() -> None:
        deadline = time.monotonic() + PATIENCE
        while store.epochs.latest()[1].position < author.state.position:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    first = start("--standby")
    first.wait_for("engine ready")
    second = start("--standby")
    second.wait_for("engine stands by")
    publish(10)
    wait_until_done()
    # Within a step, or between two.
    publish(20)
    with stopped(first):
        publish(20)
        second.wait_for("engine ready")
        third = start("--standby")
        wait_until_done()
        pulse = Pulse.read(store.root)
        assert pulse is not None and pulse.pid == second.pid
    assert first.process.wait(PATIENCE) == 1, "the former engine ends by itself"
    assert "another engine" in first.output
    pulse = Pulse.read(store.root)
    assert pulse is not None and pulse.pid == second.pid, "its end is not that of the new one"
    publish(10)
    wait_until_done()
    third.wait_for("engine stands by")
    second.process.kill()
    publish(10)
    third.wait_for("engine ready")
    publish(10)
    wait_until_done()
    assert [row["_row_id"] for row in stem_rows(store, stream)] == list(range(160))
    assert_joined(store, stream, {predicate: lambda row: row["value"] > 5.0})
