"""RegisterMany as a proposal: rows of values for one text, as columns from call to log."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from psoup.server.draft import Chain, Draft
from psoup.server.proposals import Registered, Stale, key_taken
from psoup.store import START, Position, RegisterMany, State
from psoup.store.columns import HANDLE_BYTES
from psoup.store.events import MANY
from psoup.store.hashes import Int64s


@dataclass(frozen=True, slots=True)
class RegisterRows:
    """Registrations that share text and form: all of them or none.

    The columns are of equal length, at least one; a `client_key` may be empty.
    """

    tenant: str
    owner: str
    stream_id: int
    text: str
    lease: int
    form: str
    client_keys: Sequence[str]
    parameters: Sequence[str]
    keys: Sequence[str]
    chain: Chain | None = None

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.keys)) + sum(map(len, self.parameters)) + 100 * len(self.keys)

    def propose(self, draft: Draft) -> Registered:
        if draft.state.streams[self.stream_id].dropped:
            raise Stale
        known, position = self._known(draft.state)
        first = self._first_of_key()
        made = [place for place, one in enumerate(first) if one == place and place not in known]
        handles = dict(zip(made, _new_handles(len(made)), strict=True)) | known
        if made:
            position = max(position, self._append(draft, made, handles))
        return Registered([handles[place] for place in first], len(made), position)

    def _known(self, state: State) -> tuple[dict[int, bytes], Position]:
        """Handles of keys that are registered already, by place. Raises KeyTaken."""
        keyed = [place for place, key in enumerate(self.client_keys) if key]
        wanted = pa.array([self.client_keys[place] for place in keyed], pa.string())
        found = state.registrations.find_all(self.tenant, self.owner, wanted)
        known, position = {}, START
        for number, handle in found.items():
            place, old = keyed[number], state.registrations[handle]
            if (old.text, old.parameters) != (self.text, self.parameters[place]):
                raise key_taken(self.client_keys[place])
            known[place], position = handle, max(position, old.position)
        return known, position

    def _first_of_key(self) -> list[int]:
        """Where each row's client key stands first. Raises KeyTaken where two rows differ."""
        seen: dict[str, int] = {}
        first = []
        for place, key in enumerate(self.client_keys):
            one = seen.setdefault(key, place) if key else place
            if self.parameters[one] != self.parameters[place]:
                raise key_taken(key)
            first.append(one)
        return first

    def _append(self, draft: Draft, made: list[int], handles: dict[int, bytes]) -> Position:
        keys = pa.array([self.keys[place] for place in made], pa.string())
        columns = [
            pa.array([handles[place] for place in made], pa.binary()),
            pa.array([self.client_keys[place] for place in made], pa.string()),
            pa.array(self._predicates(draft.state, keys)),
            keys,
            pa.array([self.parameters[place] for place in made], pa.string()),
        ]
        rows = pa.Table.from_arrays(columns, schema=MANY)
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


def _new_handles(count: int) -> list[bytes]:
    """Ascending, so that the registrations of one call are listed in its order."""
    noise = os.urandom(count * HANDLE_BYTES)
    return sorted(noise[at : at + HANDLE_BYTES] for at in range(0, len(noise), HANDLE_BYTES))
