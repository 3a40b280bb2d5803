"""Stores of earlier formats are upgraded when they are opened; what lacks a checksum from then on
is damage."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import deltalake
import pyarrow.parquet as pq
import pytest

from psoup.engine.recover import open_ledger
from psoup.store import (
    CorruptStore,
    DeltaFolder,
    Entry,
    LegPredicate,
    Position,
    Register,
    Store,
    Touched,
    UnsupportedFormat,
)
from psoup.store.delta.files import write_data_file
from psoup.store.format import NEVER, read_identity
from psoup.store.layout import FORMAT, REGISTRATIONS
from psoup.store.log.events import Upgrade
from psoup.store.state.columns import with_constants
from psoup.store.state.registrations import Registrations
from psoup.store.tables import REPEATED, changed_rows, read_newest
from tests.formats.story import HERE


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store of format 1, not opened yet."""
    return sample(1, tmp_path)


def sample(number: int, path: Path) -> Path:
    """A store of an earlier format, not opened yet."""
    with tarfile.open(HERE / f"format-{number}.tar.xz") as archive:
        archive.extractall(path, filter="data")
    return path / "store"


EARLIER = range(1, FORMAT)
OPEN = "import sys; from psoup.store import Store; Store.open(sys.argv[1]); print('opened')"


def without_hash(commit: Path) -> None:
    """As if the field had never been there: a flipped bit in its name is enough."""
    commit.write_bytes(commit.read_bytes().replace(b"psoupHash", b"psoupHasi"))


def test_opening_upgrades_once_and_the_log_names_the_versions(old: Path) -> None:
    store = Store.open(old)
    version = store.log.latest_version()
    (entry,) = store.log.read(version)
    assert isinstance(entry.event, Upgrade) and entry.event.format == FORMAT
    assert entry.event.checked == store.checked and store.checked["log"] == version
    assert {"epochs", "matches", "stems/1"} <= store.checked.keys()
    assert Store.open(old).log.latest_version() == version
    table = deltalake.DeltaTable(old / "log")
    assert json.loads(table.metadata().description)["psoup"] == FORMAT
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
    content[content.index(f'psoup\\": {FORMAT}'.encode()) + 9] ^= 1
    commit.write_bytes(content)
    with pytest.raises(CorruptStore, match=commit.name):
        Store.open(old)


@pytest.mark.parametrize("number", EARLIER)
def test_two_that_open_at_once_upgrade_it_once(number: int, tmp_path: Path) -> None:
    old = sample(number, tmp_path)
    before = DeltaFolder(old / "log", NEVER).latest_version()
    command = [sys.executable, "-c", OPEN, str(old)]
    openers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [opener.communicate()[0] for opener in openers] == ["opened\n"] * 2
    store = Store.open(old)
    events = [
        entry.event
        for version in range(before + 1, store.log.latest_version() + 1)
        for entry in store.log.read(version)
    ]
    assert [type(event) for event in events] == [Upgrade]


@pytest.mark.parametrize("number", EARLIER)
def test_an_earlier_engine_has_to_stop_first(number: int, tmp_path: Path) -> None:
    old = sample(number, tmp_path)
    with (old / "engine.lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UnsupportedFormat, match="stop all servers and the engine"):
            Store.open(old)
    assert read_identity(old)["psoup"] == number
    Store.open(old)
    assert read_identity(old)["psoup"] == FORMAT


# ---- what an earlier program makes of it


@pytest.mark.parametrize("number", EARLIER)
def test_an_earlier_program_is_stopped_by_the_log_or_its_checkpoint(
    number: int, tmp_path: Path
) -> None:
    store = Store.open(sample(number, tmp_path))
    folder, version = store.log.folder, store.log.latest_version()
    assert store.epochs.latest()[1].log_version < version, "it would read the event"
    commit = folder.read_commit(version)
    assert commit is not None
    (file,) = commit.added
    assert pq.read_table(folder.path_of(file)).column("kind").to_pylist() == ["format"]
    open_ledger(store)
    # Programs of format 2 believe this one description.
    assert json.loads(folder.description)["psoup"] == FORMAT


def test_this_program_refuses_what_a_later_one_has_upgraded(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", create=True)
    later = Upgrade(FORMAT + 1, {})
    store.log.append(1, [Entry(Position(1, 0), 5, "", "", later)])
    with pytest.raises(UnsupportedFormat, match=f"format {FORMAT + 1} now.*upgrade psoup"):
        store.log.read(1)


# ---- the registrations of a store of format 2


def test_registrations_of_format_2_have_one_leg(tmp_path: Path) -> None:
    store = Store.open(sample(2, tmp_path))
    assert store.checked == {}, "format 2 has checksums of all files"
    state = store.state(store.epochs.latest()[1])
    assert len(state.registrations) == 12
    for registration in state.registrations.values():
        assert len(registration.legs) == 1
    counts = sum(one.registrations for one in state.predicates.values())
    assert counts == 13, "one is refreshed by another predicate"
    table = deltalake.DeltaTable(store.root / "registrations")
    assert "more_legs" in [field.name for field in table.schema().fields]
    assert table.to_pyarrow_table().column("more_legs").null_count == 15


def test_rows_of_both_formats_lie_in_one_table(tmp_path: Path) -> None:
    store = Store.open(sample(2, tmp_path))
    _, epoch = store.epochs.latest()
    state, touched = store.state(epoch), Touched()
    before = dict(state.registrations)
    legs = tuple(LegPredicate(number, 100 + number, "k") for number in (3, 1, 3))
    position = Position(state.position.version + 1, 0)
    event = Register(bytes(16), "", legs, "text", "{}", "form", 60)
    state.apply(Entry(position, state.clock, "main", "main", event), touched)
    folder = store.table("registrations")
    rows = changed_rows(state, touched, position)["registrations"]
    version = folder.latest_version() + 1
    folder.commit(version, [write_data_file(folder.root, rows)], operation="TEST")
    live = read_newest(folder, folder.snapshot(), REGISTRATIONS, REPEATED["registrations"])
    assert live.num_rows == len(before) + 1
    again = Registrations()
    stamps = live.column("stamp").cast("int64")
    live = live.set_column(live.column_names.index("stamp"), "stamp", stamps)
    again.extend(with_constants(live.sort_by("position"), {"contact": 0}))
    assert again[bytes(16)] == state.registrations[bytes(16)]
    assert {one.handle: one.legs for one in again.values()} == {
        one.handle: one.legs for one in state.registrations.values()
    }
