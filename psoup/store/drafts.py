"""Registrations and predicates of a draft: what it changes lies over what there was.

Making one costs nothing; the columns of its own are made when something is put into them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from psoup.store.hashes import Int64s
from psoup.store.overlay import Overlay
from psoup.store.predicates import Predicate, Predicates
from psoup.store.registrations import Registration, Registrations


class DraftRegistrations(Overlay[bytes, Registration]):
    def __init__(self, base: Registrations) -> None:
        super().__init__(base)
        self._before = base

    @cached_property
    def _changed(self) -> Registrations:
        return Registrations()

    def find(self, tenant: str, owner: str, client_key: str) -> bytes | None:
        handle = self._changed.find(tenant, owner, client_key)
        if handle is None:
            handle = self._before.find(tenant, owner, client_key)
        return None if handle in self._removed else handle

    def find_all(self, tenant: str, owner: str, client_keys: pa.Array) -> dict[int, bytes]:
        before = self._before.find_all(tenant, owner, client_keys)
        kept = {place: one for place, one in before.items() if one not in self._removed}
        return kept | self._changed.find_all(tenant, owner, client_keys)

    def extend(self, table: pa.Table) -> None:
        self._changed.extend(table)

    def renew(self, handle: bytes, stamp: int) -> None:
        self[handle] = replace(self[handle], contact=stamp)


class DraftPredicates(Overlay[int, Predicate]):
    def __init__(self, base: Predicates) -> None:
        super().__init__(base)
        self._before = base

    @cached_property
    def _changed(self) -> Predicates:
        return Predicates()

    def find(self, stream_id: int, key: str) -> int | None:
        found = self._changed.find(stream_id, key)
        if found is None:
            found = self._before.find(stream_id, key)
        return None if found in self._removed else found

    def find_all(self, stream_id: int, keys: pa.Array) -> Int64s:
        before = self._before.find_all(stream_id, keys)
        before[np.isin(before, list(self._removed))] = -1
        own = self._changed.find_all(stream_id, keys)
        return np.where(own < 0, before, own)

    def extend(self, table: pa.Table) -> None:
        self._changed.extend(table)

    def count(self, ids: Int64s, more: Any) -> None:
        others = ids[self._changed.rows_of(ids) < 0]
        self._changed.extend(self._before.having(others))
        self._changed.count(ids, more)

    def count_one(self, id_: int, more: int) -> None:
        if id_ not in self._changed:
            self._changed[id_] = self._before[id_]
        self._changed.count_one(id_, more)


# What a state holds: its own, or a draft's.
AnyRegistrations: TypeAlias = Registrations | DraftRegistrations
AnyPredicates: TypeAlias = Predicates | DraftPredicates
