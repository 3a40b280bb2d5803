"""Tenants take turns in a queue, and the entries of each are in order."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from psoup.tenant_queue import QueuePlace, TenantQueue

tenants = st.sampled_from("abcd")


class QueueMachine(RuleBasedStateMachine):
    """A queue beside a list of tenants in the order of their turns, and a list of entries."""

    def __init__(self) -> None:
        super().__init__()
        self.ranks: dict[int, int] = {}
        self.queue: TenantQueue[int] = TenantQueue(self.ranks.__getitem__)
        self.turns: list[str] = []
        self.places: dict[int, QueuePlace[int]] = {}

    def waiting(self, tenant: str) -> list[int]:
        entries = [entry for entry, place in self.places.items() if place.tenant == tenant]
        return sorted(entries, key=lambda entry: (self.ranks[entry], entry))

    def left(self, entry: int) -> None:
        tenant = self.places.pop(entry).tenant
        if not self.waiting(tenant):
            self.turns.remove(tenant)

    @rule(tenant=tenants, rank=st.integers(0, 3))
    def push(self, tenant: str, rank: int) -> None:
        entry = len(self.ranks)
        self.ranks[entry] = rank
        self.places[entry] = self.queue.push(tenant, entry)
        if tenant not in self.turns:
            self.turns.append(tenant)

    @rule(tenant=tenants)
    def pop(self, tenant: str) -> None:
        if tenant not in self.queue:
            return
        entry = self.queue.pop(tenant)
        assert entry == self.waiting(tenant)[0]
        self.left(entry)
        if tenant in self.turns:
            self.turns.remove(tenant)
            self.turns.append(tenant)

    @rule(tenant=tenants)
    def pass_over(self, tenant: str) -> None:
        if tenant in self.queue:
            self.queue.pass_over(tenant)
            self.turns.remove(tenant)
            self.turns.append(tenant)

    @rule(number=st.integers(0, 50))
    def leave(self, number: int) -> None:
        if number in self.places:
            place = self.places[number]
            place.leave()
            place.leave()
            self.left(number)

    @rule(number=st.integers(0, 50), rise=st.integers(1, 3))
    def rise(self, number: int, rise: int) -> None:
        if number in self.places:
            self.ranks[number] += rise

    @invariant()
    def same(self) -> None:
        self.queue._check()
        assert list(self.queue) == self.turns and len(self.queue) == len(self.turns)
        for tenant in self.turns:
            assert self.queue.head(tenant) == self.waiting(tenant)[0]


TestQueue: Any = QueueMachine.TestCase
