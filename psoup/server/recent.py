"""The batches seen lately, so that a repeat of any of them is known by its digest.

The store keeps for ever the last batch of each publisher. Of earlier ones it keeps that they were
accepted; what they held is remembered here, for as long as this server has seen them and has room.
"""

from __future__ import annotations

from collections import OrderedDict

from psoup.store import Data, Entry, Publisher

_CAPACITY = 100_000


class Recent:
    def __init__(self, capacity: int = _CAPACITY) -> None:
        self._capacity = capacity
        self._batches: OrderedDict[tuple[str, str, int], Publisher] = OrderedDict()

    def insert(self, entry: Entry) -> None:
        event = entry.event
        if not isinstance(event, Data) or not event.publisher:
            return
        batch = Publisher(
            event.sequence, event.digest, event.first_row_id, event.rows, entry.position
        )
        self._batches[entry.tenant, event.publisher, event.sequence] = batch
        while len(self._batches) > self._capacity:
            self._batches.popitem(last=False)

    def probe(self, tenant: str, publisher: str, sequence: int) -> Publisher | None:
        return self._batches.get((tenant, publisher, sequence))
