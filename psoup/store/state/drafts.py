"""Registrations and predicates of a draft: an overlay of changes over the base.

Making one costs nothing: its own columns are created on the first change. Bulk changes are applied
on the first read, which often does not happen before the commit is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from psoup.store.state.overlay import Overlay
from psoup.store.state.predicates import Predicate, Predicates
from psoup.store.state.registration import KeyedRegistration, Registration
from psoup.store.state.registrations import Registrations


class DraftRegistrations(Overlay[bytes, Registration]):
    def __init__(self, base: Registrations) -> None:
        super().__init__(base)
        self._before = base
        self._waiting: list[pa.Table] = []

    @cached_property
    def _layer(self) -> Registrations:
        return Registrations()

    @property
    def _changed(self) -> Registrations:
        layer, waiting, self._waiting = self._layer, self._waiting, []
        for table in waiting:
            layer.extend(table)
        return layer

    def find(self, tenant: str, owner: str, client_key: str) -> bytes | None:
        handle = self._changed.find(tenant, owner, client_key)
        if handle is None:
            handle = self._before.find(tenant, owner, client_key)
        return None if handle in self._removed else handle

    def find_all(
        self, tenant: str, owner: str, client_keys: pa.Array
    ) -> dict[int, KeyedRegistration]:
        before = self._before.find_all(tenant, owner, client_keys)
        remaining = {
            place: registration
            for place, registration in before.items()
            if registration.handle not in self._removed
        }
        return remaining | self._changed.find_all(tenant, owner, client_keys)

    def by_form(self, stream_id: int) -> dict[str, list[bytes]]:
        forms = self._changed.by_form(stream_id)
        for form, handles in self._before.by_form(stream_id).items():
            same = [h for h in handles if h not in self._removed and h not in self._changed]
            if same:
                forms[form] = [*forms.get(form, ()), *same]
        return forms

    def using(
        self, stream_id: int, uses: Callable[[str], bool], predicate_ids: Int64s
    ) -> list[bytes]:
        before = self._before.using(stream_id, uses, predicate_ids)
        same = [h for h in before if h not in self._removed and h not in self._changed]
        return [*same, *self._changed.using(stream_id, uses, predicate_ids)]

    def extend(self, table: pa.Table) -> None:
        self._waiting.append(table)

    def renew(self, handle: bytes, stamp: int) -> None:
        self[handle] = replace(self[handle], contact=stamp)


class DraftPredicates(Overlay[int, Predicate]):
    def __init__(self, base: Predicates) -> None:
        super().__init__(base)
        self._before = base
        self._waiting: list[Callable[[Predicates], None]] = []

    @cached_property
    def _layer(self) -> Predicates:
        return Predicates()

    @property
    def _changed(self) -> Predicates:
        layer, waiting, self._waiting = self._layer, self._waiting, []
        for change in waiting:
            change(layer)
        return layer

    def find(self, stream_id: int, key: str) -> int | None:
        predicate_id = self._changed.find(stream_id, key)
        if predicate_id is None:
            predicate_id = self._before.find(stream_id, key)
        return None if predicate_id in self._removed else predicate_id

    def find_all(self, stream_id: int, keys: pa.Array) -> Int64s:
        before = self._before.find_all(stream_id, keys)
        before[np.isin(before, list(self._removed))] = -1
        changed = self._changed.find_all(stream_id, keys)
        return np.where(changed < 0, before, changed)

    def containing(self, stream_id: int, text: str) -> Int64s:
        before = self._before.containing(stream_id, text)
        before = before[~np.isin(before, list(self._removed))]
        return np.union1d(before, self._changed.containing(stream_id, text))

    def extend(self, table: pa.Table) -> None:
        self._waiting.append(lambda layer: layer.extend(table))

    def count(self, ids: Int64s, more: Any) -> None:
        def change(layer: Predicates) -> None:
            # Predicates of the base are copied before their first change.
            missing = ids[layer.rows_of(ids) < 0]
            layer.extend(self._before.having(missing))
            layer.count(ids, more)

        self._waiting.append(change)

    def count_one(self, id_: int, more: int) -> None:
        if id_ not in self._changed:
            self._changed[id_] = self._before[id_]
        self._changed.count_one(id_, more)


# The types in a state, and in a draft of one.
AnyRegistrations: TypeAlias = Registrations | DraftRegistrations
AnyPredicates: TypeAlias = Predicates | DraftPredicates
