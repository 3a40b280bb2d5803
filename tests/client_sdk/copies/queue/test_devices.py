"""Devices that edit the same rows offline, are killed, lose answers, and have their files copied.

An oracle follows versions: each edit notes the version that its editor saw. In the store every
version must have been made from the one before it. And no edit may vanish: it is in the store, or
the device says what became of it.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from client_sdk import Client, ConnectionFailed, Copies, EditConflict, Retry
from client_sdk.copies._file.file import CopyFile
from psoup.v1 import psoup_pb2 as pb
from psoup.write.draft import RecentBatches
from tests.support.client_sdk.inside import InsideStore, InsideTransport

KEYS = range(10)
ORDERS = "CREATE STREAM orders (id BIGINT, version TEXT) KEY (id)"
QUERY = "SELECT id, version FROM orders"
MOST_DEVICES = 5


class Killed(BaseException):
    """The process of a device ends here."""


class World:
    """A store, the files of devices, and all that was ever edited."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.store = InsideStore(folder)
        self.store.client.define(ORDERS)
        self.line = FaultyLine(self)
        self.client = Client(transport=self.line, retry=Retry(attempts=1))
        self.folder = folder
        self.phones = [folder / f"phone-{number}.db" for number in range(3)]
        # For each version, the one that its editor saw; None for none.
        self.saw: dict[str, str | None] = {}
        # Versions whose fate an application has decided: dropped, or replaced by another one.
        self.decided: set[str] = set()
        # Versions of calls that were killed: they may have been queued or not.
        self.uncertain: set[str] = set()
        self.faults = 0.0
        self.conflicts = 0
        for phone in self.phones:
            with Copies(phone) as copies:
                copies.keep("orders", QUERY, edits=True)
                copies.sync(self.client)

    def new_version(self, saw: str | None) -> str:
        version = f"v{len(self.saw)}"
        self.saw[version] = saw
        return version

    def chance(self, share: float) -> bool:
        return self.dice.random() < share * self.faults

    # ---- what a device does

    def edit(self, copies: Copies) -> None:
        # Some keys are edited by everybody, others now and then.
        key = int(len(KEYS) * self.dice.random() ** 2)
        versions = {row["id"]: row["version"] for row in copies["orders"].rows()}
        version = self.new_version(versions.get(key))
        self.uncertain.add(version)
        row: dict[str, Any] = {"id": key, "version": version}
        if key in versions and self.dice.random() < 0.1:
            row["_op"] = "delete"
        copies.publish("orders", [row], expected="seen")
        self.uncertain.discard(version)

    def decide(self, conflict: EditConflict) -> Any:
        """Return what an application makes of a conflict; note it before it takes effect."""
        self.conflicts += 1
        version, choice = conflict.mine["version"], self.dice.random()
        if choice < 0.3:
            return None
        self.decided.add(version)
        if choice < 0.6:
            return []
        their_version = None if conflict.theirs is None else conflict.theirs["version"]
        merged = self.new_version(their_version)
        self.uncertain.add(merged)
        return [{"id": conflict.mine["id"], "version": merged}]

    def settle(self, copies: Copies) -> None:
        """Decide about conflicts that were left."""
        for conflict in copies.conflicts:
            rows = self.decide(conflict)
            if rows:
                copies.resolve(conflict.batch, rows)
            elif rows is not None:
                copies.take_theirs(conflict.batch)

    def step(self) -> None:
        phone = self.dice.choice(self.phones)
        action = self.dice.random()
        if action < 0.02 and len(self.phones) < MOST_DEVICES:
            clone = self.folder / f"clone-{len(self.phones)}.db"
            shutil.copy(phone, clone)
            self.phones.append(clone)
            return
        copies = Copies(phone)
        try:
            if action < 0.6:
                self.edit(copies)
            elif action < 0.9:
                copies.sync(self.client, on_conflict=self.decide)
            else:
                self.settle(copies)
        except (Killed, ConnectionFailed):
            pass
        finally:
            copies.close()

    # ---- what has to be true

    def finish(self) -> None:
        """Sync every device without faults, and check that each edit has a fate."""
        self.faults = 0.0
        reported: set[str] = set()
        for phone in self.phones:
            with Copies(phone) as copies:
                synced = copies.sync(self.client)
                assert synced.sent.error is None and not copies.queued
                for aside in (*copies.rejected, *copies.doubtful):
                    reported |= set(aside.content.column("version").to_pylist())
        stored = [version for versions in self.versions().values() for version, _ in versions]
        assert max(Counter(stored).values()) == 1, "no edit is in the store twice"
        lost = self.saw.keys() - set(stored) - reported - self.decided - self.uncertain
        assert not lost

    def versions(self) -> dict[int, list[tuple[str, bool]]]:
        """Return the versions of each key in the order of the store, and which are deletes."""
        versions: dict[int, list[tuple[str, bool]]] = {}
        for _, row in sorted(self.line.accepted.items()):
            deleted = row.get("_op") == "delete"
            versions.setdefault(row["id"], []).append((row["version"], deleted))
        return versions

    def check(self) -> None:
        """Check that every version was made from the one before it."""
        for versions in self.versions().values():
            current: str | None = None
            for version, deleted in versions:
                assert self.saw[version] == current, (version, versions)
                current = None if deleted else version


class FaultyLine(InsideTransport):
    """A line that loses requests and answers. `accepted` has all rows that the store took, by
    id."""

    def __init__(self, world: World) -> None:
        super().__init__(world.store.core, world.store.run)
        self._world = world
        self.accepted: dict[int, dict[str, Any]] = {}

    def unary(self, method: str, request: Any, timeout: float | None) -> Any:
        if self._world.chance(0.5):
            raise ConnectionFailed("lost on the way there")
        reply = super().unary(method, request, timeout)
        if isinstance(reply, pb.PublishResponse):
            rows = pa.ipc.open_stream(request.arrow).read_all().to_pylist()
            self.accepted.update(
                enumerate(rows, reply.first_row_id) if not reply.unverified else ()
            )
        if self._world.chance(0.5):
            raise ConnectionFailed("lost on the way back")
        return reply


@contextmanager
def killing(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kill devices before, in and after their transactions."""
    writing = CopyFile.writing

    @contextmanager
    def faulty(file: CopyFile, durable: bool = False) -> Iterator[Any]:
        if world.chance(0.1):
            raise Killed
        with writing(file, durable=durable) as connection:
            yield connection
            if world.chance(0.1):
                raise Killed
        if world.chance(0.1):
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(CopyFile, "writing", faulty)
        yield


def run(folder: Path, seed: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(folder, seed)
    # A server that has restarted knows only the last batch of each publisher.
    if seed % 2:
        world.store.core.follower.recent = RecentBatches(capacity=0)
    try:
        with killing(world, monkeypatch):
            world.faults = 0.1
            for _ in range(steps):
                world.step()
                if world.dice.random() < 0.05:
                    world.check()
        world.finish()
        world.check()
    finally:
        world.store.close()
    return world


@pytest.mark.parametrize("seed", range(2))
def test_no_edit_replaces_an_unseen_one_and_none_vanishes(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = run(tmp_path, seed, 150, monkeypatch)
    assert world.conflicts > 5 and len(world.line.accepted) > 20


@pytest.mark.long
def test_ten_thousand_conflicting_edits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edits = conflicts = seed = 0
    while edits < 10_000:
        seed += 1
        (folder := tmp_path / str(seed)).mkdir()
        world = run(folder, seed, 2000, monkeypatch)
        edits += len(world.saw)
        conflicts += world.conflicts
    assert conflicts > 1000
