"""A store of format 1 is upgraded when it is opened; what then lacks a checksum is damage."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import deltalake
import pytest

from psoup.store import CorruptStore, Store, UnsupportedFormat
from psoup.store.log.events import Upgrade
from tests.formats.story import HERE


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store of format 1, not opened yet."""
    with tarfile.open(HERE / "format-1.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "store"


OPEN = "import sys; from psoup.store import Store; Store.open(sys.argv[1]); print('opened')"


def without_hash(commit: Path) -> None:
    """As if the field had never been there: a flipped bit in its name is enough."""
    commit.write_bytes(commit.read_bytes().replace(b"psoupHash", b"psoupHasi"))


def test_opening_upgrades_once_and_the_log_names_the_versions(old: Path) -> None:
    store = Store.open(old)
    version = store.log.latest_version()
    (entry,) = store.log.read(version)
    assert isinstance(entry.event, Upgrade) and entry.event.format == 2
    assert entry.event.checked == store.checked and store.checked["log"] == version
    assert {"epochs", "matches", "stems/1"} <= store.checked.keys()
    assert Store.open(old).log.latest_version() == version
    table = deltalake.DeltaTable(old / "log")
    assert json.loads(table.metadata().description)["psoup"] == 2
    assert "clock" in [field.name for field in table.schema().fields]


def test_the_upgrade_is_known_from_a_checkpoint_alone(old: Path) -> None:
    store = Store.open(old)
    checked, log = store.checked, store.log.folder
    log.checkpoint()
    for commit in log.log.glob("*.json"):
        commit.unlink()
    assert Store.open(old).checked == checked


def test_a_commit_without_a_hash_is_damage_above_the_upgrade_only(old: Path) -> None:
    store = Store.open(old)
    epochs = store.epochs.folder
    below, first = store.checked["epochs"] - 2, store.checked["epochs"]
    assert b"psoupHash" not in (epochs.log / f"{below:020d}.json").read_bytes()
    assert epochs.read_commit(below) is not None
    epochs.commit(first, operation="TEST")
    without_hash(epochs.log / f"{first:020d}.json")
    with pytest.raises(CorruptStore, match=f"{first:020d}.json"):
        epochs.read_commit(first)


def test_the_upgrade_itself_can_not_be_overlooked(old: Path) -> None:
    store = Store.open(old)
    commit = store.log.folder.log / f"{store.checked['log']:020d}.json"
    content = bytearray(commit.read_bytes())
    content[content.index(b'psoup\\": 2') + 9] ^= 1
    commit.write_bytes(content)
    with pytest.raises(CorruptStore, match=commit.name):
        Store.open(old)


def test_two_that_open_at_once_upgrade_it_once(old: Path) -> None:
    command = [sys.executable, "-c", OPEN, str(old)]
    openers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [opener.communicate()[0] for opener in openers] == ["opened\n"] * 2
    store = Store.open(old)
    events = [
        entry.event
        for version in range(store.checked["log"], store.log.latest_version() + 1)
        for entry in store.log.read(version)
    ]
    assert [type(event) for event in events] == [Upgrade]


def test_an_earlier_engine_has_to_stop_first(old: Path) -> None:
    with (old / "engine.lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UnsupportedFormat, match="stop all servers and the engine"):
            Store.open(old)
    assert Store.open(old).checked
