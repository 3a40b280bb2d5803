"""Changes in a world of two servers: whatever is cut, lost, damaged, sent whole or killed, they
come to what the copy is; each is read once, and none is needless.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, initialize, multiple, rule

from client_sdk import AnswerChange, Synced
from client_sdk.copies._file.catalog import find
from client_sdk.copies._file.tables import reported_table
from querystem.query import Query
from tests.client_sdk.copies.test_copies_machine import Kept, Offline
from tests.support.client_sdk.change_reader import ChangeReader, Identity
from tests.support.client_sdk.damage import flip_in_state, flipped
from tests.support.server.sync_world import Asked, Question, machine_settings, questions


class _Killed(Exception):
    """The process dies here."""


@dataclass
class Followed(Kept):
    """A copy whose changes are read. `syncs` counts those since the last batch."""

    reader: ChangeReader = field(default_factory=lambda: ChangeReader(""))
    syncs: int = 0


def identity_of(question: Asked) -> Identity | None:
    """Return what identifies the rows of an answer, by its columns."""
    query: Query = question.query
    names = [column.name for column in query.columns]
    if query.grouping is not None:
        keys = len(query.grouping.keys)
        return {0: lambda row: None, 2: lambda row: (row["b"], row["a"])}.get(keys)
    if query.distinct:
        return lambda row: row["b"]
    if question.table.keyed:
        return (lambda row: row["b"]) if "b" in names else None
    return (lambda row: row["row_id"]) if "row_id" in names else None


class Changing(Offline):
    kept_copies = Bundle("kept_copies")

    @initialize(
        target=kept_copies,
        seed=st.integers(0, 2**32),
        in_memory=st.booleans(),
        first=st.lists(questions, min_size=3, max_size=3),
    )
    def open(  # type: ignore[override]
        self, seed: int, in_memory: bool, first: list[Question]
    ) -> MultipleResults[Kept]:
        opened = super().open(seed=seed, in_memory=in_memory, first=first)
        return multiple(*opened.values)

    def _keep(self, question: Question, priority: int) -> Kept:
        answered = self.ask(question)
        if answered.base_rows:
            answered = self.ask(Question(**{**vars(question), "base_rows": False}))
        name = f"copy{len(self.all)}"
        self.copies.keep(
            name, answered.text, window=answered.window or None, priority=priority, changes=True
        )
        offline_copy = Followed(name, answered, reader=ChangeReader(name, identity_of(answered)))
        self.all[name] = offline_copy
        return offline_copy

    @rule(offline_copy=kept_copies)
    def read(self, offline_copy: Followed) -> None:
        self._read(offline_copy)

    @rule(offline_copy=kept_copies, copied=st.booleans())
    def die_in_a_batch(self, offline_copy: Followed, copied: bool) -> None:
        """The next batch has the same changes, and may have more."""
        with pytest.raises(_Killed), self.copies.changes(offline_copy.name) as batch:
            changes: list[AnswerChange] = list(batch)
            files = self._files() if copied and not self.in_memory else {}
            raise _Killed
        if files:
            self.copies.close()
            for path, content in files.items():
                path.write_bytes(content)
            self.copies = self._open()
        with pytest.raises(_Killed), self.copies.changes(offline_copy.name) as batch:
            assert list(batch)[: len(changes)] == changes
            raise _Killed
        self._read(offline_copy)

    @rule(
        offline_copy=kept_copies,
        kind=st.sampled_from(("told", "row", "log")),
        then=st.sampled_from(("read", "sync")),
        server=st.integers(0, 1),
    )
    def damage_changes(self, offline_copy: Followed, kind: str, then: str, server: int) -> None:
        """The reported answer is lost: the next batch says so, and has the answer."""
        if kind == "told":
            flip_in_state(self.copies, offline_copy.name, self.chance, "told")
        elif kind == "row":
            self._flip(offline_copy, "told")
        else:
            self._flip(offline_copy, "changes")
        if then == "sync":
            assert self.copies.sync(self._client(server), only=[offline_copy.name]).complete
        if kind == "row":
            # It is noticed when such a row changes, or all are compared.
            flip_in_state(self.copies, offline_copy.name, self.chance, "state")
            self.copies.sync(self._client(server), only=[offline_copy.name])
        self._read(offline_copy, damaged=True)

    # ---- means

    def _read(self, offline_copy: Followed, *, damaged: bool = False) -> None:
        before = len(offline_copy.reader.resets)
        offline_copy.reader.read(self.copies, syncs=offline_copy.syncs)
        offline_copy.syncs = 0
        assert offline_copy.reader.resets[before:] in ([], ["DAMAGED"] if damaged else [])

    def _check_all(self, affected_copies: list[Any], synced: Synced, one_position: bool) -> None:
        super()._check_all(affected_copies, synced, one_position)
        for offline_copy in affected_copies:
            offline_copy.syncs += 2 if synced.get(offline_copy.name) is None else 1
            if offline_copy.reader.rows is None or self.chance.random() < 0.5:
                self._read(offline_copy)

    def _files(self) -> dict[Path, bytes]:
        """What is on the disk in this moment."""
        folder = Path(self.own_folder)
        return {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    def _flip(self, offline_copy: Followed, what: str) -> None:
        with self.copies._file.writing() as connection:
            copy_id = find(connection, offline_copy.name).copy_id
            table = reported_table(copy_id) if what == "told" else "_psoup_changes"
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            if not names:
                return
            where = "" if what == "told" else f"WHERE copy_id = {copy_id}"
            column = self.chance.choice(names) if what == "told" else "content"
            rows = connection.execute(f"SELECT rowid, {column} FROM {table} {where}").fetchall()
            if rows:
                rowid, value = self.chance.choice(rows)
                connection.execute(
                    f"UPDATE OR REPLACE {table} SET {column} = ? WHERE rowid = ?",
                    (flipped(value, self.chance), rowid),
                )


TestChanging = Changing.TestCase
TestChanging.settings = machine_settings(7, 30)


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestChangingForLong(Changing.TestCase):  # type: ignore[misc, valid-type]
    """Thousands of runs."""

    settings = machine_settings(2000, 50)
