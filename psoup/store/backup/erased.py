"""The list of a store's erasures, to be applied to a store that is restored from a back-up.

A back-up keeps the rows that were erased after it was made. The list names them by their ids, so
it can be kept beside the back-ups: it has no value of a row. It is of use for back-ups of the same
history only, which the writer marks tell.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from psoup.store.backup.erased_keys import KeySearch
from psoup.store.delta.durable import replace_file
from psoup.store.errors import BackupFailed
from psoup.store.log.events import Entry, RowsErased, WriterStarted
from psoup.store.log.position import Position
from psoup.store.state.erasures import ids_from_text, ids_to_text
from psoup.store.state.state import State
from psoup.store.state.writers import WriterMarks
from psoup.store.store import Store
from results.id_sets import member

_VERSION = 1


@dataclass(frozen=True, slots=True)
class ErasureList:
    """The erasures of the store `store_id` as events, in log order, and its writer marks."""

    store_id: str
    events: tuple[tuple[str, str, RowsErased], ...]
    writers: WriterMarks

    def write(self, path: Path) -> None:
        form = {
            "psoup_erasures": _VERSION,
            "store": self.store_id,
            "writers": list(self.writers),
            "erasures": [
                {
                    "tenant": tenant,
                    "stream": name,
                    "stream_id": event.stream_id,
                    "rows": event.rows,
                    "digest": event.digest,
                    "salt": event.salt,
                    "stamp": event.stamp,
                }
                for tenant, name, event in self.events
            ],
        }
        replace_file(path, json.dumps(form, indent=1).encode() + b"\n")

    @classmethod
    def read(cls, path: Path) -> ErasureList:
        """Return the list in a file. Raise BackupFailed for another file, OSError."""
        try:
            form: dict[str, Any] = json.loads(path.read_bytes())
            if form["psoup_erasures"] != _VERSION:
                raise ValueError("of another version")
            events = tuple(map(_event, form["erasures"]))
            versions, marks = zip(*form["writers"], strict=True) if form["writers"] else ((), ())
            return cls(str(form["store"]), events, WriterMarks(versions, marks))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BackupFailed(
                f"{path} is not a list of erasures: write one with `psoup erase --list`"
            ) from error


def _event(form: dict[str, Any]) -> tuple[str, str, RowsErased]:
    stream_id, stamp = int(form["stream_id"]), int(form["stamp"])
    event = RowsErased(stream_id, form["rows"], form["digest"], form["salt"], stamp)
    # Raise ValueError for what can't be applied.
    ids_from_text(event.rows)
    bytes.fromhex(event.salt)
    return str(form["tenant"]), str(form["stream"]), event


def erasure_list(store: Store) -> ErasureList:
    """Return the erasures of a store. Raise StoreError."""
    state = store.last_state(store.epochs.latest()[1])
    events = []
    records = [record for value in state.erasures.values() for record in value.records]
    for record in sorted(records, key=lambda record: record.position):
        stream, salt = state.streams[record.stream_id], state.erased(record.stream_id).salt
        rows = ids_to_text(record.ids)
        event = RowsErased(record.stream_id, rows, record.digest, salt.hex(), record.stamp)
        events.append((stream.tenant, stream.schema.name, event))
    return ErasureList(store.id, tuple(events), state.writers)


def apply_erasures(store: Store, erasures: ErasureList) -> int:
    """Append the erasures that a restored store lacks; return how many rows they erase. It must be
    called before a server or an engine uses the store. Raise BackupFailed, StoreError."""
    _, epoch = store.epochs.latest()
    state = store.last_state(epoch)
    end = store.log.latest_version(epoch.log_version)
    _check_history(store, erasures, state, end)
    search = KeySearch(store, epoch, state)
    entries: list[Entry] = []
    count = 0
    for tenant, _, event in erasures.events:
        lacking = _lacking(state, event, search)
        if lacking is not None:
            position = Position(end + 1, len(entries))
            entry = Entry(position, state.clock, tenant, "", lacking)
            state.apply(entry)
            entries.append(entry)
            count += len(ids_from_text(lacking.rows))
    if entries:
        mark = WriterStarted(secrets.randbits(62))
        entries.append(Entry(Position(end + 1, len(entries)), state.clock, "", "", mark))
        store.log.append(end + 1, entries)
    return count


def _check_history(store: Store, erasures: ErasureList, state: State, end: int) -> None:
    if erasures.store_id != store.id:
        raise BackupFailed("the list of erasures is of another store")
    # The mark of the last version is that of the process that wrote it, in the one history only.
    if erasures.writers.at(end) != state.writers.at(end):
        raise BackupFailed(
            "the list of erasures belongs to a history that the back-up is not part of: the store "
            "was restored in between. Erase the keys again in the restored store"
        )


def _lacking(state: State, event: RowsErased, search: KeySearch) -> RowsErased | None:
    """Return the part of an erasure that a state lacks, with all rows of its key; None if it has
    all of it."""
    stream = state.streams.get(event.stream_id)
    if stream is None or stream.dropped:
        return None
    erasures, ids = state.erased(stream.id), ids_from_text(event.rows)
    ids = ids[: ids.searchsorted(stream.high)]
    # Of a key that was erased before and came back, the state may have an earlier erasure.
    is_refused = event.digest is None or any(
        record.digest == event.digest and record.stamp >= event.stamp for record in erasures.records
    )
    if event.digest is not None and not is_refused:
        ids = np.union1d(ids, search.rows(stream.id, event.digest, bytes.fromhex(event.salt)))
    new = ids[~member(ids, erasures.ids)]
    if not len(new) and is_refused:
        return None
    return replace(event, rows=ids_to_text(new))
