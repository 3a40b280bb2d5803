"""RegisterMany as a proposal: rows of values for one text, as columns from call to log."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from psoup.server.draft import Chain, Draft
from psoup.server.proposals import Registered, Stale, key_taken
from psoup.store import START, Position, RegisterMany, State
from psoup.store.columns import HANDLE_BYTES
from psoup.store.events import MANY


class Rows:
    """What the rows of a call hold, made ready where it holds up nobody.

    The columns are of equal length, at least one; a client key may be empty. Rows that repeat a
    client key are one registration: `first` is where each row's stands first.
    """

    def __init__(
        self, client_keys: Sequence[str], parameters: Sequence[str], keys: Sequence[str]
    ) -> None:
        """Raises KeyTaken where rows with one client key differ."""
        self.client_keys, self.parameters = client_keys, parameters
        self.first = np.array(_first_of_key(client_keys, parameters), np.int64)
        self.handles = _new_handles(len(keys))
        self.keyed = [place for place, key in enumerate(client_keys) if key]
        self.wanted = pa.array([client_keys[place] for place in self.keyed], pa.string())
        columns = {
            "handle": pa.array(self.handles, pa.binary()),
            "client_key": pa.array(client_keys, pa.string()),
            "parameters": pa.array(parameters, pa.string()),
            "key": pa.array(keys, pa.string()),
        }
        self.table = pa.table(columns)


@dataclass(frozen=True, slots=True)
class RegisterRows:
    """Registrations that share text and form: all of them or none."""

    tenant: str
    owner: str
    stream_id: int
    text: str
    lease: int
    form: str
    rows: Rows
    chain: Chain | None = None

    @property
    def nbytes(self) -> int:
        return int(self.rows.table.nbytes)

    def propose(self, draft: Draft) -> Registered:
        if draft.state.streams[self.stream_id].dropped:
            raise Stale
        known, position = self._known(draft.state)
        new = self.rows.first == np.arange(len(self.rows.first))
        new[list(known)] = False
        if new.any():
            position = max(position, self._append(draft, self.rows.table.filter(pa.array(new))))
        handles = self.rows.handles
        found = [known.get(place) or handles[place] for place in self.rows.first.tolist()]
        return Registered(found, int(new.sum()), position)

    def _known(self, state: State) -> tuple[dict[int, bytes], Position]:
        """Handles of keys that are registered already, by place. Raises KeyTaken."""
        rows = self.rows
        found = state.registrations.find_all(self.tenant, self.owner, rows.wanted)
        known, position = {}, START
        for number, handle in found.items():
            place, old = rows.keyed[number], state.registrations[handle]
            if (old.text, old.parameters) != (self.text, rows.parameters[place]):
                raise key_taken(rows.client_keys[place])
            known[place], position = handle, max(position, old.position)
        return known, position

    def _append(self, draft: Draft, new: pa.Table) -> Position:
        ids = self._predicates(draft.state, new.column("key").combine_chunks())
        rows = new.append_column("predicate_id", pa.array(ids)).select(MANY.names)
        event = RegisterMany(self.stream_id, self.text, self.form, self.lease, rows)
        return draft.append(self.tenant, self.owner, event)

    def _predicates(self, state: State, keys: pa.Array) -> Int64s:
        """The ids: those of predicates there are, and the next ones in the order of the rows."""
        encoded = keys.dictionary_encode()
        ids = state.predicates.find_all(self.stream_id, encoded.dictionary)
        new = np.flatnonzero(ids < 0)
        ids[new] = np.arange(len(new)) + state.next_predicate_id
        found: Int64s = ids[encoded.indices.to_numpy()]
        return found


def _first_of_key(client_keys: Sequence[str], parameters: Sequence[str]) -> list[int]:
    seen: dict[str, int] = {}
    first = []
    for place, key in enumerate(client_keys):
        one = seen.setdefault(key, place) if key else place
        if parameters[one] != parameters[place]:
            raise key_taken(key)
        first.append(one)
    return first


def _new_handles(count: int) -> list[bytes]:
    """Ascending, so that the registrations of one call are listed in its order."""
    noise = os.urandom(count * HANDLE_BYTES)
    return sorted(noise[at : at + HANDLE_BYTES] for at in range(0, len(noise), HANDLE_BYTES))
