"""A store cut at any moment opens, for servers and engines, with all that was acknowledged."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from psoup.engine.repair.recover import open_ledger
from psoup.store import Data, Entry, State, Store
from tests.power.disk import Recording
from tests.power.recorder import environment
from tests.support.lengths import scaled
from tests.support.system.processes import REPOSITORY

SEED = 11


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("by-hand")
    store, journal = folder / "store", folder / "journal"
    variables = os.environ | environment(store, journal)
    command = [sys.executable, "-m", "tests.power.by_hand", str(store), str(journal)]
    subprocess.run(command, cwd=REPOSITORY, env=variables, check=True)
    return Recording(journal)


def tail(store: Store) -> tuple[State, list[Entry]]:
    """Return the state at the log's end, as a server has it, and the events it read from the
    log."""
    _, epoch = store.epochs.latest()
    store.log.prove_end(epoch.log_version)
    state, entries = store.state(epoch), []
    for version in range(epoch.log_version + 1, store.log.latest_version(epoch.log_version) + 1):
        entries += store.log.read(version)
    for entry in entries:
        state.apply(entry)
    return state, entries


def try_cut(recording: Recording, cut: int, folder: Path, rng: random.Random) -> None:
    recording.restore(cut, folder, rng)
    store = Store.open(folder, create=True, sync=False)
    state, entries = tail(store)
    acknowledged = max(recording.marks(cut), default=0)
    assert state.position.version >= acknowledged
    ledger = open_ledger(store)
    stored = sum(file.rows for name in ledger.tables if "/" in name for file in ledger.files(name))
    logged = sum(isinstance(entry.event, Data) for entry in entries)
    assert stored + logged == sum(stream.high for stream in state.streams.values())
    assert stored + logged >= sum(mark <= acknowledged for mark in set(recording.marks(cut)))
    if rng.random() < 0.2:
        for name in ledger.tables:
            ledger.folder(name).checkpoint()
    shutil.rmtree(folder)


def test_a_store_opens_after_any_cut(recording: Recording, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    for number in range(scaled(40)):
        try_cut(recording, rng.randrange(len(recording) + 1), tmp_path / str(number), rng)


@pytest.mark.soak
def test_a_store_opens_after_every_cut(recording: Recording, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    for cut in range(len(recording) + 1):
        try_cut(recording, cut, tmp_path / str(cut), rng)
